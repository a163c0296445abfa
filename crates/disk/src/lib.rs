//! Access to devices: surveying a disk before it becomes an image, and writing it afterwards.
//!
//! It opens block devices and files ([`device`]), decides whether one may be used ([`refusal`]), reads
//! partition tables ([`partition`]), lets [`platter_filesystem`] read filesystems, and determines from these which
//! bytes of a disk must be kept ([`survey()`]); then it reads them ([`capture`]) or writes them ([`install`]). It
//! is a crate of its own to isolate ioctls and direct I/O. Whatever a disk contains, reading
//! it must neither panic nor take more time and memory than the disk's length justifies.

mod aligned_buffer;
pub mod capture;
mod choices;
pub mod device;
pub mod install;
pub mod partition;
pub mod refusal;
pub mod survey;

pub use aligned_buffer::AlignedBuffer;
pub use choices::PartitionChoices;
pub use device::{Source, Target, TargetOptions};
pub use survey::{Part, Survey, SurveyOptions, survey};
