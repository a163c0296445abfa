//! The edge to devices: what a disk is made of, before it is an image and after.
//!
//! Owns opening block devices and files ([`device`]) and whether one may be used ([`refusal`]), partition tables
//! ([`partition`]), filesystems ([`filesystem`]), and from these what of a disk counts ([`survey()`]); then reading
//! that ([`capture`]) and writing it ([`install`]). A crate of its own because here are hostile bytes, ioctls and
//! direct I/O. Whatever a disk holds, reading it must neither panic nor take more time and memory than its length
//! allows.

mod aligned_buffer;
pub mod capture;
mod container;
pub mod device;
mod fields;
pub mod filesystem;
pub mod install;
pub mod partition;
pub mod refusal;
pub mod survey;

pub use aligned_buffer::AlignedBuffer;
pub use container::refuse_wrapped;
pub use device::{Source, Target, TargetOptions};
pub use survey::{Part, Survey, SurveyOptions, survey};
