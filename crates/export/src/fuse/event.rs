//! Events of a running server. The library prints nothing; its caller decides what to print.

use std::path::Path;

use platter_image::{Error, Extent};

use crate::tree::NodeId;

/// Something happened.
#[derive(Clone, Copy, Debug)]
pub enum FuseEvent<'a> {
    /// The stale mount of a dead server was removed.
    StaleUnmounted {
        /// The mount point.
        mount_point: &'a Path,
    },
    /// The tree is mounted.
    Mounted {
        /// The mount point.
        mount_point: &'a Path,
    },
    /// The kernel refused passthrough of plain files, so the server reads them. Reported once.
    PassthroughRefused {
        /// The first refused file.
        node: NodeId,
        /// The error.
        error: &'a Error,
    },
    /// A request failed because of the tree; the program got an error number.
    RequestFailed {
        /// The file or directory.
        node: NodeId,
        /// The range, if any.
        range: Option<Extent>,
        /// The error.
        error: &'a Error,
    },
    /// The mount was still in use at shutdown: it is unmounted anyway, and open files are cut off.
    Busy {
        /// The mount point.
        mount_point: &'a Path,
    },
    /// The tree was unmounted.
    Unmounted {
        /// The mount point.
        mount_point: &'a Path,
    },
}
