//! A mount as it moves to the next process: its device, and what programs have open.
//!
//! Nodes are told by their numbers, so the next process's tree has to know them by the same. Files are opened again for the
//! same access; an open directory keeps the names that are being read.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use platter_image::{Error, Result};
use platter_transport::Parcel;
use serde::{Deserialize, Serialize};

use crate::moved::{from_text, to_text};
use crate::tree::{Access, Node, NodeId};

/// What a process says of its mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseState {
    pub(super) mount_point: PathBuf,
    /// Its device, `major:minor`.
    pub(super) device: String,
    /// The kernel's first message.
    pub(super) init: Vec<u8>,
    pub(super) handles: HandlesState,
}

/// What programs have open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandlesState {
    /// The number of the next handle.
    pub(super) next: u64,
    pub(super) files: Vec<(u64, NodeId, Access)>,
    /// Each with its names, if they were read.
    pub(super) directories: Vec<(u64, NodeId, Option<Vec<(String, Node)>>)>,
}

/// What a mount leaves to the next process. The threads of the one before wait for ever: it has to end.
pub struct FuseHandover {
    pub(super) state: FuseState,
    pub(super) device: OwnedFd,
}

impl FuseState {
    /// As text.
    ///
    /// # Errors
    /// `Bug`.
    pub fn to_text(&self) -> Result<String> {
        to_text(self)
    }

    /// What [`FuseState::to_text`] made.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_text(text: &str) -> Result<Self> {
        from_text(text)
    }
}

impl FuseHandover {
    /// The other end of [`FuseServer::to_parcel`](super::FuseServer::to_parcel).
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_parcel(parcel: Parcel) -> Result<Self> {
        let [device] = <[OwnedFd; 1]>::try_from(parcel.descriptors)
            .map_err(|_| Error::corrupt("a mount that moves has one device"))?;
        let text = str::from_utf8(&parcel.bytes).map_err(|_| Error::corrupt("a mount's state is no text"))?;
        Ok(Self { state: FuseState::from_text(text)?, device })
    }
}
