//! The collector of the model, in the steps of `collect`.

use platter_records::PackState;

use super::world::{Mutation, NAMES, PACKS, READERS, Set, Violation, World, members};
use crate::decide::{LookupAnswer, lookup, may_condemn, may_delete, may_die};

/// Versions in the catalog, and versions that readers registered.
const ROOTS: usize = NAMES + READERS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Collector {
    at: At,
    /// The roots of the snapshot.
    marked: [Set; ROOTS],
    /// The blocks that they and readers need.
    live: Set,
    /// The packs to give up.
    batch: Set,
    /// The versions when the packs were inspected, and the blocks of them that had a sound copy.
    seen: [Set; NAMES],
    inspected: Set,
    is_proven: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    #[default]
    Snapshot,
    Choose,
    /// Deletes what earlier collections gave up.
    EmptyTrash,
    /// Memory changes under both locks.
    Condemn,
    /// The commit of the same step: lookups can come in between, commits of others cannot.
    CommitCondemned,
    Inspect,
    Kill,
    Delete,
    Done,
}

impl Collector {
    /// Returns whether the next step needs the catalog. The commit of the condemned packs belongs to the step before it, which
    /// has the lock.
    pub(super) fn needs_catalog(&self) -> bool {
        matches!(self.at, At::Snapshot | At::Condemn | At::Inspect | At::Kill)
    }

    pub(super) fn step(&mut self, world: &mut World, mutation: Option<Mutation>) -> Result<bool, Violation> {
        match self.at {
            At::Snapshot => self.mark(world, mutation),
            At::Choose => {
                self.choose(world);
                self.at = At::EmptyTrash;
            }
            At::EmptyTrash => {
                empty_trash(world);
                self.at = At::Condemn;
            }
            At::Condemn => self.condemn(world, mutation),
            At::CommitCondemned => {
                for pack in members(self.batch) {
                    world.rows[pack] = PackState::Condemned;
                }
                world.is_catalog_locked = false;
                self.at = At::Inspect;
            }
            At::Inspect => {
                self.inspect(world, mutation)?;
                if mutation == Some(Mutation::DeleteBeforeDead) {
                    world.files &= !self.batch;
                }
                self.at = At::Kill;
            }
            At::Kill => self.kill(world, mutation)?,
            At::Delete => {
                if mutation == Some(Mutation::DeleteUndead) {
                    world.files &= !self.batch;
                }
                empty_trash(world);
                self.at = At::Done;
            }
            At::Done => return Ok(true),
        }
        Ok(false)
    }

    /// In doubt nothing is collected: something that is needed is in no pack that stays.
    fn mark(&mut self, world: &mut World, mutation: Option<Mutation>) {
        if mutation == Some(Mutation::TrashBeforeMark) {
            empty_trash(world);
        }
        self.marked = roots(world);
        let needed = self.marked.iter().fold(0, |all, blocks| all | blocks);
        let is_kept = |pack: &usize| {
            world.rows[*pack] != PackState::Open && lookup(world.memory[*pack]) != LookupAnswer::Missing
        };
        let here = members(world.known).filter(is_kept).fold(0, |all, pack| all | world.blocks[pack]);
        self.live = needed & !world.unmarked;
        self.at = if needed & !here == 0 { At::Choose } else { At::Done };
    }

    /// Chooses what to give up, without a lock: packs whose live blocks are all in other packs that stay.
    fn choose(&mut self, world: &World) {
        self.batch = 0;
        for pack in members(world.known).filter(|pack| world.rows[*pack] != PackState::Open) {
            let beside = world.copies_beside(self.batch | 1 << pack);
            let is_candidate = matches!(world.memory[pack], PackState::Live | PackState::Condemned);
            if is_candidate && world.blocks[pack] & self.live & !beside == 0 {
                self.batch |= 1 << pack;
            }
        }
    }

