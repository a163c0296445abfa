//! Calls of the store. They block, so they run on threads of their own; the number of running and of waiting calls is
//! limited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use platter_image::{Error, Result};
use tokio::sync::Semaphore;

/// Limits the threads that call the store.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// Counts a waiting call. Dropped with its request.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    pub(crate) fn new(threads: usize, waiting_max: usize) -> Self {
        Self { threads: Arc::new(Semaphore::new(threads)), waiting: AtomicUsize::new(0), waiting_max }
    }

    /// Runs a blocking call. A call that started runs to its end, even when its caller is gone.
    ///
    /// # Errors
    /// `Transient` when too many calls wait already; `Bug` when the call panics; the errors of the call.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        if before >= self.waiting_max {
            return Err(Error::transient(format!("{before} requests wait for the store: try again later")));
        }
        let thread = self.threads.clone().acquire_owned().await;
        let thread = thread.map_err(|_| Error::transient("the origin ends"))?;
        drop(waiting);
        let run = move || {
            let _thread = thread;
            call()
        };
        tokio::task::spawn_blocking(run)
            .await
            .unwrap_or_else(|error| Err(Error::bug("a call of the store panicked").with_source(error)))
    }

    /// Returns the number of waiting calls.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;

    use super::*;

    #[tokio::test]
    async fn a_call_beyond_the_limit_of_waiting_calls_is_refused() {
        let pool = Arc::new(Pool::new(1, 1));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let spawn = |call: Box<dyn FnOnce() -> Result<u32> + Send>| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.run(call).await })
        };
        let busy = spawn(Box::new(move || {
            released.recv().ok();
            Ok(1)
        }));
        while pool.threads.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let waits = spawn(Box::new(|| Ok(2)));
        while pool.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(|| Ok(3)).await.unwrap_err().kind(), ErrorKind::Transient);
        release.send(()).unwrap();
        assert_eq!((busy.await.unwrap().unwrap(), waits.await.unwrap().unwrap()), (1, 2));
        assert_eq!(pool.waiting(), 0);
        assert_eq!(
            pool.run(|| -> Result<()> { panic!("on purpose") }).await.unwrap_err().kind(),
            ErrorKind::Bug
        );
        assert_eq!(pool.run(|| Ok(4)).await.unwrap(), 4);
    }
}
