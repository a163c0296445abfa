//! What a disk image is: the vocabulary of all other crates.
//!
//! It defines blocks (the identity of data), chunking (how a disk is cut into blocks), frames (how blocks are
//! stored and sent), pages and recipes (what stands where on a disk), plans (the order in which a job reads
//! frames), and the traits that connect the working crates ([`DiskRead`], [`DiskWrite`], [`FrameSource`],
//! [`FrameStore`]).
//!
//! It is a crate of its own so that its manifest enforces purity: no I/O, threads, clocks or operating system
//! calls. Each format is read and written in one file, documented in `docs/formats/`, frozen by golden
//! vectors, and fuzzed: no input may cause a panic or an allocation above a stated limit.

mod block_id;
pub mod chunking;
mod cipher;
mod device;
mod domain;
mod error;
mod extent;
pub mod fields;
pub mod frame;
mod lease;
pub mod page;
pub mod plan;
pub mod recipe;
mod source;

pub use block_id::{BlockId, Kind, Score};
pub use device::{DiskRead, DiskWrite, SECTOR};
pub use domain::{Domain, DomainKeys, EXPORTED_KEYS_LENGTH, MASTER_KEY_LENGTH};
pub use error::{Error, ErrorKind, IoContext, Result};
pub use extent::{Extent, Extents};
pub use lease::{HeldFrame, Lease};
pub use source::{
    BlockPlace, FrameAddress, FrameIndex, FrameSource, FrameStore, Pin, PinSet, header_of, judged, lease,
    locate,
};
