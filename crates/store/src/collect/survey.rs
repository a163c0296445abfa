//! The needed blocks of each pack. Reads the directories of packs, not the index.
//!
//! Every live block gets a home: one pack that keeps it. Other copies of the block are not needed. Packs with much live data
//! become homes first, so that the others empty out. A bad frame is a home only if no sound frame has the block: the last copy is
//! kept even if it cannot be read today.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use platter_collection::Candidate;
use platter_image::{BlockId, Error, ErrorKind, Kind, Result};

use crate::catalog::{PackRow, PackState};
use crate::check::is_missing_file;
use crate::store::Store;
use platter_pack::{PackDirectory, read_directory};
use platter_records::PackId;

/// A live block without a home.
const NO_HOME: u32 = u32::MAX;

/// One pack.
#[derive(Clone, Debug)]
pub(crate) struct SurveyedPack {
    pub(super) id: PackId,
    pub(super) ordinal: u32,
    pub(super) state: PackState,
    /// Length of the file in bytes.
    pub(super) length: u64,
    /// Bytes of all frames, without records of the catalog's log.
    pub(super) bytes: u64,
    /// Bytes of frames that have a live block.
    pub(super) live: u64,
    /// Bytes of frames for which this pack is a home.
    pub(super) needed: u64,
    /// The packs, by their positions in the survey, that are the homes of live blocks in this one.
    pub(super) relies_on: BTreeSet<usize>,
    /// It has bad frames that must stay because no sound frame has one of their blocks.
    pub(super) has_bad: bool,
}

impl SurveyedPack {
    pub(super) fn candidate(&self) -> Candidate {
        Candidate { id: self.id, length: self.length, bytes: self.bytes, needed: self.needed }
    }
}

/// All packs that can be read or referred to.
#[derive(Debug)]
pub(super) struct Survey<'a> {
    store: &'a Store,
    /// Sorted.
    live: &'a [BlockId],
    homes: Vec<u32>,
    pub(super) packs: Vec<SurveyedPack>,
}

impl<'a> Survey<'a> {
    /// Surveys the packs of a snapshot for these live blocks. `emptied`: packs that compaction has copied; they become homes last.
    pub(super) fn new(
        store: &'a Store,
        live: &'a [BlockId],
        rows: &[PackRow],
        emptied: &BTreeSet<PackId>,
    ) -> Result<Self> {
        let ordinals: HashMap<PackId, u32> =
            store.0.packs.all().iter().enumerate().map(|(number, pack)| (pack.id, number as u32)).collect();
        let listed = rows.iter().filter(|row| matches!(row.state, PackState::Live | PackState::Condemned));
        let packs = listed.map(|row| {
            let ordinal = ordinals.get(&row.id).copied();
            let ordinal = ordinal.ok_or_else(|| Error::bug(format!("pack {} is not open", row.id)))?;
            let relies_on = BTreeSet::new();
            let (id, state, length) = (row.id, row.state, row.length);
            Ok(SurveyedPack {
                id,
                ordinal,
                state,
                length,
                bytes: 0,
                live: 0,
                needed: 0,
                relies_on,
                has_bad: false,
            })
        });
        let packs = packs.collect::<Result<Vec<_>>>()?;
        let mut survey = Self { store, live, homes: vec![NO_HOME; live.len()], packs };
        survey.count_live()?;
        survey.assign_homes(emptied)?;
        Ok(survey)
    }

    /// Returns the position of an id among the live blocks.
    fn position(&self, id: &BlockId) -> Option<usize> {
        self.live.binary_search(id).ok()
    }

    /// Returns a pack's directory. A pack whose directory cannot be read ends the collection.
    pub(super) fn directory(&self, at: usize) -> Result<PackDirectory> {
        let pack = &self.packs[at];
        let file = self.store.0.packs.file(pack.ordinal).map_err(|error| match is_missing_file(&error) {
            true => Error::corrupt(
                "nothing is collected while a pack is missing: `platter check` names the versions that need it, and \
                 `platter rebuild` forgets it if none does",
            )
            .with_source(error),
            false => error,
        })?;
        read_directory(&*file, pack.id, self.store.id())
            .map_err(|error| match error.kind() {
                ErrorKind::Corrupt => error.within(format!(
                    "nothing is collected while pack {} cannot be read: `platter rebuild` writes it again from its sound frames",
                    pack.id
                )),
                _ => error.within(format!("surveying pack {}", pack.id)),
            })
    }

