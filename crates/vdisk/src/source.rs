//! Where a virtual disk reads from: frames and pages together, with a few tries when that fails.

use std::thread;
use std::time::{Duration, Instant};

use platter_image::recipe::PageSource;
use platter_image::{ErrorKind, FrameSource, Result};

/// Times that a read of the source is tried before an `Io` failure of it is believed.
pub const TRIES_MAX: u32 = 3;
/// No try begins later than this after the first: a `Transient` failure is then believed. A client waits that long, and
/// the time of one more try, and none of the tries can be cut short: what the source does not answer, waits.
pub const RETRY_TIME_MAX: Duration = Duration::from_secs(2);
/// How long to wait before the second try; before each later one, twice as long as before.
const PAUSE: Duration = Duration::from_millis(10);

/// A source of frames and of pages, such as a store.
pub trait Source: FrameSource + PageSource {}

impl<T: FrameSource + PageSource + ?Sized> Source for T {}

/// What `read` gives, tried again when what failed may work the next time: `Io` a few times, as a disk that fails once
/// rarely fails thrice for no reason; `Transient` as long as somebody may still wait.
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

/// Whether to try again at `time` after the first try, when `tried` tries failed.
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

    /// Tries until the first failure is believed; the first `failures` fail.
    fn tries(failures: u32, error: impl Fn() -> Error) -> (u32, Result<()>) {
        let mut tried = 0;
        let result = retried(|| {
            tried += 1;
            if tried <= failures { Err(error()) } else { Ok(()) }
        });
        (tried, result)
    }

    #[test]
    fn what_may_work_the_next_time_is_tried_again() {
        let (tried, result) = tries(5, || Error::transient("away"));
        assert!(tried == 6 && result.is_ok());
        let (tried, result) = tries(TRIES_MAX, || Error::io("reading", std::io::Error::other("bad")));
        assert!(tried == TRIES_MAX && result.unwrap_err().kind() == ErrorKind::Io);
        let (tried, result) = tries(1, || Error::corrupt("damaged"));
        assert!(tried == 1 && result.unwrap_err().kind() == ErrorKind::Corrupt);
    }

    /// 10, 20, 40 ms and so on: with no other time spent there are eight tries, and fewer where reading takes long.
    #[test]
    fn a_source_that_stays_away_is_believed_in_the_end() {
        let (tried, result) = tries(u32::MAX, || Error::transient("away"));
        assert!((2..=8).contains(&tried), "{tried}");
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Transient);
        assert!(is_worth_a_try(ErrorKind::Transient, 100, RETRY_TIME_MAX));
        let late = RETRY_TIME_MAX + Duration::from_nanos(1);
        assert!(!is_worth_a_try(ErrorKind::Transient, 1, late));
        assert!(!is_worth_a_try(ErrorKind::Io, 1, late));
    }
}
