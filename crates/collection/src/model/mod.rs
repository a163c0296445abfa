//! A model of collection: writers, clones, readers, a compactor and two collectors over a few packs and blocks, in steps as
//! large as what the store does under one hold of its locks. Schedules are random, by seed. Each runs until nobody has a step
//! left; after each step, every block of every version must be in a pack that stays, and every reader must find its blocks.
//!
//! The decisions are the functions of [`super::decide`], which the store calls too. To show that the model can fail, each
//! recheck is left out in turn ([`Mutation`]): schedules that break a promise are then found at once. Some worlds start with an
//! error that a recheck must stop: a marking that misses a block, a damaged copy, a block that only the trash has.

mod actor;
mod collector;
mod world;

use platter_records::PackState;

use actor::{Actor, Cloning, Reading, Writing, step};
use collector::Collector;
use world::{Mutation, NAMES, Set, Violation, World};

/// Steps of one schedule: more than any needs.
const STEPS_MAX: usize = 400;

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }

    fn blocks(&mut self) -> Set {
        1 + self.below(7) as Set
    }
}

/// A store with some packs and versions, some of whose blocks are garbage, and its actors.
fn world(dice: &mut Dice) -> World {
    let packs: Vec<Set> = (0..1 + dice.below(4)).map(|_| dice.blocks()).collect();
    let here = packs.iter().fold(0, |all, blocks| all | blocks);
    let versions: [Set; NAMES] =
        std::array::from_fn(|_| if dice.below(3) == 0 { 0 } else { dice.blocks() & here });
    let writer = |dice: &mut Dice| Actor::Writer {
        name: dice.below(NAMES),
        wants: dice.blocks(),
        at: Writing::Looking { left: 0, own: None },
    };
    let mut actors = vec![Actor::Collector(Collector::default()), Actor::Collector(Collector::default())];
    actors.extend([writer(dice), writer(dice)]);
    for actor in &mut actors {
        if let Actor::Writer { wants, at, .. } = actor {
            *at = Writing::Looking { left: *wants, own: None };
        }
    }
    actors.push(Actor::Cloner {
        from: dice.below(NAMES),
        to: dice.below(NAMES),
        found: 0,
        at: Cloning::Resolving,
    });
    actors.extend((0..2).map(|_| Actor::Forgetter { name: dice.below(NAMES), is_done: false }));
    actors.extend((0..2).map(|number| Actor::Reader {
        number,
        name: dice.below(NAMES),
        found: 0,
        at: Reading::Resolving,
    }));
    let pack = dice.below(packs.len());
    actors.push(Actor::Compactor { pack, at: Writing::Looking { left: 0, own: None } });
    let mut world = World::new(&packs, versions, actors, dice.below(2) as u8);
    match dice.below(8) {
        0 => rot(&mut world, dice),
        1 => misplace(&mut world, dice),
        _ => {}
    }
    world
}

/// Damages one of several copies of a block. Nobody forgets or captures anything else: a new version may rely on what is damaged,
/// which is no fault of a collector.
fn rot(world: &mut World, dice: &mut Dice) {
    let pack = dice.below(world.packs);
    let elsewhere = world.copies_beside(1 << pack);
    world.rotten[pack] = world.blocks[pack] & elsewhere;
    world.actors.retain(|actor| {
        !matches!(actor, Actor::Writer { .. } | Actor::Forgetter { .. } | Actor::Cloner { .. })
    });
}

/// Moves a block that a version needs to a pack that is dead already.
fn misplace(world: &mut World, dice: &mut Dice) {
    let block = 1 << dice.below(3);
    world.blocks.iter_mut().for_each(|blocks| *blocks &= !block);
    let Some(pack) = world.add_pack(block) else { return };
    (world.rows[pack], world.memory[pack]) = (PackState::Dead, PackState::Dead);
    world.misplaced = block;
}

/// Runs the schedule of a seed.
fn run(seed: u64, mutation: Option<Mutation>) -> Result<(), Violation> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 7);
    let mut world = world(&mut dice);
    // The inspection has nothing to find while the marking is right.
    if seed % 8 == 3 || mutation == Some(Mutation::NoInspection) {
        world.unmarked = 1 << dice.below(3);
        // The store has one collector at a time. Two that both err can give up both copies that they saw.
        world.actors.remove(1);
    }
    let mut idle = 0;
    for _ in 0..STEPS_MAX {
        if world.crashes_left > 0 && dice.below(40) == 0 {
            world.crash();
            world.check()?;
        }
        // Some actors run for a while before others do.
        let actor = dice.below(world.actors.len());
        for _ in 0..1 + dice.below(4) {
            idle = if step(&mut world, actor, mutation)? { 0 } else { idle + 1 };
        }
        if idle > 200 {
            break;
        }
    }
    Ok(())
}

fn schedules(count: u64) {
    for seed in 0..count {
        if let Err(Violation(what)) = run(seed, None) {
            panic!("seed {seed}: {what}");
        }
    }
}

#[test]
fn no_schedule_loses_a_block() {
    schedules(60_000);
}

/// Part of `make test-full`.
#[test]
#[ignore = "minutes: three million schedules"]
fn three_million_schedules_lose_no_block() {
    schedules(3_000_000);
}

/// Every recheck is needed: without it, a schedule breaks a promise.
#[test]
fn without_any_of_its_rechecks_the_model_fails() {
    for mutation in Mutation::ALL {
        let broken = (0..200_000).find(|seed| run(*seed, Some(mutation)).is_err());
        assert!(broken.is_some(), "{mutation:?} breaks nothing");
    }
}
