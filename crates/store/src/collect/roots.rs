//! The roots: everything whose blocks must stay. Versions and boot sets come from the catalog, in one snapshot. The scores that
//! readers registered and that overlays stand on are read after it (`docs/design.md`, pins: why this order misses none).

use std::collections::BTreeSet;

use platter_image::{BlockId, Result, Score};

use crate::catalog::CatalogRoots;
use crate::place::StorePlace;
use crate::readers::{MoreRoots, registered};
use platter_records::Version;

/// The roots of marking: what they refer to must stay.
#[derive(Debug)]
pub(crate) struct Roots {
    pub(super) versions: Vec<Version>,
    pub(super) boot_sets: BTreeSet<BlockId>,
    /// Scores that need not have a version: of readers and overlays.
    pub(super) held: BTreeSet<Score>,
}

impl Roots {
    /// Completes a snapshot of the catalog by what is held outside of it now.
    pub(super) fn complete(
        versions: Vec<Version>,
        boot_sets: BTreeSet<BlockId>,
        place: &StorePlace,
        more: MoreRoots<'_>,
    ) -> Result<Self> {
        let mut held = registered(place)?;
        held.extend(more()?);
        Ok(Self { versions, boot_sets, held })
    }

    /// As [`Roots::complete`], for a snapshot whose packs do not matter.
    pub(super) fn of(found: CatalogRoots, place: &StorePlace, more: MoreRoots<'_>) -> Result<Self> {
        Self::complete(found.versions, found.boot_sets, place, more)
    }

    /// Returns all scores.
    pub(super) fn scores(&self) -> BTreeSet<Score> {
        self.versions.iter().map(|version| version.record.score).chain(self.held.iter().copied()).collect()
    }
}