    fn count_live(&mut self) -> Result<()> {
        for at in 0..self.packs.len() {
            let directory = self.directory(at)?;
            let is_live = |ids: &[BlockId]| ids.iter().any(|id| self.position(id).is_some());
            // Records of the catalog's log are copies: sessions add them again after a collection.
            let others = directory.iter().filter(|(row, _)| row.kind != Kind::Change);
            let bytes = others.map(|(row, _)| u64::from(row.packed_length)).sum();
            let live = directory.iter().filter(|(_, ids)| is_live(ids));
            let live = live.map(|(row, _)| u64::from(row.packed_length)).sum();
            (self.packs[at].bytes, self.packs[at].live) = (bytes, live);
        }
        Ok(())
    }

    fn assign_homes(&mut self, emptied: &BTreeSet<PackId>) -> Result<()> {
        let mut order: Vec<usize> = (0..self.packs.len()).collect();
        order.sort_by_key(|at| {
            let pack = &self.packs[*at];
            // In steps of 1/1024, so that of nearly equal packs the longer one stays.
            let share = (pack.live << 10) / pack.length.max(1);
            let is_leaving = pack.state == PackState::Condemned || emptied.contains(&pack.id);
            (is_leaving, Reverse(share), Reverse(pack.length), pack.id)
        });
        for at in &order {
            self.make_home(*at)?;
        }
        self.keep_bad_copies()?;
        if let Some(lost) = self.homes.iter().position(|home| *home == NO_HOME) {
            return Err(Error::corrupt(format!(
                "block {} is needed, but no pack of the store lists it, so nothing is collected: `platter check` tells more",
                self.live[lost]
            )));
        }
        for at in 0..self.packs.len() {
            let directory = self.directory(at)?;
            let homes = directory.iter().flat_map(|(_, ids)| ids).filter_map(|id| self.home(id));
            self.packs[at].relies_on = homes.filter(|home| *home != at).collect();
        }
        Ok(())
    }

    /// Makes a pack the home of all live blocks in its sound frames that have no home yet.
    fn make_home(&mut self, at: usize) -> Result<()> {
        let ordinal = self.packs[at].ordinal;
        for (row, ids) in self.directory(at)?.iter() {
            if self.store.0.is_bad(row.address(ordinal)) {
                continue;
            }
            let mut is_home = false;
            for id in ids {
                if let Some(position) = self.position(id)
                    && self.homes[position] == NO_HOME
                {
                    self.homes[position] = at as u32;
                    is_home = true;
                }
            }
            self.packs[at].needed += if is_home { u64::from(row.packed_length) } else { 0 };
        }
        Ok(())
    }

    /// Keeps every copy of a block that only bad frames have.
    fn keep_bad_copies(&mut self) -> Result<()> {
        let lost: HashSet<usize> = (0..self.homes.len()).filter(|at| self.homes[*at] == NO_HOME).collect();
        for at in 0..self.packs.len() {
            if lost.is_empty() {
                break;
            }
            for (row, ids) in self.directory(at)?.iter() {
                let positions: Vec<usize> = ids.iter().filter_map(|id| self.position(id)).collect();
                let mut kept = positions.into_iter().filter(|position| lost.contains(position)).peekable();
                if kept.peek().is_some() {
                    self.packs[at].needed += u64::from(row.packed_length);
                    self.packs[at].has_bad = true;
                }
                kept.for_each(|position| self.homes[position] = at as u32);
            }
        }
        Ok(())
    }

    /// Returns the home of a block, by its position in the survey; `None` if the block is not live.
    pub(super) fn home(&self, id: &BlockId) -> Option<usize> {
        self.position(id).map(|position| self.homes[position] as usize)
    }

    /// Returns whether a pack must keep a frame.
    pub(super) fn is_needed(&self, at: usize, ids: &[BlockId]) -> bool {
        ids.iter().any(|id| self.home(id) == Some(at))
    }
}
