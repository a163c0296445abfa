//! Runs the same work for each of many items, on some threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use platter_image::{Error, Result};

/// Calls `work` with each item and its number, on up to `threads` threads. The results are in the order of the items. After an
/// error, no thread begins another item.
///
/// # Errors
/// The first error that is found.
pub(crate) fn for_each<I: Sync, T: Send>(
    items: &[I],
    threads: usize,
    work: impl Fn(usize, &I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let take = || -> Result<Vec<(usize, T)>> {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return Ok(done) };
            match work(number, item) {
                Ok(result) => done.push((number, result)),
                Err(error) => {
                    next.store(items.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let results: Vec<Result<Vec<(usize, T)>>> = thread::scope(|scope| {
        // As many further threads as can be had.
        let start = |_| thread::Builder::new().spawn_scoped(scope, take).ok();
        let workers: Vec<_> = (1..threads.clamp(1, items.len().max(1))).map_while(start).collect();
        let own = take();
        let panicked = || Err(Error::bug("a thread of the analysis panicked"));
        let others = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| panicked()));
        [own].into_iter().chain(others).collect()
    });
    let mut all: Vec<(usize, T)> = Vec::with_capacity(items.len());
    for result in results {
        all.extend(result?);
    }
    all.sort_unstable_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn results_are_in_order() {
        let items: Vec<usize> = (0..100).collect();
        let double = |number: usize, item: &usize| Ok(number + item);
        assert!(for_each(&items, 3, double).unwrap().into_iter().eq((0..100).map(|item| 2 * item)));
        assert!(for_each(&[], 3, double).unwrap().is_empty());
        let fails = |number: usize, _: &usize| if number == 7 { Err(Error::missing("7")) } else { Ok(()) };
        assert!(for_each(&items, 3, fails).is_err());
    }

    /// Sends when it is dropped.
    struct Dropped(Option<mpsc::Sender<()>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.iter().for_each(|sender| sender.send(()).unwrap_or_default());
        }
    }

    #[test]
    fn after_an_error_no_thread_begins_another_item() {
        let (begun, both) = (AtomicUsize::new(0), Barrier::new(2));
        let (sender, dropped) = mpsc::channel();
        let dropped = Mutex::new(dropped);
        // One thread has item 0, then 2, which fails. The other has item 1 until the results of the first thread are dropped.
        let work = |number: usize, _: &()| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number < 2 {
                both.wait();
            }
            match number {
                0 => return Ok(Dropped(Some(sender.clone()))),
                1 => dropped.lock().recv_timeout(Duration::from_secs(60)).expect("the first thread ended"),
                2 => return Err(Error::missing("2")),
                _ => {}
            }
            Ok(Dropped(None))
        };
        assert!(for_each(&[(); 100], 2, work).is_err());
        assert_eq!(begun.into_inner(), 3);
    }
}
