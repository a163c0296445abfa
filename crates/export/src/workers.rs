//! Worker threads for requests that may block. A thread is started when all others are busy, and ends after a time
//! without work.
//!
//! Disks that answer from memory need no threads, and idle disks have none. The threads are not joined, because one of
//! them may be blocked by a disk that does not respond.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use platter_image::{Error, Result};

/// Maximum number of queued jobs; adding another one blocks.
const QUEUE_JOBS_MAX: usize = 256;
/// A thread without work ends after this time. Starting a thread takes about 30 µs.
const IDLE_TIME: Duration = Duration::from_secs(2);

struct State<J> {
    jobs: VecDeque<J>,
    threads: usize,
    /// Number of threads that wait for a job.
    idle: usize,
}

/// A queue of jobs, and the threads that execute them.
pub(crate) struct Workers<J> {
    name: &'static str,
    threads_max: usize,
    run: fn(J),
    state: Mutex<State<J>>,
    /// Notified when a job was added.
    work: Condvar,
    /// Notified when a job was taken from the queue.
    room: Condvar,
}

impl<J: Send + 'static> Workers<J> {
    /// Creates workers without threads. At most `threads_max` threads will execute jobs with `run`.
    pub(crate) fn new(name: &'static str, threads_max: usize, run: fn(J)) -> Arc<Self> {
        let state = State { jobs: VecDeque::new(), threads: 0, idle: 0 };
        let (work, room) = (Condvar::new(), Condvar::new());
        Arc::new(Self { name, threads_max: threads_max.max(1), run, state: Mutex::new(state), work, room })
    }

    /// Adds a job.
    ///
    /// # Errors
    /// `Io` when there is no thread and none can be started; the job is then dropped.
    pub(crate) fn add(self: &Arc<Self>, job: J) -> Result<()> {
        let mut state = self.state.lock();
        while state.jobs.len() >= QUEUE_JOBS_MAX {
            self.room.wait(&mut state);
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < self.threads_max {
            let workers = Arc::clone(self);
            let started = thread::Builder::new().name(self.name.into()).spawn(move || workers.work());
            match started {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    state.jobs.pop_back();
                    return Err(Error::io("starting a thread", error));
                }
                // Another thread will execute the job.
                Err(_) => {}
            }
        }
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    fn work(&self) {
        let counted = Counted(self);
        while let Some(job) = self.next() {
            (self.run)(job);
        }
        std::mem::forget(counted);
    }

    /// Waits for the next job. Returns `None` after [`IDLE_TIME`]: this thread is then no longer counted, and must end.
    fn next(&self) -> Option<J> {
        let mut state = self.state.lock();
        let mut is_late = false;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.room.notify_one();
                return Some(job);
            }
            if is_late {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            is_late = self.work.wait_for(&mut state, IDLE_TIME).timed_out();
            state.idle -= 1;
        }
    }

    #[cfg(test)]
    fn threads(&self) -> usize {
        self.state.lock().threads
    }
}

/// Dropped when a thread panics: the thread is then no longer counted.
struct Counted<'a, J>(&'a Workers<J>);

impl<J> Drop for Counted<'_, J> {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    type Job = (Sender<thread::ThreadId>, crossbeam_channel::Receiver<()>);

    fn run((done, go): Job) {
        let _ = go.recv();
        done.send(thread::current().id()).unwrap();
    }

    #[test]
    fn threads_are_started_for_jobs_up_to_a_limit_and_end_when_idle() {
        let workers = Workers::new("test", 4, run);
        let (done, ended) = channel();
        let (go, gone) = crossbeam_channel::unbounded();
        assert_eq!(workers.threads(), 0);
        for count in 1..=6 {
            workers.add((done.clone(), gone.clone())).unwrap();
            assert_eq!(workers.threads(), count.min(4));
        }
        (0..6).for_each(|_| go.send(()).unwrap());
        let of_busy: Vec<_> = ended.iter().take(6).collect();
        // An idle thread is used before another one is started.
        while workers.state.lock().idle < 4 {
            thread::yield_now();
        }
        workers.add((done.clone(), gone.clone())).unwrap();
        go.send(()).unwrap();
        assert!(of_busy.contains(&ended.recv().unwrap()));
        while workers.threads() > 0 {
            thread::sleep(Duration::from_millis(10));
        }
        workers.add((done, gone)).unwrap();
        go.send(()).unwrap();
        assert!(!of_busy.contains(&ended.recv().unwrap()));
    }

    #[test]
    fn a_panicked_thread_is_replaced() {
        let workers = Workers::new("test", 1, |done: Option<Sender<()>>| done.unwrap().send(()).unwrap());
        workers.add(None).unwrap();
        let (done, ended) = channel();
        while workers.threads() > 0 {
            thread::yield_now();
        }
        workers.add(Some(done)).unwrap();
        ended.recv().unwrap();
    }
}
