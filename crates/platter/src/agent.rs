//! Which node of this machine a command talks to.

use std::path::PathBuf;

use platter_jobs::{Result, StoreLocation};
use platter_live::{LivePlace, running_node};

use crate::arguments::{Attach, Far, OfNode};

/// The directory of the node that is to serve what the arguments name: the one that they name, or, where they name no address to
/// serve at, a running one of the same store. `None`: this process serves it.
///
/// # Errors
/// What finding the place of the store says.
pub(crate) fn of_attach(store: &StoreLocation, options: &Attach) -> Result<Option<PathBuf>> {
    let has_address =
        options.nbd.nbd.is_some() || options.tree.fuse.is_some() || options.tree.ninep.is_some();
    match &options.node {
        Some(dir) => Ok(Some(dir.clone())),
        None if has_address => Ok(None),
        None => running_node(&LivePlace::open(store, options.far.overlays.as_deref())?),
    }
}

/// Where a command does by itself what no node does for it.
///
/// # Errors
/// `Missing` when a node is named that does not run, and no origin; what finding the place of the store says.
pub(crate) fn place_of(store: &StoreLocation, node: &OfNode, far: &Far) -> Result<LivePlace> {
    match &node.node {
        Some(dir) => LivePlace::of_node(store, dir),
        None => LivePlace::open(store, far.overlays.as_deref()),
    }
}
