//! Block devices and regular files of this machine, for reading ([`Source`]) and writing ([`Target`]).
//!
//! Both are opened by path, and symbolic links are followed. Whether a device may be used at all is decided
//! before, in [`crate::refusal`]. Nothing here interprets the bytes. `loop_device`
//! makes a device of a range of them.

mod bad_sectors;
mod holes;
mod loop_device;
mod source;
mod target;
mod watch;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use platter_image::{Error, IoContext, Result};

pub use bad_sectors::{Salvaged, SectorRead};
pub(crate) use holes::has_data;
pub use loop_device::{LoopDevice, end_with_us};
pub use source::Source;
pub use target::{Target, TargetOptions};
pub use watch::Watch;

/// The device or file at a path. Names can be reassigned; these numbers cannot while someone holds it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing that can be a disk.
    Nothing,
    /// A block device.
    Block {
        /// Its device number as in `stat`.
        number: u64,
    },
    /// A regular file.
    Regular {
        /// The device number of its filesystem.
        filesystem: u64,
        /// Its inode number.
        inode: u64,
    },
}

impl Identity {
    /// The identity of the device or file with this metadata.
    pub(crate) fn of(metadata: Option<&std::fs::Metadata>) -> Self {
        match metadata {
            Some(metadata) if metadata.file_type().is_block_device() => {
                Self::Block { number: metadata.rdev() }
            }
            Some(metadata) if metadata.is_file() => {
                Self::Regular { filesystem: metadata.dev(), inode: metadata.ino() }
            }
            _ => Self::Nothing,
        }
    }
}

/// The kinds of files that can be a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Block,
    Regular,
}

impl NodeKind {
    /// The kind of an open file.
    ///
    /// # Errors
    /// `Refused` if it is neither a block device nor a regular file.
    pub(crate) fn of(metadata: &std::fs::Metadata, path: &Path) -> Result<Self> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            return Ok(Self::Block);
        }
        if kind.is_file() {
            return Ok(Self::Regular);
        }
        Err(Error::refused(format!(
            "{} is {}: a disk is a block device or a regular file",
            path.display(),
            describe(kind)
        )))
    }
}

/// A description of a file that cannot be a disk.
pub(crate) fn describe(kind: std::fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "neither a block device nor a regular file"
    }
}

/// The length and the logical sector size of an open block device, in bytes.
pub(crate) fn block_geometry(file: &File, path: &Path) -> Result<(u64, u32)> {
    let sector = rustix::fs::ioctl_blksszget(file)
        .map_err(io::Error::from)
        .context(|| format!("reading the sector size of {}", path.display()))?;
    if !matches!(sector, 512 | 4096) {
        return Err(Error::refused(format!(
            "{} has sectors of {sector} bytes: only 512 and 4096 are supported",
            path.display()
        )));
    }
    let length = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
        .map_err(io::Error::from)
        .context(|| format!("reading the length of {}", path.display()))?;
    Ok((length, sector))
}
