//! The cost of each image: the bytes of blocks that no other image needs, which forgetting it would free.

use std::collections::BTreeMap;

use platter_image::{BlockId, Result};
use serde::Serialize;

use super::mark::Marking;
use crate::catalog::PackState;
use crate::store::Store;
use platter_collection::merge_owners;
use platter_pack::{PackDirectory, read_directory};
use platter_records::ImageName;

/// The cost of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageCost {
    /// The image.
    pub image: String,
    /// Number of its versions.
    pub versions: usize,
    /// Compressed bytes that no other image needs: about what a collection would free if all its versions were forgotten.
    pub exclusive_bytes: u64,
}

impl Store {
    /// Returns what each image costs, ordered by name. Walks all recipes. The bytes of a frame are divided equally among its blocks.
    ///
    /// # Errors
    /// `Missing` or `Corrupt` when a recipe cannot be read; an error when the catalog cannot be read.
    pub fn image_costs(&self) -> Result<Vec<ImageCost>> {
        let versions = self.versions()?;
        let mut images: BTreeMap<ImageName, Vec<_>> = BTreeMap::new();
        for version in versions {
            images.entry(version.name.image.clone()).or_default().push(version);
        }
        let mut owners: Vec<(BlockId, u32)> = Vec::new();
        for (number, (image, versions)) in images.iter().enumerate() {
            let mut marking = Marking::new(self);
            for version in versions {
                marking
                    .version(version.record.score, version.record_id)
                    .map_err(|error| error.within(format!("walking {}@{}", image, version.name.number)))?;
            }
            owners = merge_owners(owners, marking.live(), number as u32);
        }
        let mut bytes = vec![0_u64; images.len()];
        let mut counted = vec![false; owners.len()];
        self.visit_directories(&mut |directory| {
            for (row, ids) in directory?.iter() {
                let share = u64::from(row.packed_length) / ids.len().max(1) as u64;
                for id in ids {
                    let Ok(at) = owners.binary_search_by_key(id, |(id, _)| *id) else { continue };
                    if !std::mem::replace(&mut counted[at], true)
                        && let Some(bytes) = bytes.get_mut(owners[at].1 as usize)
                    {
                        *bytes += share;
                    }
                }
            }
            Ok(())
        })?;
        let costs = images.iter().zip(bytes).map(|((image, versions), exclusive_bytes)| ImageCost {
            image: image.to_string(),
            versions: versions.len(),
            exclusive_bytes,
        });
        Ok(costs.collect())
    }

    /// Calls `visit` with the directory of each live pack: its frames, each with the ids of its blocks. A pack whose directory
    /// cannot be read is an error for `visit`, which decides whether to go on.
    ///
    /// # Errors
    /// Those of `visit`; an error when the catalog cannot be read.
    pub fn visit_directories(
        &self,
        visit: &mut dyn FnMut(Result<PackDirectory>) -> Result<()>,
    ) -> Result<()> {
        let rows = self.catalog()?.packs()?;
        for (ordinal, pack) in self.0.packs.all().iter().enumerate() {
            if rows.iter().any(|row| row.id == pack.id && row.state == PackState::Live) {
                let file = self.0.packs.file(ordinal as u32);
                visit(file.and_then(|file| read_directory(&*file, pack.id, self.id())))?;
            }
        }
        Ok(())
    }
}
