//! Captures a disk and publishes it as the next version of an image.
//!
//! [`input`] opens the source: a device, a raw file, or an image in the format of another program. [`spool`] unpacks
//! what can only be read from beginning to end, to a [`spool_file`]. [`job`] surveys it,
//! captures it, and publishes the version.

mod input;
mod job;
mod spool;
mod spool_file;

pub(crate) use input::refuse_other_format;
pub use input::{BackingFile, Input, InputOptions, SourceName};
pub use job::{CaptureRequest, capture, capture_as, filesystems};
