//! A machine with a simulated disk and a store on it, work to do there, and the model of what was promised.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Entry as RecipeEntry, State};
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{BlockId, Domain, Extent, FrameStore, Kind, PinSet, Result, Score};
use platter_store::{
    CheckOptions, NumberChoice, Session, Store, StorePlace, Verdict, Version, VersionRecord,
};
use platter_vfs::simulated::SimulatedDisk;
use platter_vfs::{Entry, OpenMode, Vfs, VfsFile};

use super::sqlite;

/// Bytes of blocks in one of the test's frames: small, so that there are many.
const FRAME_TARGET: usize = 3 << 10;

/// A drive bay: the disk in it can be exchanged, and SQLite's VFS stands over whatever is in it.
#[derive(Debug)]
struct Bay(Mutex<SimulatedDisk>);

impl Bay {
    fn disk(&self) -> SimulatedDisk {
        self.0.lock().unwrap().clone()
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
    fn random_id(&self) -> io::Result<[u8; 16]> {
        self.disk().random_id()
    }
}

/// A machine.
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
            .with_pack_length_target(12 << 10);
        Self { bay, sqlite_vfs, place }
    }

    pub(crate) fn disk(&self) -> SimulatedDisk {
        self.bay.disk()
    }

    /// Puts that disk in and starts the machine. No store may be open.
    pub(crate) fn insert(&self, disk: &SimulatedDisk) {
        *self.bay.0.lock().unwrap() = disk.clone();
        self.restart();
    }

    /// Starts the machine again, after a crash of its disk. No store may be open.
    pub(crate) fn restart(&self) {
        sqlite::restart(&self.sqlite_vfs);
    }
}

/// A small generator of numbers, the test's own: its sequence is part of what a seed means.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The contents of block `number`: one to six sectors, half of it incompressible.
pub(crate) fn block(number: u64) -> Vec<u8> {
    let mut dice = Dice(number.wrapping_mul(0x9e37_79b9) + 1);
    let sectors = 1 + dice.below(6) as usize;
    let mut bytes: Vec<u8> =
        (0..sectors * 512).map(|at| if at % 512 < 256 { dice.below(256) as u8 } else { 7 }).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Versions whose publishing returned, with the numbers of their blocks.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) published: Vec<(Version, Vec<u64>)>,
}

/// Adds the blocks that the store does not have, and the recipe of a disk that consists of all of them.
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

/// Publishes a disk of those blocks as the next version of `image`.
pub(crate) fn publish(store: &Store, image: &str, numbers: &[u64]) -> Result<Version> {
    let session = store.session()?;
    let disk = add_disk(&session, numbers)?;
    session.publish(draft(image, disk)?)
}

/// What is published of a disk of that score and length.
pub(crate) fn draft(image: &str, (score, disk_length): (Score, u64)) -> Result<VersionRecord> {
    let draft = VersionRecord::draft(image.parse()?, score, 1_000);
    Ok(VersionRecord { disk_length, ..draft })
}

/// Random work by seed: makes the store, publishes versions that share blocks, drops sessions half done, opens the
/// store anew. Ends at the first error, which it gives; `model` has what was published until then.
pub(crate) fn work(machine: &Machine, seed: u64, model: &mut Model) -> Result<()> {
    let mut dice = Dice(seed);
    Store::init(&machine.place)?;
    let mut store = Store::open_writer(&machine.place)?;
    for _ in 0..6 {
        let first = dice.below(30);
        let numbers: Vec<u64> = (first..first + 2 + dice.below(14)).collect();
        match dice.below(6) {
            0 => {
                let session = store.session()?;
                add_disk(&session, &numbers)?;
                session.keep()?;
            }
            1 => {
                // Dropped: whatever happens, the store stays usable or says that it does not.
                add_disk(&store.session()?, &numbers)?;
                store.session()?;
            }
            2 => {
                drop(store);
                store = Store::open_writer(&machine.place)?;
            }
            _ => {
                let image = ["a", "lab/b"][dice.below(2) as usize];
                let version = publish(&store, image, &numbers)?;
                model.published.push((version, numbers));
            }
        }
    }
    Ok(())
}

/// Everything promised is there, the store is sound, and one can go on.
pub(crate) fn verify(machine: &Machine, model: &Model, context: &str) {
    let is_store = machine.place.is_store().unwrap();
    assert!(is_store || model.published.is_empty(), "{context}: the store is gone");
    if !is_store {
        Store::init(&machine.place).unwrap_or_else(|error| panic!("{context}: init again: {error:?}"));
    }
    let store = Store::open_writer(&machine.place).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    verify_versions(&store, model, context);
    let clean = |store: &Store| {
        let report = store.check(CheckOptions { read_data: true }, &mut |_| {}).unwrap();
        assert_eq!(report.verdict, Verdict::Clean, "{context}: {:#?}", report.findings);
    };
    clean(&store);
    let numbers: Vec<u64> = (0..20).collect();
    let version =
        publish(&store, "a", &numbers).unwrap_or_else(|error| panic!("{context}: publish: {error:?}"));
    let before = model.published.iter().filter(|(version, _)| version.name.image.as_str() == "a");
    assert!(
        before.clone().all(|(old, _)| old.name.number < version.name.number),
        "{context}: a number twice"
    );
    verify_versions(&store, &Model { published: vec![(version, numbers)] }, context);
    clean(&store);
}

fn verify_versions(store: &Store, model: &Model, context: &str) {
    for (version, numbers) in &model.published {
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
