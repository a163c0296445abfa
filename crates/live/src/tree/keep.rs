//! What every file of the tree is made with.

use crate::place::LivePlace;
use crate::sources::Sources;
use platter_fetch::Catalog;

/// The store, wherever it is, and what is on this machine.
pub(super) struct Keep {
    pub(super) place: LivePlace,
    pub(super) sources: Sources,
    pub(super) catalog: Catalog,
    pub(super) tool_version: String,
}
