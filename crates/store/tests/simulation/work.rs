//! A simulated machine with a store, a random workload, and a model of what the store has promised.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Entry as RecipeEntry, State};
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{BlockId, Domain, ErrorKind, Extent, FrameStore, Kind, PinSet, Result, Score};
use platter_records::{NumberChoice, Version, VersionName, VersionRecord};
use platter_store::{CheckOptions, Finding, Session, Store, StorePlace, Verdict};
use platter_vfs::simulated::SimulatedDisk;
use platter_vfs::{Entry, OpenMode, Vfs, VfsFile};

use super::sqlite;

/// Bytes of blocks in a frame of these tests: few, so that there are many frames.
const FRAME_TARGET: usize = 3 << 10;

/// A drive bay: its disk can be exchanged. SQLite's VFS uses whichever disk is in it.
#[derive(Debug)]
struct Bay(Mutex<SimulatedDisk>);

impl Bay {
    fn disk(&self) -> SimulatedDisk {
        self.0.lock().clone()
    }
}

impl Vfs for Bay {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn VfsFile>> {
        self.disk().open(path, mode)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk().rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk().remove(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk().create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk().sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.disk().list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk().exists(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsFile>>> {
        self.disk().lock(path)
    }
    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.disk().free_space(dir)
    }
    fn random_id(&self) -> io::Result<[u8; 16]> {
        self.disk().random_id()
    }
}

/// A simulated machine.
pub(crate) struct Machine {
    bay: Arc<Bay>,
    sqlite_vfs: String,
    pub(crate) place: StorePlace,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let bay = Arc::new(Bay(Mutex::new(SimulatedDisk::new(0))));
        let sqlite_vfs = sqlite::register(bay.clone());
        let place = StorePlace::new(bay.clone(), "/srv/store")
            .with_sqlite_vfs(&sqlite_vfs)
            .with_pack_length_target(12 << 10)
            // Logs are replaced often.
            .with_long_log(4 << 10)
            // The index on disk is written at every commit.
            .with_index_blocks(1);
        Self { bay, sqlite_vfs, place }
    }

    pub(crate) fn disk(&self) -> SimulatedDisk {
        self.bay.disk()
    }

    /// Inserts a disk and starts the machine. No store may be open.
    pub(crate) fn insert(&self, disk: &SimulatedDisk) {
        *self.bay.0.lock() = disk.clone();
        self.restart();
    }

    /// Returns the name of the SQLite VFS on the machine's disk.
    pub(crate) fn sqlite_vfs(&self) -> &str {
        &self.sqlite_vfs
    }

    /// Restarts the machine after a crash of its disk. No store may be open.
    pub(crate) fn restart(&self) {
        sqlite::restart(&self.sqlite_vfs);
    }
}

/// A small random number generator, kept here because its sequence is part of what a seed means.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The contents of block `number`: one to six sectors, half of each incompressible.
pub(crate) fn block(number: u64) -> Vec<u8> {
    let mut dice = Dice(number.wrapping_mul(0x9e37_79b9) + 1);
    let sectors = 1 + dice.below(6) as usize;
    let mut bytes: Vec<u8> =
        (0..sectors * 512).map(|at| if at % 512 < 256 { dice.below(256) as u8 } else { 7 }).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// A version and the numbers of its blocks.
pub(crate) type Published = (Version, Vec<u64>);

/// What the store has promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Versions whose publishing returned, under their current names.
    pub(crate) published: Vec<Published>,
    /// The value of `published` if the forget or rename that did not return has happened.
    pub(crate) in_flight: Option<Vec<Published>>,
    /// Names that versions had and no longer have.
    pub(crate) removed: Vec<VersionName>,
}

impl Model {
    /// Applies a forget or rename that has returned.
    fn done(&mut self) {
        let Some(new) = self.in_flight.take() else { return };
        for (version, _) in std::mem::replace(&mut self.published, new) {
            self.removed.push(version.name);
        }
        let published = &self.published;
        self.removed.retain(|name| !published.iter().any(|(version, _)| version.name == *name));
    }

