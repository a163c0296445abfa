//! Where a virtual disk reads from: frames and pages together, with a few tries when that fails.

use std::thread;
use std::time::Duration;

use platter_image::recipe::PageSource;
use platter_image::{ErrorKind, FrameSource, Result};

/// Times that a read of the source is tried before its failure is believed.
pub const TRIES_MAX: u32 = 3;
/// How long to wait before the second try; before the third, twice that.
const PAUSE: Duration = Duration::from_millis(10);

/// A source of frames and of pages, such as a store.
pub trait Source: FrameSource + PageSource {}

impl<T: FrameSource + PageSource + ?Sized> Source for T {}

/// What `read` gives, tried again when what failed may work the next time: `Io` and `Transient`.
pub(crate) fn retried<T>(mut read: impl FnMut() -> Result<T>) -> Result<T> {
    for tried in 1..TRIES_MAX {
        match read() {
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Transient) => {
                thread::sleep(PAUSE * tried);
            }
            result => return result,
        }
    }
    read()
}
