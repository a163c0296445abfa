//! The actors of the model. Each step is what the store does under one hold of its locks.

use platter_records::PackState;

use super::collector::Collector;
use super::world::{Mutation, Set, Violation, World, members};
use crate::decide::{LookupAnswer, lookup};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Actor {
    /// Captures a disk with these blocks as a version of an image.
    Writer {
        name: usize,
        wants: Set,
        at: Writing,
    },
    /// Clones the version of an image.
    Cloner {
        from: usize,
        to: usize,
        found: Set,
        at: Cloning,
    },
    /// Forgets the version of an image.
    Forgetter {
        name: usize,
        is_done: bool,
    },
    Collector(Collector),
    /// Copies the frames of a pack to a new one, as compaction does.
    Compactor {
        pack: usize,
        at: Writing,
    },
    /// Reads a version in another process.
    Reader {
        number: usize,
        name: usize,
        found: Set,
        at: Reading,
    },
}

/// How far a session is. `own`: the pack it writes, plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Writing {
    Looking { left: Set, own: Option<usize> },
    Committing { own: Option<usize> },
    Unpinning,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cloning {
    Resolving,
    Publishing,
    /// The version was forgotten meanwhile: every block is pinned first.
    Proving(Set),
    CommittingProven,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reading {
    Resolving,
    Registering,
    Confirming,
    Blocks(Set),
    Done,
}

impl Actor {
    /// The process of this actor started again.
    pub(super) fn restart(&mut self) {
        match self {
            Self::Writer { wants, at: at @ Writing::Looking { .. }, .. } => {
                *at = Writing::Looking { left: *wants, own: None };
            }
            Self::Writer { at, .. } | Self::Compactor { at, .. } => *at = Writing::Done,
            Self::Cloner { at, .. } => *at = Cloning::Done,
            Self::Collector(collector) => *collector = Collector::default(),
            // The reader is another process.
            Self::Forgetter { .. } | Self::Reader { .. } => {}
        }
    }
}

impl Actor {
    /// Returns whether the next step of this actor needs the catalog.
    fn needs_catalog(&self) -> bool {
        match self {
            Self::Writer { at, .. } | Self::Compactor { at, .. } => matches!(at, Writing::Committing { .. }),
            Self::Cloner { at, .. } => !matches!(at, Cloning::Proving(_) | Cloning::Done),
            Self::Reader { at, .. } => matches!(at, Reading::Resolving | Reading::Confirming),
            Self::Forgetter { .. } => true,
            Self::Collector(collector) => collector.needs_catalog(),
        }
    }
}

/// Does the next step of an actor. Returns whether it did one.
pub(super) fn step(world: &mut World, number: usize, mutation: Option<Mutation>) -> Result<bool, Violation> {
    let mut actor = world.actors[number].clone();
    if world.is_catalog_locked && actor.needs_catalog() {
        return Ok(false);
    }
    let is_done = match &mut actor {
        Actor::Writer { name, wants, at } => write(world, (number, *name, *wants), at, mutation),
        Actor::Cloner { from, to, found, at } => clone(world, number, (*from, *to), found, at, mutation),
        Actor::Forgetter { name, is_done } => {
            world.versions[*name] = 0;
            std::mem::replace(is_done, true)
        }
        Actor::Collector(collector) => collector.step(world, mutation)?,
        Actor::Compactor { pack, at } => compact(world, number, *pack, at),
        Actor::Reader { number, name, found, at } => read(world, (*number, *name), found, at, mutation)?,
    };
    world.actors[number] = actor;
    world.check()?;
    Ok(!is_done)
}

/// Looks a block up and pins its pack. `None`: it has to be stored.
fn lookup_and_pin(
    world: &mut World,
    actor: usize,
    block: usize,
    mutation: Option<Mutation>,
) -> Option<usize> {
    let has = |pack: &usize| world.blocks[*pack] & (1 << block) != 0 && world.rows[*pack] != PackState::Open;
    let found: Vec<usize> = members(world.known).filter(has).collect();
    // A live pack is found first: the index prefers it.
    let rank = |pack: &usize| world.memory[*pack] as u8;
    let pack = found.into_iter().min_by_key(rank)?;
    match lookup(world.memory[pack]) {
        LookupAnswer::Pin => {}
        LookupAnswer::Rescue if mutation == Some(Mutation::NoRescue) => {}
        LookupAnswer::Rescue => world.memory[pack] = PackState::Live,
        LookupAnswer::Missing if mutation == Some(Mutation::PinDead) => {}
        LookupAnswer::Missing => return None,
    }
    world.pins[pack] |= 1 << actor;
    Some(pack)
}

/// Enters a session's own pack, and the packs that it rescued, in the commit of its version.
fn commit(world: &mut World, actor: usize, own: Option<usize>) {
    if let Some(pack) = own {
        world.rows[pack] = PackState::Live;
        world.memory[pack] = PackState::Live;
    }
    for pack in 0..world.packs {
        if world.pins[pack] & (1 << actor) != 0
            && world.memory[pack] == PackState::Live
            && world.rows[pack] == PackState::Condemned
        {
            world.rows[pack] = PackState::Live;
        }
    }
}

fn unpin(world: &mut World, actor: usize) {
    world.pins.iter_mut().for_each(|pins| *pins &= !(1 << actor));
}

fn write(
    world: &mut World,
    (actor, name, wants): (usize, usize, Set),
    at: &mut Writing,
    mutation: Option<Mutation>,
) -> bool {
    match *at {
        Writing::Looking { left, own } => {
            let Some(block) = members(left).next() else {
                if mutation == Some(Mutation::UnpinBeforeCommit) {
                    unpin(world, actor);
                }
                *at = Writing::Committing { own };
                return false;
            };
            let mut own = own;
            if lookup_and_pin(world, actor, block, mutation).is_none() {
                match own {
                    Some(pack) => world.blocks[pack] |= 1 << block,
                    None => own = world.add_pack(1 << block),
                }
                if own.is_none() {
                    unpin(world, actor);
                    *at = Writing::Done;
                    return false;
                }
            }
            *at = Writing::Looking { left: left & !(1 << block), own };
        }
        Writing::Committing { own } => {
            commit(world, actor, own);
            world.versions[name] = wants;
            *at = Writing::Unpinning;
        }
        Writing::Unpinning => {
            unpin(world, actor);
            *at = Writing::Done;
        }
        Writing::Done => return true,
    }
    false
}

fn clone(
    world: &mut World,
    actor: usize,
    (from, to): (usize, usize),
    found: &mut Set,
    at: &mut Cloning,
    mutation: Option<Mutation>,
) -> bool {
    match *at {
        Cloning::Resolving => {
            *found = world.versions[from];
            *at = if *found == 0 { Cloning::Done } else { Cloning::Publishing };
        }
        Cloning::Publishing => {
            if world.versions.contains(found) || mutation == Some(Mutation::CloneUnchecked) {
                world.versions[to] = *found;
                *at = Cloning::Done;
            } else {
                *at = Cloning::Proving(*found);
            }
        }
        Cloning::Proving(left) => match members(left).next() {
            None => *at = Cloning::CommittingProven,
            Some(block) if lookup_and_pin(world, actor, block, mutation).is_some() => {
                *at = Cloning::Proving(left & !(1 << block));
            }
            Some(_) => {
                unpin(world, actor);
                *at = Cloning::Done;
            }
        },
        Cloning::CommittingProven => {
            commit(world, actor, None);
            world.versions[to] = *found;
            unpin(world, actor);
            *at = Cloning::Done;
        }
        Cloning::Done => return true,
    }
    false
}

/// The copied frames are durable and published before the old pack can be condemned: any collector then finds two copies.
fn compact(world: &mut World, actor: usize, pack: usize, at: &mut Writing) -> bool {
    match *at {
        Writing::Looking { .. } => {
            let is_readable = pack < world.packs && lookup(world.memory[pack]) != LookupAnswer::Missing;
            // A damaged frame is not copied.
            let is_readable = is_readable && world.rotten[pack] == 0;
            let own = if is_readable { world.add_pack(world.blocks[pack]) } else { None };
            *at = if own.is_some() { Writing::Committing { own } } else { Writing::Done };
        }
        Writing::Committing { own } => {
            commit(world, actor, own);
            *at = Writing::Done;
        }
        Writing::Unpinning | Writing::Done => return true,
    }
    false
}

fn read(
    world: &mut World,
    (reader, name): (usize, usize),
    found: &mut Set,
    at: &mut Reading,
    mutation: Option<Mutation>,
) -> Result<bool, Violation> {
    let is_late = mutation == Some(Mutation::RegisterLate);
    match *at {
        Reading::Resolving => {
            *found = world.versions[name];
            *at = match *found {
                0 => Reading::Done,
                _ if is_late => Reading::Confirming,
                _ => Reading::Registering,
            };
        }
        Reading::Registering => {
            world.registered[reader] = *found;
            let is_confirmed = is_late || mutation == Some(Mutation::NoConfirmation);
            *at = if is_confirmed { Reading::Blocks(*found) } else { Reading::Confirming };
        }
        Reading::Confirming => {
            *at = match world.versions.contains(found) {
                true if is_late => Reading::Registering,
                true => Reading::Blocks(*found),
                false => {
                    world.registered[reader] = 0;
                    Reading::Done
                }
            };
        }
        Reading::Blocks(left) => {
            let Some(block) = members(left).next() else {
                world.registered[reader] = 0;
                *at = Reading::Done;
                return Ok(false);
            };
            let holds = |pack: usize| {
                world.blocks[pack] & (1 << block) != 0
                    && world.files & (1 << pack) != 0
                    && world.rows[pack] != PackState::Open
            };
            if !(0..world.packs).any(holds) {
                return Err(Violation(format!("a reader misses block {block}")));
            }
            *at = Reading::Blocks(left & !(1 << block));
        }
        Reading::Done => return Ok(true),
    }
    Ok(false)
}
