//! The context of all files of the tree.

use crate::place::LivePlace;
use crate::sources::Sources;
use platter_fetch::Catalog;

/// The store, and the place on this machine.
pub(super) struct Keep {
    pub(super) place: LivePlace,
    pub(super) sources: Sources,
    pub(super) catalog: Catalog,
    pub(super) tool_version: String,
}
