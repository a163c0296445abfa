//! The state that the actors of the model share: the disk, the catalog, and the memory of the one writing process.

use platter_records::PackState;

use super::actor::{Actor, Writing};

/// Packs that a schedule can use. Ids are never used again, as in the store.
pub(super) const PACKS: usize = 10;
/// Images, each with at most one version.
pub(super) const NAMES: usize = 3;

/// Readers in other processes.
pub(super) const READERS: usize = 2;

/// A set of blocks or packs, one bit each.
pub(super) type Set = u16;

/// A recheck or an order that the model leaves out, to show that it then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// Condemning ignores pins.
    CondemnPinned,
    /// Condemning does not mark versions that were published since the snapshot.
    NoDelta,
    /// Condemning does not check again that the other copies of live blocks are in live packs.
    NoCopyCheck,
    /// Condemning takes packs that are already dead.
    CondemnDead,
    /// Condemned packs become dead although they were rescued meanwhile.
    KillRescued,
    /// A lookup pins a condemned pack, but does not return it to live.
    NoRescue,
    /// A lookup pins a dead pack.
    PinDead,
    /// A clone is published without looking whether its version still exists.
    CloneUnchecked,
    /// A session ends its pins before its commit.
    UnpinBeforeCommit,
    /// The files are deleted before the catalog says that they are dead.
    DeleteBeforeDead,
    /// The files of all chosen packs are deleted, whatever the catalog says.
    DeleteUndead,
    /// The trash is emptied before the marking, which finds that something in it is needed.
    TrashBeforeMark,
    /// Nothing inspects the condemned packs. Shown with a marking that misses a block.
    NoInspection,
    /// The inspection does not read the other copies.
    TrustCopies,
    /// Packs that an interrupted collection condemned become dead without being marked again.
    TrustOldCondemned,
    /// A reader looks for its version before it registers.
    RegisterLate,
    /// A reader does not look for its version after it registered.
    NoConfirmation,
    /// Condemning does not look for readers that registered since the snapshot, nor does the inspection.
    NoLateReaders,
}

impl Mutation {
    pub(super) const ALL: [Self; 18] = [
        Self::CondemnPinned,
        Self::NoDelta,
        Self::NoCopyCheck,
        Self::CondemnDead,
        Self::KillRescued,
        Self::NoRescue,
        Self::PinDead,
        Self::CloneUnchecked,
        Self::UnpinBeforeCommit,
        Self::DeleteBeforeDead,
        Self::DeleteUndead,
        Self::TrashBeforeMark,
        Self::NoInspection,
        Self::TrustCopies,
        Self::TrustOldCondemned,
        Self::RegisterLate,
        Self::NoConfirmation,
        Self::NoLateReaders,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// The catalog's rows of packs; `Open`: there is none.
    pub(super) rows: [PackState; PACKS],
    /// The blocks of each pack.
    pub(super) blocks: [Set; PACKS],
    /// The blocks of each pack that are damaged, which nobody has noticed.
    pub(super) rotten: [Set; PACKS],
    /// Blocks of versions that only a dead pack has, by an error of the past.
    pub(super) misplaced: Set,
    /// The marking of collectors has an error: it misses these blocks.
    pub(super) unmarked: Set,
    /// The packs whose files exist, in place or in the trash.
    pub(super) files: Set,
    /// The blocks of each image's version; 0: there is none.
    pub(super) versions: [Set; NAMES],
    /// The versions that readers registered, by the reader.
    pub(super) registered: [Set; READERS],
    /// What the writing process believes of the packs it knows.
    pub(super) memory: [PackState; PACKS],
    /// The packs that the writing process knows.
    pub(super) known: Set,
    /// The actors that pin each pack.
    pub(super) pins: [Set; PACKS],
    pub(super) packs: usize,
    /// A step that needs the catalog is under way.
    pub(super) is_catalog_locked: bool,
    pub(super) crashes_left: u8,
    pub(super) actors: Vec<Actor>,
}

/// A promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation(pub(super) String);

pub(super) fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..Set::BITS as usize).filter(move |at| set & (1 << at) != 0)
}