    /// Returns the highest number that the image ever had, including those in `more`.
    fn last(&self, image: &str, more: &[Published]) -> u64 {
        let names = self.published.iter().chain(more).map(|(version, _)| &version.name);
        let all = names.chain(&self.removed).filter(|name| name.image.as_str() == image);
        all.map(|name| name.number).max().unwrap_or(0)
    }
}

/// Adds the blocks that the store does not have, and the recipe of a disk that consists of all `numbers`.
pub(crate) fn add_disk(session: &Session, numbers: &[u64]) -> Result<(Score, u64)> {
    let mut compressor = Compressor::new(1)?;
    let (mut pins, mut frame) =
        (PinSet::default(), FrameBuilder::new(Kind::Data, Domain::SHARED, FRAME_TARGET));
    let disk_length = numbers.iter().map(|number| block(*number).len() as u64).sum();
    let mut pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
    let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
    let mut recipe = RecipeBuilder::new(disk_length, 512, policy, Domain::SHARED, |id, bytes: &[u8]| {
        pages.push((id, bytes.to_vec()));
        Ok(())
    });
    let mut offset = 0;
    for number in numbers {
        let contents = block(*number);
        let id = BlockId::of(Kind::Data, &contents);
        let extent = Extent::new(offset, contents.len() as u64);
        recipe.push(RecipeEntry { extent, state: State::Data { block: id, offset: 0 } })?;
        offset = extent.end();
        match session.lookup_and_pin(&id)? {
            Some(pin) => pins.insert(pin),
            None => {
                if frame.is_full_for(contents.len()) {
                    pins.insert(session.append(&frame.take().encode(&mut compressor)?)?);
                }
                frame.push(id, &contents);
            }
        }
    }
    if !frame.is_empty() {
        pins.insert(session.append(&frame.encode(&mut compressor)?)?);
    }
    let (score, _) = recipe.finish()?;
    for (id, bytes) in pages {
        if session.lookup_and_pin(&id)?.is_none() {
            let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, FRAME_TARGET);
            frame.push(id, &bytes);
            pins.insert(session.append(&frame.encode(&mut compressor)?)?);
        }
    }
    Ok((score, disk_length))
}

/// Publishes a disk of these blocks as the next version of `image`.
pub(crate) fn publish(store: &Store, image: &str, numbers: &[u64]) -> Result<Version> {
    let session = store.session()?;
    let disk = add_disk(&session, numbers)?;
    session.publish(draft(image, disk)?)
}

/// Makes a draft for a disk with that score and length.
pub(crate) fn draft(image: &str, (score, disk_length): (Score, u64)) -> Result<VersionRecord> {
    let draft = VersionRecord::draft(image.parse()?, score, 1_000);
    Ok(VersionRecord { disk_length, ..draft })
}

/// Forgets an existing version, or all versions of its image.
fn forget(store: &Store, dice: &mut Dice, model: &mut Model) -> Result<()> {
    let Some((version, _)) = pick(dice, &model.published) else { return Ok(()) };
    let (image, number) = (version.name.image.clone(), version.name.number);
    let number = (dice.below(3) > 0).then_some(number);
    let goes = |name: &VersionName| name.image == image && number.is_none_or(|number| name.number == number);
    let stays = model.published.iter().filter(|(version, _)| !goes(&version.name));
    model.in_flight = Some(stays.cloned().collect());
    store.forget(&image, number)?;
    model.done();
    Ok(())
}

/// Renames an image and those below it to a new or used name. A refused rename has no effect.
fn rename(store: &Store, dice: &mut Dice, model: &mut Model) -> Result<()> {
    let names = ["a", "lab", "lab/b", "c", "c/d"];
    let (from, to) = (names[dice.below(5) as usize], names[dice.below(5) as usize]);
    let mut new = model.published.clone();
    for (version, _) in &mut new {
        let Some(rest) = version.name.image.as_str().strip_prefix(from) else { continue };
        if !rest.is_empty() && !rest.starts_with('/') {
            continue;
        }
        let old = version.name.clone();
        version.name.image = format!("{to}{rest}").parse()?;
        let first = version.record.renamed_from.take().unwrap_or(old);
        version.record.renamed_from = (first.image != version.name.image).then_some(first);
        version.record.image = version.name.image.clone();
    }
    model.in_flight = Some(new);
    match store.rename(&from.parse()?, &to.parse()?) {
        Err(error)
            if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Missing) && store.session().is_ok() =>
        {
            model.in_flight = None;
        }
        renamed => {
            renamed?;
            model.done();
        }
    }
    Ok(())
}

fn pick<'a, T>(dice: &mut Dice, all: &'a [T]) -> Option<&'a T> {
    all.get(dice.below(all.len().max(1) as u64) as usize)
}

