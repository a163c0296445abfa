//! Runs the same work for each of many items, on some threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use platter_image::{Error, Result};

/// Calls `work` with each item and its number, on up to `threads` threads. The results are in the order of the items. After an
/// error, no further item is begun by the thread that had it.
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
            done.push((number, work(number, item)?));
        }
    };
    let results: Vec<Result<Vec<(usize, T)>>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, items.len().max(1))).map(|_| scope.spawn(take)).collect();
        let panicked = || Err(Error::bug("a thread of the analysis panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| panicked())).collect()
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
}
