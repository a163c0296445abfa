//! The losses by damage, pack by pack: a check reports one finding for each pack, however many frames and blocks it lost.
//!
//! Damage counts only if it affects a version, a boot set or the catalog's history. Damaged data that nothing needs disappears when a
//! collection rewrites its pack.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use platter_image::{BlockId, Kind};
use platter_pack::FrameRow;
use platter_records::{PackId, VersionName};

use crate::check::{Finding, Severity};
use crate::health::BadPlace;

/// The losses, by pack. `None` stands for blocks that no known pack has.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    packs: BTreeMap<Option<PackId>, Loss>,
    /// Blocks that only bad frames have, each with the pack of one of them.
    only_bad: HashMap<BlockId, PackId>,
    /// The bad frames.
    bad: BTreeSet<BadPlace>,
    /// Not everything that is needed could be read, so nothing counts as unneeded.
    needs_are_unknown: bool,
}

#[derive(Debug, Default)]
struct Loss {
    /// Why the pack could not be opened.
    unopened: Option<String>,
    /// Number of bad frames, and offset and error of the first.
    frames: u64,
    first: Option<(u64, String)>,
    /// Blocks that only its bad frames have.
    blocks: BTreeSet<BlockId>,
    /// It lost records, which stay needed when a version is forgotten.
    has_records: bool,
    /// Blocks that versions need, with the bytes of the disk that they were first needed for.
    needed: BTreeMap<BlockId, u64>,
    versions: BTreeSet<VersionName>,
}

impl Losses {
    /// Adds a pack that cannot be opened.
    pub(crate) fn unopened(&mut self, pack: PackId, why: String) {
        self.packs.entry(Some(pack)).or_default().unopened = Some(why);
    }

    /// Adds a bad frame. `lost` are its blocks that no sound frame has.
    pub(crate) fn bad_frame(&mut self, pack: PackId, row: &FrameRow, why: String, lost: &[BlockId]) {
        let loss = self.packs.entry(Some(pack)).or_default();
        loss.frames += 1;
        loss.first.get_or_insert((row.offset, why));
        loss.has_records |= matches!(row.kind, Kind::Version | Kind::Change) && !lost.is_empty();
        self.bad.insert((pack, row.offset));
        for id in lost {
            self.only_bad.entry(*id).or_insert(pack);
            loss.blocks.insert(*id);
        }
    }

    /// Returns the pack of a bad frame that has the block, if no sound frame has it.
    pub(crate) fn only_bad(&self, id: &BlockId) -> Option<PackId> {
        self.only_bad.get(id).copied()
    }

    /// Returns whether a frame is bad.
    pub(crate) fn is_bad(&self, place: BadPlace) -> bool {
        self.bad.contains(&place)
    }

    /// Notes that not everything could be read that says what is needed.
    pub(crate) fn cannot_tell_needs(&mut self) {
        self.needs_are_unknown = true;
    }

    /// Adds a block that is lost and that a version needs.
    pub(crate) fn needed(&mut self, version: &VersionName, pack: Option<PackId>, id: BlockId, bytes: u64) {
        let loss = self.packs.entry(pack).or_default();
        loss.needed.entry(id).or_insert(bytes);
        if !loss.versions.contains(version) {
            loss.versions.insert(version.clone());
        }
    }

    /// Returns one finding for each pack.
    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        // A bad frame may have the blocks that are nowhere: its footer may list wrong ids.
        let knows_needs = !self.needs_are_unknown && !self.packs.contains_key(&None);
        let packs = std::mem::take(&mut self.packs).into_iter();
        packs.map(|(pack, loss)| loss.finding(pack, knows_needs)).collect()
    }
}

impl Loss {
    fn finding(self, pack: Option<PackId>, knows_needs: bool) -> Finding {
        let is_unneeded = knows_needs && !self.has_records && self.needed.is_empty();
        let is_stored_again = self.blocks.is_empty() && self.needed.is_empty();
        let mut what = match (self.unopened.is_some(), &self.first) {
            (true, _) => self.unopened.clone().unwrap_or_default(),
            (false, None) => "blocks that versions need are in no pack".into(),
            (false, Some((_, why))) if self.frames == 1 => why.clone(),
            (false, Some((_, why))) => format!("{} frames are bad, the first one: {why}", self.frames),
        };
        let severity = match self.unopened.is_none() && self.first.is_some() {
            true if is_stored_again => {
                what += "; all of its blocks were stored again elsewhere";
                Severity::Leak
            }
            true if is_unneeded => {
                what += "; no version needs what is lost: `platter gc` removes it when it rewrites the pack";
                Severity::Leak
            }
            _ => Severity::Damage,
        };
        let blocks = if self.needed.is_empty() { self.blocks.len() } else { self.needed.len() };
        let mut ids = self.needed.keys().chain(&self.blocks);
        Finding {
            severity,
            what,
            pack,
            offset: self.first.map(|(offset, _)| offset),
            block: ids.next().copied().filter(|_| blocks == 1),
            frames: self.frames,
            blocks: blocks as u64,
            bytes: self.needed.values().sum(),
            versions: self.versions.into_iter().collect(),
        }
    }
}
