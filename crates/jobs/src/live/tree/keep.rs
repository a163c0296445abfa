//! What every file of the tree is made with.

use std::sync::Arc;

use platter_image::{Result, Score};
use platter_vdisk::{BlockCache, RecipeDisk};

use crate::OpenStore;
use crate::catalog::Catalog;
use crate::live::disk::open_recipe;
use crate::live::place::LivePlace;

/// The store, wherever it is, and what is on this machine.
pub(super) struct Keep {
    pub(super) place: LivePlace,
    pub(super) store: OpenStore,
    pub(super) catalog: Catalog,
    pub(super) cache: Arc<BlockCache>,
    pub(super) tool_version: String,
}

impl Keep {
    /// The disk of a score.
    pub(super) fn disk(&self, score: Score) -> Result<RecipeDisk> {
        open_recipe(&self.store, &self.cache, score)
    }
}
