//! Takes the catalog's packs into the index of this process.
//!
//! A pack counts as covered by the index on disk if the index has as many blocks for it as the catalog says, and its file exists. The
//! footers of all others are read into memory. A writer first adds packs to the index on disk if those that are missing there are
//! many, so that its memory stays bounded when the index is made anew.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use platter_image::{IoContext, Result};
use platter_index::Snapshot;
use platter_vfs::VfsFile;

use super::cover::is_listed;
use crate::catalog::{PackRow, PackState};
use crate::store::Shared;
use platter_pack::{PackDirectory, read_directory, scanned_directory};
use platter_records::PackId;

/// Maximum number of pack directories that were read and wait to be indexed.
const DIRECTORIES_WAITING: usize = 2;
/// Maximum number of blocks for which the catalog's counts may reserve space in memory.
const RESERVE_MAX: u64 = 1 << 26;

impl Shared {
    /// Opens the packs that are new in the catalog. Live packs come first: of a block's copies, one in a live pack is found.
    /// Opened packs stay open under their ordinals. Dead packs are opened, too: what was forgotten can be read until their files are
    /// deleted.
    pub(crate) fn open_packs(&self, rows: &[PackRow]) -> Result<()> {
        self.keep_collected(rows)?;
        let mut known: Vec<PackId> = self.packs.all().iter().map(|pack| pack.id).collect();
        known.sort_unstable();
        let mut new: Vec<&PackRow> = rows.iter().collect();
        new.retain(|row| known.binary_search(&row.id).is_err());
        if !new.is_empty() {
            let snapshot = self.newest_snapshot(rows);
            let covered = self.open_covered(&new, snapshot.as_deref())?;
            new.retain(|row| !covered.contains(&row.id));
            for state in [PackState::Live, PackState::Condemned, PackState::Dead] {
                let mut new: Vec<&PackRow> = new.iter().copied().filter(|row| row.state == state).collect();
                if state == PackState::Dead {
                    let is_there =
                        |row: &&PackRow| self.place.vfs().exists(&self.place.pack(row.id)).unwrap_or(false);
                    new.retain(is_there);
                }
                self.open_in_memory(&new)?;
            }
            if let Some(snapshot) = snapshot {
                self.adopt(rows, snapshot);
            }
        }
        self.follow_states(rows)
    }

    /// Moves packs into memory that were collected since: the index on disk will not have them any more, but whoever planned their
    /// frames may still read them.
    fn keep_collected(&self, rows: &[PackRow]) -> Result<()> {
        let collected: HashSet<PackId> =
            rows.iter().filter(|row| !is_listed(row.state)).map(|row| row.id).collect();
        if collected.is_empty() {
            return Ok(());
        }
        let packs = self.packs.all();
        let mut gone = packs.iter().zip(0..).filter(|(pack, _)| collected.contains(&pack.id));
        gone.try_for_each(|(_, ordinal)| self.take_into_memory(ordinal))
    }

    /// Returns the newest index on disk; a writer adds packs to it. `None`: there is none, or it cannot be read.
    fn newest_snapshot(&self, rows: &[PackRow]) -> Option<Arc<Snapshot>> {
        let current = self.index.read().snapshot().cloned();
        let opened = self.with_folder(|folder| folder.open(current.as_ref()));
        let snapshot = opened.unwrap_or_else(|error| {
            self.note_damage(format!(
                "the block index cannot be read, so it is not used; the next writer makes it again: {}",
                error.with_causes()
            ));
            self.index_is_broken.store(true, std::sync::atomic::Ordering::Relaxed);
            None
        });
        let Some(writer) = &self.writer else { return snapshot };
        let Some(_one) = writer.indexing.try_lock() else { return snapshot };
        self.cover(snapshot.clone(), rows).or(snapshot)
    }

