//! A mount that moves to the next process: its device, and the files and directories that programs have open.
//!
//! The kernel refers to nodes by number, so the next process's tree must use the same numbers. The next process opens each
//! file again with the same access. An open directory keeps the names that a program is reading.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use platter_image::{Error, Result};
use platter_transport::Parcel;
use serde::{Deserialize, Serialize};

use crate::moved::{from_text, to_text};
use crate::tree::{Access, Node, NodeId};

/// A mount as one process describes it to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseState {
    pub(super) mount_point: PathBuf,
    /// Device number of the mount, `major:minor`.
    pub(super) device: String,
    /// The kernel's FUSE_INIT request, which the next process replays.
    pub(super) init: Vec<u8>,
    pub(super) handles: HandlesState,
}

/// The nodes that programs have open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandlesState {
    /// The number of the next handle.
    pub(super) next: u64,
    pub(super) files: Vec<(u64, NodeId, Access)>,
    /// Handle, node and, once a program has read some, the names.
    pub(super) directories: Vec<(u64, NodeId, Option<DirectoryNames>)>,
}

/// The names of an open directory, in the order in which programs read them.
pub(super) type DirectoryNames = Vec<(String, Node)>;

/// A mount without a server. The threads of the previous process never read again, so that process must exit.
pub struct FuseHandover {
    pub(super) state: FuseState,
    pub(super) device: OwnedFd,
}

impl FuseState {
    /// The state as text.
    ///
    /// # Errors
    /// `Bug`.
    pub fn to_text(&self) -> Result<String> {
        to_text(self)
    }

    /// Reads text that [`FuseState::to_text`] made.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_text(text: &str) -> Result<Self> {
        from_text(text)
    }
}

impl FuseHandover {
    /// Receives the result of [`FuseServer::to_parcel`](super::FuseServer::to_parcel).
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_parcel(parcel: Parcel) -> Result<Self> {
        let [device] = <[OwnedFd; 1]>::try_from(parcel.descriptors)
            .map_err(|_| Error::corrupt("a moved mount must have exactly one device"))?;
        let text =
            str::from_utf8(&parcel.bytes).map_err(|_| Error::corrupt("a mount's state is not UTF-8"))?;
        Ok(Self { state: FuseState::from_text(text)?, device })
    }
}