impl World {
    /// A store with these packs, all live, and these versions.
    pub(super) fn new(packs: &[Set], versions: [Set; NAMES], actors: Vec<Actor>, crashes: u8) -> Self {
        let mut world = Self {
            rows: [PackState::Open; PACKS],
            blocks: [0; PACKS],
            rotten: [0; PACKS],
            misplaced: 0,
            unmarked: 0,
            files: 0,
            versions,
            registered: [0; READERS],
            memory: [PackState::Open; PACKS],
            known: 0,
            pins: [0; PACKS],
            packs: 0,
            is_catalog_locked: false,
            crashes_left: crashes,
            actors,
        };
        for blocks in packs {
            let pack = world.add_pack(*blocks).unwrap_or_default();
            world.rows[pack] = PackState::Live;
            world.memory[pack] = PackState::Live;
        }
        world
    }

    /// Adds an open pack; `None` when there are as many as the model has.
    pub(super) fn add_pack(&mut self, blocks: Set) -> Option<usize> {
        let pack = self.packs;
        if pack == PACKS {
            return None;
        }
        self.packs += 1;
        self.blocks[pack] = blocks;
        self.files |= 1 << pack;
        self.known |= 1 << pack;
        Some(pack)
    }

    pub(super) fn is_pinned(&self, pack: usize) -> bool {
        self.pins[pack] != 0
    }

    /// The blocks that packs in state live hold, except those packs.
    pub(super) fn copies_beside(&self, except: Set) -> Set {
        let live = |pack: &usize| {
            self.memory[*pack] == PackState::Live
                && self.rows[*pack] != PackState::Open
                && except & (1 << pack) == 0
        };
        members(self.known).filter(live).fold(0, |all, pack| all | self.blocks[pack])
    }

    /// The blocks of which a pack that stays has a sound copy.
    pub(super) fn sound(&self) -> Set {
        let stays = |pack: &usize| {
            self.files & (1 << pack) != 0
                && matches!(self.rows[*pack], PackState::Live | PackState::Condemned)
        };
        (0..self.packs).filter(stays).fold(0, |all, pack| all | self.blocks[pack] & !self.rotten[pack])
    }

    /// The process dies and starts again: what was only in memory is gone. A version whose record was durable is completed.
    pub(super) fn crash(&mut self) {
        self.crashes_left -= 1;
        self.is_catalog_locked = false;
        for actor in self.actors.clone() {
            if let Actor::Writer { name, wants, at: Writing::Committing { own } } = actor {
                self.versions[name] = wants;
                own.into_iter().for_each(|pack| self.rows[pack] = PackState::Live);
            }
        }
        self.pins = [0; PACKS];
        self.memory = self.rows;
        self.known = members(self.files)
            .filter(|pack| self.rows[*pack] != PackState::Open)
            .fold(0, |all, pack| all | 1 << pack);
        self.actors.iter_mut().for_each(Actor::restart);
    }

    /// Checks what must hold after every step.
    pub(super) fn check(&self) -> Result<(), Violation> {
        for blocks in self.versions {
            for block in members(blocks) {
                let holds = |pack: usize| {
                    self.blocks[pack] & (1 << block) != 0
                        && self.files & (1 << pack) != 0
                        && (matches!(self.rows[pack], PackState::Live | PackState::Condemned)
                            || self.misplaced & (1 << block) != 0)
                };
                if !(0..self.packs).any(holds) {
                    return Err(Violation(format!("block {block} of a version is in no pack that stays")));
                }
            }
        }
        for pack in 0..self.packs {
            let is_gone = self.files & (1 << pack) == 0;
            if is_gone && !matches!(self.rows[pack], PackState::Dead | PackState::Deleted | PackState::Open) {
                return Err(Violation(format!("pack {pack} was deleted before it was dead")));
            }
        }
        Ok(())
    }
}
