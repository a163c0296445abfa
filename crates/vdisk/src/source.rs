//! The source of a virtual disk: frames and pages, with retries on failure.

use std::thread;
use std::time::{Duration, Instant};

use platter_image::recipe::PageSource;
use platter_image::{ErrorKind, FrameSource, Result};

/// How often a read is tried before an `Io` error is returned.
pub const TRIES_MAX: u32 = 3;
/// No retry begins later than this after the first try; then a `Transient` error is returned. A client waits
/// at most this long plus one try. A try cannot be interrupted, so a source that does not answer blocks it.
pub const RETRY_TIME_MAX: Duration = Duration::from_secs(2);
/// The pause before the second try; it doubles before each later one.
const PAUSE: Duration = Duration::from_millis(10);

/// A source of frames and pages, such as a store.
pub trait Source: FrameSource + PageSource {}

impl<T: FrameSource + PageSource + ?Sized> Source for T {}

/// Calls `read` and retries errors that may be temporary: `Io` up to [`TRIES_MAX`] tries in all, `Transient`
/// until [`RETRY_TIME_MAX`] has passed.
pub(crate) fn retried<T>(mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let mut pause = PAUSE;
    let mut tried = 0;
    loop {
        let result = read();
        tried += 1;
        let Err(error) = &result else { return result };
        if !is_worth_a_try(error.kind(), tried, start.elapsed() + pause) {
            return result;
        }
        thread::sleep(pause);
        pause *= 2;
    }
}

/// Whether to try again after `tried` failed tries, `time` after the first.
fn is_worth_a_try(kind: ErrorKind, tried: u32, time: Duration) -> bool {
    match kind {
        ErrorKind::Io => tried < TRIES_MAX && time <= RETRY_TIME_MAX,
        ErrorKind::Transient => time <= RETRY_TIME_MAX,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use platter_image::Error;

    use super::*;

    /// Runs `retried` on a read whose first `failures` calls fail; returns the number of calls and the
    /// result.
    fn tries(failures: u32, error: impl Fn() -> Error) -> (u32, Result<()>) {
        let mut tried = 0;
        let result = retried(|| {
            tried += 1;
            if tried <= failures { Err(error()) } else { Ok(()) }
        });
        (tried, result)
    }

    #[test]
    fn io_and_transient_errors_are_retried() {
        let (tried, result) = tries(5, || Error::transient("away"));
        assert!(tried == 6 && result.is_ok());
        let (tried, result) = tries(TRIES_MAX, || Error::io("reading", std::io::Error::other("bad")));
        assert!(tried == TRIES_MAX && result.unwrap_err().kind() == ErrorKind::Io);
        let (tried, result) = tries(1, || Error::corrupt("damaged"));
        assert!(tried == 1 && result.unwrap_err().kind() == ErrorKind::Corrupt);
    }

    /// The pauses are 10, 20, 40 ms and so on: at most eight tries fit, and fewer if the reads take long.
    #[test]
    fn a_lasting_transient_error_is_returned_in_the_end() {
        let (tried, result) = tries(u32::MAX, || Error::transient("away"));
        assert!((2..=8).contains(&tried), "{tried}");
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Transient);
        assert!(is_worth_a_try(ErrorKind::Transient, 100, RETRY_TIME_MAX));
        let late = RETRY_TIME_MAX + Duration::from_nanos(1);
        assert!(!is_worth_a_try(ErrorKind::Transient, 1, late));
        assert!(!is_worth_a_try(ErrorKind::Io, 1, late));
    }
}