/// A random workload by seed: creates the store, publishes versions that share blocks, forgets and renames some, drops unfinished
/// sessions, reopens the store. Returns the first error; `model` then has what was promised so far.
pub(crate) fn work(machine: &Machine, seed: u64, model: &mut Model) -> Result<()> {
    let mut dice = Dice(seed);
    Store::init(&machine.place)?;
    let mut store = Store::open_writer(&machine.place)?;
    for _ in 0..9 {
        let first = dice.below(30);
        let numbers: Vec<u64> = (first..first + 2 + dice.below(14)).collect();
        match dice.below(9) {
            6 => forget(&store, &mut dice, model)?,
            7 | 8 => rename(&store, &mut dice, model)?,
            0 => {
                let session = store.session()?;
                add_disk(&session, &numbers)?;
                session.keep()?;
            }
            1 => {
                // Dropped: the store must stay usable, or refuse further sessions.
                add_disk(&store.session()?, &numbers)?;
                store.session()?;
            }
            2 => {
                drop(store);
                store = Store::open_writer(&machine.place)?;
            }
            _ => {
                let image = ["a", "lab/b"][dice.below(2) as usize];
                let last = model.last(image, &[]);
                let version = publish(&store, image, &numbers)?;
                assert!(version.name.number > last, "seed {seed}: {} after {last}", version.name);
                model.published.push((version, numbers));
            }
        }
    }
    Ok(())
}

/// Checks that everything promised exists, the store is sound, and publishing works.
pub(crate) fn verify(machine: &Machine, model: &Model, context: &str) {
    let is_store = machine.place.is_store().unwrap();
    assert!(is_store || model.published.is_empty(), "{context}: the store is missing");
    if !is_store {
        Store::init(&machine.place).unwrap_or_else(|error| panic!("{context}: init again: {error:?}"));
    }
    let store = Store::open_writer(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let is_changed = verify_names(&store, model, context);
    let in_flight = model.in_flight.as_ref().filter(|_| is_changed);
    verify_versions(&store, in_flight.unwrap_or(&model.published), context);
    let clean = |store: &Store| {
        let report =
            store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap();
        // Packs of interrupted sessions are kept until they are needed.
        let is_left = |finding: &Finding| finding.what.contains("left by an interrupted session");
        assert_ne!(report.verdict, Verdict::Damaged, "{context}: {:#?}", report.findings);
        assert!(report.findings.iter().all(is_left), "{context}: {:#?}", report.findings);
    };
    clean(&store);
    let numbers: Vec<u64> = (0..20).collect();
    let version =
        publish(&store, "a", &numbers).unwrap_or_else(|error| panic!("{context}: publish: {error:?}"));
    // A change in flight that did not happen has used no number.
    let last = model.last("a", in_flight.map_or(&[], Vec::as_slice));
    assert!(last < version.name.number, "{context}: {} after {last}", version.name);
    verify_versions(&store, &[(version, numbers)], context);
    clean(&store);
}

/// Checks that the names are those promised, or those after the change in flight; returns whether the latter. A publish in
/// flight may have added one more, with a number that was never used.
fn verify_names(store: &Store, model: &Model, context: &str) -> bool {
    let found: BTreeSet<VersionName> =
        store.versions().unwrap().into_iter().map(|version| version.name).collect();
    let names =
        |all: &[Published]| all.iter().map(|(version, _)| version.name.clone()).collect::<BTreeSet<_>>();
    let is_changed = model.in_flight.as_ref().is_some_and(|new| names(new) == found);
    if !is_changed {
        let more: Vec<_> = found.difference(&names(&model.published)).cloned().collect();
        let may_be_more = usize::from(model.in_flight.is_none());
        assert!(more.len() <= may_be_more, "{context}: {more:?} beside {model:?}");
        let is_new = |name: &VersionName| name.number > model.last(name.image.as_str(), &[]);
        assert!(more.iter().all(is_new), "{context}: {more:?} reappeared: {model:?}");
    }
    is_changed
}

fn verify_versions(store: &Store, published: &[Published], context: &str) {
    for (version, numbers) in published {
        let found = store
            .version(&version.name.image, NumberChoice::Number(version.name.number))
            .unwrap_or_else(|error| panic!("{context}: {} is lost: {error:?}", version.name));
        assert_eq!(found, *version, "{context}");
        for number in numbers {
            let contents = block(*number);
            let read = store.read_block(Kind::Data, &BlockId::of(Kind::Data, &contents));
            let read =
                read.unwrap_or_else(|error| panic!("{context}: {}: block {number}: {error:?}", version.name));
            assert!(read == contents, "{context}: {}: wrong bytes in block {number}", version.name);
        }
    }
}