    /// Opens new packs that the index on disk covers. Returns their ids.
    fn open_covered(&self, new: &[&PackRow], snapshot: Option<&Snapshot>) -> Result<HashSet<PackId>> {
        let Some(snapshot) = snapshot else { return Ok(HashSet::new()) };
        let blocks: HashMap<PackId, u64> =
            snapshot.packs().iter().map(|pack| (pack.id, u64::from(pack.blocks))).collect();
        let is_covered = |row: &&&PackRow| is_listed(row.state) && blocks.get(&row.id) == Some(&row.blocks);
        let covered: Vec<&PackRow> = new.iter().filter(is_covered).copied().collect();
        if covered.is_empty() {
            return Ok(HashSet::new());
        }
        let files: HashSet<PackId> = self.place.list_packs()?.into_iter().collect();
        let (mut bad, mut opened) = (Vec::new(), HashSet::new());
        // Without its file, a pack is opened as others are, which notes the damage.
        for row in covered.iter().filter(|row| files.contains(&row.id)) {
            let ordinal = self.packs.add(row.id, row.state);
            bad.extend(self.known_bad(ordinal, row.id));
            opened.insert(row.id);
        }
        self.index.write().condemn(&bad);
        Ok(opened)
    }

    /// Opens new packs by their footers.
    fn open_in_memory(&self, new: &[&PackRow]) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let (blocks, frames) = new.iter().fold((0, 0), |sum, row| (sum.0 + row.blocks, sum.1 + row.frames));
        let mut index = self.index.write();
        // The catalog's counts are only a hint, so they are limited.
        index.reserve(blocks.min(RESERVE_MAX) as usize, frames.min(RESERVE_MAX) as usize);
        thread::scope(|scope| {
            let (directory_out, directories) = sync_channel(DIRECTORIES_WAITING);
            // Sending fails only if the receiver stopped early. The receiver then returns the error.
            let open = |row: &&PackRow| (**row, self.directory_or_frames(row.id, self.packs.open(row.id)));
            let read = move || new.iter().try_for_each(|row| directory_out.send(open(row)).ok());
            let started = thread::Builder::new().spawn_scoped(scope, read);
            started.context(|| "starting a thread".into())?;
            directories.iter().try_for_each(|(row, directory)| {
                // A pack that could not be read for a reason of this process stays unknown, and is tried again.
                let directory = directory?;
                let ordinal = self.packs.add(row.id, row.state);
                if directory.blocks() as u64 != row.blocks {
                    index.never_cover(ordinal);
                }
                index.condemn(&self.known_bad(ordinal, row.id));
                index.push_pack(ordinal, &directory)
            })
        })
    }

    /// Returns the frames of a pack that are known to be bad.
    fn known_bad(&self, ordinal: u32, id: PackId) -> Vec<(u32, u64)> {
        let health = self.health();
        let known = health.pack(id).into_iter().flat_map(|known| known.bad.keys());
        known.map(|offset| (ordinal, *offset)).collect()
    }

    /// Takes over the states of packs that another process changed, and finds blocks in packs that stay. A writer knows better than
    /// the catalog: what it has rescued is not committed yet.
    fn follow_states(&self, rows: &[PackRow]) -> Result<()> {
        let packs = self.packs.all();
        let ordinals: HashMap<PackId, u32> =
            packs.iter().enumerate().map(|(number, pack)| (pack.id, number as u32)).collect();
        let mut given_up = BTreeSet::new();
        let mut index = self.index.write();
        for (row, ordinal) in rows.iter().filter_map(|row| Some((row, *ordinals.get(&row.id)?))) {
            let pack = self.packs.get(ordinal)?;
            if self.writer.is_none() {
                pack.set_state(row.state);
            }
            match pack.state() {
                PackState::Open | PackState::Live => index.promote(ordinal),
                PackState::Condemned | PackState::Dead | PackState::Deleted => {
                    given_up.insert(ordinal);
                }
            }
            if pack.state() == PackState::Deleted {
                self.packs.close(ordinal);
            }
        }
        if !given_up.is_empty() {
            index.demote(&given_up);
        }
        Ok(())
    }

    /// Reads the directory of a pack, as far as possible: from its footer, or from its frames.
    ///
    /// # Errors
    /// Only if this process lacks what it needs to read the file.
    pub(super) fn directory_or_frames(
        &self,
        id: PackId,
        file: Result<Arc<dyn VfsFile>>,
    ) -> Result<PackDirectory> {
        let directory = file.and_then(|file| {
            read_directory(&*file, id, self.id).or_else(|error| {
                if error.is_of_process() {
                    return Err(error);
                }
                self.note_damage(format!("pack {id}: {}", error.with_causes()));
                scanned_directory(&*file)
            })
        });
        directory.or_else(|error| {
            if error.is_of_process() {
                return Err(error.within(format!("opening pack {id}")));
            }
            self.note_damage(format!("pack {id} is unreadable: {}", error.with_causes()));
            Ok(PackDirectory::default())
        })
    }
}
