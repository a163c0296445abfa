//! What a server tells while it works. The library prints nothing: whoever runs the server decides.

use std::path::Path;

use platter_image::{Error, Extent};

use crate::tree::NodeId;

/// Something happened.
#[derive(Clone, Copy, Debug)]
pub enum FuseEvent<'a> {
    /// A server that died had left its mount there; it is gone.
    StaleUnmounted {
        /// Where.
        mount_point: &'a Path,
    },
    /// The tree can be used from now on.
    Mounted {
        /// Where.
        mount_point: &'a Path,
    },
    /// The kernel does not read plain files by itself, so the server reads them. Told once.
    PassthroughRefused {
        /// The first file for which it was refused.
        node: NodeId,
        /// Why.
        error: &'a Error,
    },
    /// A request failed by no fault of who asked; he was told, with fewer words.
    RequestFailed {
        /// The file or directory.
        node: NodeId,
        /// Its range, if it was about one.
        range: Option<Extent>,
        /// Why.
        error: &'a Error,
    },
    /// At the end somebody still used it: it is unmounted under him, and what he has open is cut off.
    Busy {
        /// Where.
        mount_point: &'a Path,
    },
    /// The tree is gone.
    Unmounted {
        /// Where.
        mount_point: &'a Path,
    },
}
