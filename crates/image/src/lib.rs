//! What a disk image is: the words every other crate speaks.
//!
//! Owns the identity of data (blocks), how a disk is cut into it (chunking), how it is kept and sent (frames),
//! how it says what stands where (pages and recipes), in which order a job reads it (plans), and the traits at
//! which the crates that do the work meet ([`DiskRead`], [`DiskWrite`], [`FrameSource`], [`FrameStore`]).
//!
//! A crate of its own so that its manifest enforces what matters: no I/O, no threads, no clocks, nothing of the
//! operating system. Every format here is read and written in one file, documented in `docs/formats/`, frozen by
//! golden vectors, and fuzzed: it must never panic, nor allocate more than a stated cap, whatever the bytes.

mod block_id;
pub mod chunking;
mod device;
mod error;
mod extent;
pub mod frame;
pub mod page;
pub mod plan;
pub mod recipe;
mod source;

pub use block_id::{BlockId, Domain, Kind, Score};
pub use device::{DiskRead, DiskWrite, SECTOR};
pub use error::{Error, ErrorKind, IoContext, Result};
pub use extent::{Extent, Extents};
pub use source::{BlockPlace, FrameAddress, FrameSource, FrameStore, Pin, PinSet, header_of, judged, locate};