    fn condemn(&mut self, world: &mut World, mutation: Option<Mutation>) {
        let is_new = |blocks: &&Set| **blocks != 0 && !self.marked.contains(blocks);
        let is_published = world.versions.iter().any(|blocks| is_new(&blocks));
        let is_read = world.registered.iter().any(|blocks| is_new(&blocks));
        if is_published && mutation != Some(Mutation::NoDelta)
            || is_read && mutation != Some(Mutation::NoLateReaders)
        {
            self.at = At::Snapshot;
            return;
        }
        let mut batch = self.batch;
        for pack in members(self.batch) {
            let needs = world.blocks[pack] & self.live;
            let are_copied =
                needs & !world.copies_beside(batch) == 0 || mutation == Some(Mutation::NoCopyCheck);
            let is_pinned = world.is_pinned(pack) && mutation != Some(Mutation::CondemnPinned);
            let is_forced = mutation == Some(Mutation::CondemnDead) && !is_pinned && are_copied;
            if may_condemn(world.memory[pack], is_pinned, are_copied) || is_forced {
                world.memory[pack] = PackState::Condemned;
            } else {
                batch &= !(1 << pack);
            }
        }
        // What an interrupted collection condemned and this one does not give up returns to live.
        for pack in 0..PACKS {
            if world.rows[pack] == PackState::Condemned && batch & (1 << pack) == 0 {
                if mutation == Some(Mutation::TrustOldCondemned) {
                    batch |= 1 << pack;
                } else {
                    world.memory[pack] = PackState::Live;
                    world.rows[pack] = PackState::Live;
                }
            }
        }
        self.batch = batch;
        world.is_catalog_locked = true;
        self.at = At::CommitCondemned;
    }

    /// The second proof: every block of every root has a sound copy in a live pack. Otherwise, nothing is given up.
    fn inspect(&mut self, world: &mut World, mutation: Option<Mutation>) -> Result<(), Violation> {
        let needed = world.versions.iter().fold(0, |all, blocks| all | blocks);
        let held = world.registered.iter().fold(needed, |all, blocks| all | blocks);
        let condemned = members(self.batch).fold(0, |all, pack| all | world.blocks[pack]);
        let is_missing = needed & condemned & !world.copies_beside(0) != 0;
        if is_missing && world.unmarked == 0 {
            return Err(Violation("the inspector found that a condemned pack is needed".into()));
        }
        (self.seen, self.inspected) = (world.versions, needed & world.sound());
        let live =
            |pack: &usize| world.memory[*pack] == PackState::Live && world.rows[*pack] != PackState::Open;
        let copies = members(world.known).filter(live).fold(0, |all, pack| {
            let rotten = if mutation == Some(Mutation::TrustCopies) { 0 } else { world.rotten[pack] };
            all | world.blocks[pack] & !rotten
        });
        // What condemning overlooks of readers is found here, too.
        let is_left_out = matches!(mutation, Some(Mutation::NoInspection | Mutation::NoLateReaders));
        self.is_proven = true;
        if held & condemned & !copies != 0 && !is_left_out {
            self.is_proven = false;
        }
        Ok(())
    }

    fn kill(&mut self, world: &mut World, mutation: Option<Mutation>) -> Result<(), Violation> {
        for pack in members(self.batch) {
            let is_forced = mutation == Some(Mutation::KillRescued) && !world.is_pinned(pack);
            if self.is_proven && may_die(world.memory[pack], world.is_pinned(pack)) || is_forced {
                world.memory[pack] = PackState::Dead;
                world.rows[pack] = PackState::Dead;
            } else if matches!(world.memory[pack], PackState::Live | PackState::Condemned) {
                world.memory[pack] = PackState::Live;
                world.rows[pack] = PackState::Live;
            }
        }
        let same = world.versions.iter().filter(|blocks| self.seen.contains(blocks));
        let needed = same.fold(0, |all, blocks| all | blocks);
        if needed & self.inspected & !world.sound() != 0 {
            return Err(Violation("the last sound copy of a block was given up".into()));
        }
        self.at = At::Delete;
        Ok(())
    }
}

/// Deletes the files of dead packs.
fn empty_trash(world: &mut World) {
    for pack in members(world.known) {
        if may_delete(world.rows[pack]) {
            world.files &= !(1 << pack);
            world.rows[pack] = PackState::Deleted;
            world.memory[pack] = PackState::Deleted;
            world.known &= !(1 << pack);
        }
    }
}

/// The versions that must not lose a block: those in the catalog, then those that readers registered.
fn roots(world: &World) -> [Set; ROOTS] {
    let mut all = [0; ROOTS];
    all[..NAMES].copy_from_slice(&world.versions);
    all[NAMES..].copy_from_slice(&world.registered);
    all
}
