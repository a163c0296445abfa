//! Selects the node of this machine that a command uses.

use std::path::PathBuf;

use platter_jobs::{ImageName, Result, StoreLocation};
use platter_live::{LivePlace, node_of_disk, running_node};

use crate::arguments::{Attach, Far, OfNode};

/// Returns the directory of the node that is to serve the disks: the one in the arguments or, if they contain no
/// address to serve at, a running node of the same store. `None`: this process serves them.
///
/// # Errors
/// Errors of locating the store.
pub(crate) fn of_attach(store: &StoreLocation, options: &Attach) -> Result<Option<PathBuf>> {
    let has_address =
        options.nbd.nbd.is_some() || options.tree.fuse.is_some() || options.tree.ninep.is_some();
    match &options.node {
        Some(dir) => Ok(Some(dir.clone())),
        None if has_address => Ok(None),
        None => running_node(&LivePlace::open(store, options.far.overlays.as_deref())?),
    }
}

/// Returns the directory of the node to ask about a disk: the one on the command line, or a running one that keeps the disk's
/// changes. `None`: this process does the work, with the same effect.
///
/// # Errors
/// Errors of locating the store.
pub(crate) fn of_disk(
    store: &StoreLocation,
    node: &OfNode,
    far: &Far,
    disk: &ImageName,
) -> Result<Option<PathBuf>> {
    match (&node.node, store) {
        (Some(dir), _) => Ok(Some(dir.clone())),
        (None, StoreLocation::Local(_)) => Ok(None),
        (None, StoreLocation::Remote(_)) => {
            node_of_disk(&LivePlace::open(store, far.overlays.as_deref())?, disk)
        }
    }
}

/// Returns the place of live disks for a command that works without a node.
///
/// # Errors
/// `Missing` when the named node does not run and no origin is given; errors of locating the store.
pub(crate) fn place_of(store: &StoreLocation, node: &OfNode, far: &Far) -> Result<LivePlace> {
    match &node.node {
        Some(dir) => LivePlace::of_node(store, dir),
        None => LivePlace::open(store, far.overlays.as_deref()),
    }
}
