//! Block devices and regular files of the machine, as devices that are read ([`Source`]) and written ([`Target`]).
//!
//! Both forms are opened by path, and a symbolic link stands for what it leads to. Whether a device may be used at
//! all is decided elsewhere, before: see [`crate::refusal`]. Nothing here knows what the bytes mean.

mod bad_sectors;
mod holes;
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
pub use source::Source;
pub use target::{Target, TargetOptions};
pub use watch::Watch;

/// Which device or file stands at a path. Names are given to others; these numbers are not while somebody has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing that could be a disk.
    Nothing,
    /// A block device.
    Block {
        /// Its number, as `stat` gives it.
        number: u64,
    },
    /// A regular file.
    Regular {
        /// The number of its file system.
        filesystem: u64,
        /// Its inode.
        inode: u64,
    },
}

impl Identity {
    /// What these are the metadata of.
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

/// What a path leads to, as far as it can hold a disk.
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

/// What a file is that cannot be a disk.
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

/// The length in bytes and the logical sector size of an open block device.
pub(crate) fn block_geometry(file: &File, path: &Path) -> Result<(u64, u32)> {
    let sector = rustix::fs::ioctl_blksszget(file)
        .map_err(io::Error::from)
        .context(|| format!("asking {} for its sector size", path.display()))?;
    if !matches!(sector, 512 | 4096) {
        return Err(Error::refused(format!(
            "{} has sectors of {sector} bytes: only 512 and 4096 are known",
            path.display()
        )));
    }
    let length = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
        .map_err(io::Error::from)
        .context(|| format!("asking {} for its length", path.display()))?;
    Ok((length, sector))
}
