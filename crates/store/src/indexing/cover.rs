//! Adds packs to the index on disk.
//!
//! Packs are added from their footers, after the catalog's commit, and only if they have become many: a small commit writes no
//! index. Whatever fails here is only noted, because the index is a cache: the packs stay in memory, and the next commit tries
//! again. On a full disk, collections and everything else go on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_image::{Error, IoContext, Result};
use platter_index::{IndexFolder, NewPack, Snapshot, entries_of};
use platter_vfs::OpenMode;

use crate::catalog::{PackRow, PackState};
use crate::store::Shared;
use platter_pack::read_directory;
use platter_records::PackId;

/// Maximum number of blocks that are added in one step. Each needs 56 bytes of memory.
const STEP_BLOCKS_MAX: u64 = 512 << 10;

impl Shared {
    /// The directory of the index on disk.
    pub(super) fn with_folder<T>(&self, call: impl FnOnce(IndexFolder<'_>) -> T) -> T {
        let (dir, memory) = (self.place.index_dir(), self.place.index_limits().memory);
        call(IndexFolder::new(self.place.vfs(), &dir, self.id, memory))
    }

    /// Adds the packs in memory to the index on disk, if they are many. Reports no error: what cannot be written stays in memory.
    pub(crate) fn cover_packs(&self) {
        let Some(writer) = &self.writer else { return };
        // The other one covers what the catalog lists now.
        let Some(_one) = writer.indexing.try_lock() else { return };
        let limits = self.place.index_limits();
        let is_little = {
            let index = self.index.read();
            let memory = index.in_memory();
            (memory.len() as u64) < limits.blocks && memory.packs().count() < limits.packs
        };
        if is_little && !self.index_is_broken.load(Ordering::Relaxed) {
            return;
        }
        let Ok(rows) = self.packs_of_catalog() else { return };
        let base = self.index.read().snapshot().cloned();
        if let Some(snapshot) = self.cover(base, &rows) {
            self.adopt(&rows, snapshot);
        }
    }

    /// Adds the catalog's packs to the index on disk, if those that are not covered are many. Returns the new index.
    /// The caller holds the lock of the one that covers packs.
    pub(super) fn cover(&self, mut base: Option<Arc<Snapshot>>, rows: &[PackRow]) -> Option<Arc<Snapshot>> {
        if self.index_is_broken.swap(false, Ordering::Relaxed) {
            // If it stays, the next reader notices the damage again.
            let _ = self.with_folder(|folder| folder.remove());
            base = None;
        }
        match self.cover_from(base, rows) {
            Ok(covered) => covered,
            Err(error) => {
                self.note_index(&error);
                None
            }
        }
    }

    fn cover_from(&self, mut base: Option<Arc<Snapshot>>, rows: &[PackRow]) -> Result<Option<Arc<Snapshot>>> {
        let known: HashMap<PackId, u64> =
            base.iter().flat_map(|base| base.packs()).map(|pack| (pack.id, u64::from(pack.blocks))).collect();
        let excluded = self.excluded();
        let is_new = |row: &&PackRow| {
            row.state == PackState::Live
                && known.get(&row.id) != Some(&row.blocks)
                && !excluded.contains(&row.id)
        };
        let mut new = rows.iter().filter(is_new).peekable();
        let limits = self.place.index_limits();
        let (blocks, packs) =
            new.clone().fold((0, 0), |(blocks, packs), row| (blocks + row.blocks, packs + 1));
        if packs == 0 || blocks < limits.blocks && packs < limits.packs {
            return Ok(None);
        }
        // A pack with another number of blocks than the index has is added anew.
        let is_same = |row: &&PackRow| is_listed(row.state) && known.get(&row.id) == Some(&row.blocks);
        let mut kept: HashSet<PackId> = rows.iter().filter(is_same).map(|row| row.id).collect();
        while new.peek().is_some() {
            let (mut step, mut blocks) = (Vec::new(), 0);
            while let Some(row) = new.next_if(|row| step.is_empty() || blocks + row.blocks <= STEP_BLOCKS_MAX)
            {
                blocks += row.blocks;
                step.extend(self.entries_of(row));
            }
            let added: Vec<PackId> = step.iter().map(|pack| pack.id).collect();
            let keeps = |pack: PackId| kept.contains(&pack);
            base = Some(self.with_folder(|folder| folder.add(base.as_ref(), step, &keeps))?);
            kept.extend(added);
        }
        Ok(base)
    }

    /// Reads the blocks of a pack from its footer; `None` if that is damaged or does not match the catalog.
    fn entries_of(&self, row: &PackRow) -> Option<NewPack> {
        let read = || {
            let path = self.place.pack(row.id);
            let file = self.place.vfs().open(&path, OpenMode::Read);
            let file = file.context(|| format!("opening {}", path.display()))?;
            read_directory(&*file, row.id, self.id)
        };
        // Whoever opens the pack reports the damage.
        let directory = read().ok().filter(|directory| directory.blocks() as u64 == row.blocks)?;
        Some(NewPack { id: row.id, entries: entries_of(&directory) })
    }

    /// Returns the packs that the index on disk must not cover.
    fn excluded(&self) -> HashSet<PackId> {
        let (packs, index) = (self.packs.all(), self.index.read());
        let excluded = packs.iter().zip(0..).filter(|(_, ordinal)| index.is_only_in_memory(*ordinal));
        excluded.map(|(pack, _)| pack.id).collect()
    }

    /// Uses an index on disk for the catalog's packs that it covers.
    pub(super) fn adopt(&self, rows: &[PackRow], snapshot: Arc<Snapshot>) {
        let ordinals: HashMap<PackId, u32> =
            self.packs.all().iter().zip(0..).map(|(pack, ordinal)| (pack.id, ordinal)).collect();
        let rows: HashMap<PackId, &PackRow> =
            rows.iter().filter(|row| is_listed(row.state)).map(|row| (row.id, row)).collect();
        let used = snapshot
            .packs()
            .iter()
            .filter(|pack| rows.get(&pack.id).is_some_and(|row| row.blocks == u64::from(pack.blocks)));
        let used = used.filter_map(|pack| Some((pack.number, *ordinals.get(&pack.id)?))).collect();
        self.index.write().adopt(snapshot, used);
    }

    /// Notes that the index on disk could not be written.
    pub(super) fn note_index(&self, error: &Error) {
        self.note_damage(format!(
            "the block index could not be written, so new packs stay in memory: {}",
            error.with_causes()
        ));
        if error.kind() == platter_image::ErrorKind::Corrupt {
            // A segment that was to be merged is damaged.
            let _ = self.go_on_in_memory(error);
        }
    }
}

/// Returns whether the index on disk may cover a pack in that state.
pub(super) fn is_listed(state: PackState) -> bool {
    matches!(state, PackState::Live | PackState::Condemned)
}
