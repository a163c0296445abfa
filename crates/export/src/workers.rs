//! Threads for requests that wait: started when there is work for one more, ended when there was none for a while.
//!
//! A disk that answers from memory needs none of them, and a hundred disks that are idle have none. They are not joined, because
//! one of them may wait for a disk that does not answer.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use platter_image::{Error, Result};

/// Maximum queued jobs; whoever adds one more waits.
const QUEUE_JOBS_MAX: usize = 256;
/// A thread without work ends after this time. Starting one takes some 30 µs.
const IDLE_TIME: Duration = Duration::from_secs(2);

struct State<J> {
    jobs: VecDeque<J>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
}

/// A queue, and the threads that do what is in it.
pub(crate) struct Workers<J> {
    name: &'static str,
    threads_max: usize,
    run: fn(J),
    state: Mutex<State<J>>,
    /// Wakes a thread: there is a job.
    work: Condvar,
    /// Wakes whoever adds: the queue is shorter.
    room: Condvar,
}

impl<J: Send + 'static> Workers<J> {
    /// None yet; at most so many threads, which execute jobs with `run`.
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
                // The others get to it.
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

    /// The next job; `None` when none came for a while: then this thread is not counted any more, so that the next job gets another.
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

/// Counts a thread out that ends by a panic.
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
    fn threads_come_with_the_work_up_to_a_limit_and_go_without() {
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
        // Threads that wait are used before others are started.
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
    fn a_panic_takes_no_place() {
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
