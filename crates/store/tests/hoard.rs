//! Tests the hoard in a store on real files, and its replicas on a simulated disk with power failures.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "removes files of the store directly")]

use std::path::Path;
use std::sync::Arc;

use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder};
use platter_image::page::{Entry, State};
use platter_image::recipe::{CutPolicy, PageSource, RecipeBuilder};
use platter_image::{
    BlockId, BlockPlace, Domain, Error, ErrorKind, Extent, FrameAddress, FrameIndex, FrameSource, FrameStore,
    Kind, Lease, Result, Score,
};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};

use platter_index::Index;
use platter_records::{BootBlock, BootSet, BootSetRecord};
use platter_records::{HoardMember, HoardSnapshot};
use platter_records::{ImageName, VersionRecord};
use platter_records::{Registered, VersionName};
use platter_store::{
    Added, DailyReport, DailyRequest, Hoard, HoardWriter, ReplicaFacts, Store, StorePlace, rebuild,
};

const DAY_MS: i64 = 24 * 3600 * 1000;

fn contents(number: u16) -> Vec<u8> {
    let seed = number.to_le_bytes();
    (0..4096_usize).map(|n| seed[n % 2].wrapping_add((n / 7) as u8) | 1).collect()
}

fn block(number: u16) -> BlockId {
    BlockId::of(Kind::Data, &contents(number))
}

/// A disk that consists of these blocks: its score and pages.
fn disk(numbers: &[u16]) -> (Score, Vec<(BlockId, Vec<u8>)>) {
    let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
    let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
    let mut recipe = RecipeBuilder::new(numbers.len() as u64 * 4096, 512, policy, Domain::SHARED, pages);
    for (at, number) in numbers.iter().enumerate() {
        let extent = Extent::new(at as u64 * 4096, 4096);
        recipe.push(Entry { extent, state: State::Data { block: block(*number), offset: 0 } }).unwrap();
    }
    recipe.finish().unwrap()
}

fn encode(kind: Kind, blocks: &[(BlockId, Vec<u8>)]) -> EncodedFrame {
    let mut frame = FrameBuilder::new(kind, Domain::SHARED, 1 << 17);
    blocks.iter().for_each(|(id, bytes)| frame.push(*id, bytes));
    frame.encode(&mut Compressor::new(1).unwrap()).unwrap()
}

/// The boot set of a boot that reads the blocks `read`, in that order, from the disk `numbers`.
fn boot(name: &str, numbers: &[u16], read: &[u16]) -> BootSet {
    let (score, mut pages) = disk(numbers);
    pages.sort_by_key(|(id, _)| *id != score.0);
    let pages: Vec<BootBlock> =
        pages.iter().map(|(id, bytes)| BootBlock::new(*id, bytes.len() as u64)).collect();
    let blocks: Vec<BootBlock> = read.iter().map(|number| BootBlock::new(block(*number), 4096)).collect();
    let (image, number) = name.split_once('@').unwrap();
    let record = BootSetRecord {
        version: VersionName { image: image.parse().unwrap(), number: number.parse().unwrap() },
        score,
        marker: "test".into(),
        command: String::new(),
        accelerator: String::new(),
        time_unix_ms: 5,
        duration_ms: 1,
        requests: read.len() as u64,
        bytes_read: read.len() as u64 * 4096,
        pages: pages.len() as u32,
        blocks: blocks.len() as u32,
        bytes: pages.iter().chain(&blocks).map(BootBlock::length).sum(),
        tool_version: "test".into(),
        boots: 0,
        nodes: Vec::new(),
    };
    BootSet { record, pages, blocks }
}

fn new_store() -> (tempfile::TempDir, StorePlace) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    (folder, place)
}

fn publish(store: &Store, image: &str, numbers: &[u16]) {
    let session = store.session().unwrap();
    let data: Vec<_> = numbers.iter().map(|number| (block(*number), contents(*number))).collect();
    session.append(&encode(Kind::Data, &data)).unwrap();
    let (score, pages) = disk(numbers);
    session.append(&encode(Kind::Page, &pages)).unwrap();
    let mut draft = VersionRecord::draft(image.parse().unwrap(), score, 1);
    draft.disk_length = numbers.len() as u64 * 4096;
    session.publish(draft).unwrap();
}

fn register(store: &Store, name: &str, numbers: &[u16], read: &[u16]) -> Registered {
    let set = boot(name, numbers, read);
    store.register_boot_set(&set.record.version, &set, 7).unwrap()
}

fn names(members: &[HoardMember]) -> Vec<String> {
    members.iter().map(|member| member.version.to_string()).collect()
}

fn image(name: &str) -> ImageName {
    name.parse().unwrap()
}

/// A boot that a node observed.
fn observed(name: &str, numbers: &[u16], read: &[u16]) -> BootSet {
    let mut set = boot(name, numbers, read);
    (set.record.boots, set.record.nodes) = (1, vec!["node".into()]);
    set
}

#[test]
fn observed_boots_refine_each_other_and_leave_alone_what_a_person_recorded() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let disk = [1, 2, 3, 4, 5, 6];
    publish(&store, "a", &disk);
    let register = |set: &BootSet| store.register_boot_set(&set.record.version, set, 7).unwrap();
    let see = |read: &[u16]| register(&observed("a@1", &disk, read));
    let blocks = || -> Vec<BlockId> {
        let member = store.hoard().unwrap().members.remove(0);
        store.boot_set(&member.boot_set).unwrap().blocks.iter().map(|row| row.id).collect()
    };
    assert_eq!(see(&[3, 1]), Registered { revision: 1, is_new: true });
    assert_eq!(see(&[1, 3]), Registered { revision: 1, is_new: false }, "nothing that is new");
    assert_eq!(see(&[2, 1]), Registered { revision: 2, is_new: true });
    assert_eq!(blocks(), [3, 1, 2].map(block));
    // Whatever a node says of itself, its boot is one.
    let mut boastful = observed("a@1", &disk, &[4]);
    boastful.record.boots = 1000;
    assert_eq!(register(&boastful).revision, 3);
    assert_eq!(store.hoard().unwrap().members[0].record.boots, 1, "pieces of one boot");
    assert_eq!(see(&[5]).revision, 4, "the set was incomplete");
    assert_eq!(register(&boot("a@1", &disk, &[6])).revision, 5, "a person says what a boot is");
    assert!(!see(&[5]).is_new);
    assert_eq!(blocks(), [block(6)]);
}

#[test]
fn each_change_is_a_revision_and_changes_since_any_revision_are_known() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    publish(&store, "a", &[1, 2, 3]);
    publish(&store, "b", &[3, 4]);
    assert_eq!(store.hoard().unwrap(), HoardSnapshot::default());
    let absent = boot("a@2", &[1, 2, 3], &[1]);
    let refused = |name: &str, set: &BootSet| {
        let (image, number) = name.split_once('@').unwrap();
        let name = VersionName { image: image.parse().unwrap(), number: number.parse().unwrap() };
        store.register_boot_set(&name, set, 1).unwrap_err().kind()
    };
    assert_eq!(refused("a@2", &absent), ErrorKind::Missing);
    assert_eq!(refused("b@1", &absent), ErrorKind::Refused, "a boot set of another disk");
    assert_eq!(
        refused("a@1", &boot("a@1", &[1, 2, 3], &[99])),
        ErrorKind::Refused,
        "blocks not in the store"
    );
    assert_eq!(register(&store, "a@1", &[1, 2, 3], &[3, 1]), Registered { revision: 1, is_new: true });
    assert_eq!(register(&store, "a@1", &[1, 2, 3], &[3, 1]), Registered { revision: 1, is_new: false });
    assert_eq!(register(&store, "b@1", &[3, 4], &[4]).revision, 2);
    assert_eq!(register(&store, "a@1", &[1, 2, 3], &[2, 3, 1]).revision, 3);
    let hoard = store.hoard().unwrap();
    assert_eq!((hoard.revision, names(&hoard.members)), (3, vec!["b@1".into(), "a@1".into()]));
    let set = store.boot_set(&hoard.members[1].boot_set).unwrap();
    assert_eq!(set.blocks.iter().map(|it| it.id).collect::<Vec<_>>(), [2, 3, 1].map(block), "in order");
    let told = |since| {
        let changes = store.hoard_changes(&hoard.epoch, since).unwrap();
        let gone: Vec<String> = changes.gone.iter().map(ToString::to_string).collect();
        (changes.whole, names(&changes.added), gone)
    };
    assert_eq!(told(0), (false, vec!["b@1".into(), "a@1".into()], vec![]));
    assert_eq!(told(1), (false, vec!["b@1".into(), "a@1".into()], vec!["a@1".into()]));
    assert_eq!(told(3), (false, vec![], vec![]));
    assert!(told(4).0 && store.hoard_changes("other", 3).unwrap().whole);
    let (revision, gone) = store.unregister_boot_set(&image("b"), None, 9).unwrap();
    assert_eq!((revision, gone.len()), (4, 1));
    assert_eq!(told(3), (false, vec![], vec!["b@1".into()]));
    assert_eq!(store.unregister_boot_set(&image("b"), None, 9).unwrap_err().kind(), ErrorKind::Missing);
    let before = hoard.members.clone();
    let after = store.hoard_changes(&hoard.epoch, 3).unwrap().applied_to(before);
    assert_eq!(after, store.hoard().unwrap().members);
}

#[test]
fn a_boot_set_follows_its_version_and_survives_a_rebuild() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    for name in ["a", "b"] {
        publish(&store, name, &[1, 2, 3]);
        register(&store, &format!("{name}@1"), &[1, 2, 3], &[3, 1]);
    }
    store.rename(&image("a"), &image("c")).unwrap();
    assert_eq!(names(&store.hoard().unwrap().members), ["b@1", "c@1"]);
    store.forget(&image("b"), None).unwrap();
    let hoard = store.hoard().unwrap();
    assert_eq!((hoard.revision, names(&hoard.members)), (4, vec!["c@1".into()]));
    store.hoard_follow(&image("c"), Some("{}")).unwrap();
    drop(store);
    rebuild(&place).unwrap();
    assert_eq!(Store::open_reader(&place).unwrap().hoard().unwrap(), hoard, "restored from the change log");
    std::fs::remove_file(place.dir().join("changes.log")).unwrap();
    rebuild(&place).unwrap();
    assert_eq!(Store::open_reader(&place).unwrap().hoard().unwrap(), hoard, "restored from the catalog");
    std::fs::remove_file(place.dir().join("changes.log")).unwrap();
    std::fs::remove_file(place.dir().join("catalog.sqlite")).unwrap();
    let report = rebuild(&place).unwrap();
    assert_eq!(report.boot_sets, report.versions.len(), "every version of that score has it");
    let store = Store::open_reader(&place).unwrap();
    let found = store.hoard().unwrap();
    assert!(found.epoch != hoard.epoch && found.epoch.len() == 32, "a new epoch");
    let member = found.members.iter().find(|member| member.version.image == image("a")).unwrap();
    assert_eq!((member.boot_set, &member.record), (hoard.members[0].boot_set, &hoard.members[0].record));
    assert_eq!(store.boot_set(&member.boot_set).unwrap(), boot("a@1", &[1, 2, 3], &[3, 1]));
}

fn daily(store: &Store, day: i64, keep_days: Option<u64>, window_days: u64) -> DailyReport {
    store.hoard_daily(DailyRequest { now_unix_ms: day * DAY_MS, keep_days, window_days }).unwrap()
}

/// Old members are removed, except the newest of each image. A date counts once, and a clock that jumps counts one day.
#[test]
fn retention_keeps_the_latest_and_ignores_clock_jumps() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    for (number, name) in ["a", "a", "b"].into_iter().enumerate() {
        publish(&store, name, &[1, 2, number as u16 + 3]);
    }
    register(&store, "a@1", &[1, 2, 3], &[1]);
    register(&store, "b@1", &[1, 2, 5], &[2]);
    assert_eq!(daily(&store, 20_000, Some(2), 9).day, 1);
    assert_eq!(daily(&store, 20_000, Some(2), 9).day, 1, "the same day");
    register(&store, "a@2", &[1, 2, 4], &[4]);
    let jumped = daily(&store, 90_000, Some(2), 9);
    assert_eq!((jumped.day, names(&store.hoard().unwrap().members).len()), (2, 2), "a@1 was added on day 0");
    assert_eq!(jumped.dropped.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a@1"]);
    publish(&store, "a", &[1, 2, 9]);
    register(&store, "a@3", &[1, 2, 9], &[9]);
    assert_eq!(
        daily(&store, 20_001, Some(2), 9).dropped.len(),
        1,
        "a@2 was added on day 1, and is no longer the latest"
    );
    for day in 0..20 {
        let report = daily(&store, 20_002 + day, Some(2), 9);
        assert_eq!(report.dropped, [], "the latest is never removed");
    }
    assert_eq!(names(&store.hoard().unwrap().members), ["b@1", "a@3"]);
}

#[test]
fn a_node_that_was_away_for_longer_than_the_window_gets_everything() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    publish(&store, "a", &[1, 2, 3]);
    publish(&store, "b", &[1, 2]);
    register(&store, "a@1", &[1, 2, 3], &[1]);
    let epoch = store.hoard().unwrap().epoch;
    daily(&store, 1, None, 3);
    register(&store, "b@1", &[1, 2], &[2]);
    let whole = |since| store.hoard_changes(&epoch, since).unwrap().whole;
    assert_eq!((daily(&store, 2, None, 3).oldest, whole(0)), (0, false));
    assert_eq!((daily(&store, 3, None, 3).oldest, whole(0), whole(1)), (1, true, false));
    assert_eq!((daily(&store, 4, None, 3).oldest, whole(1), whole(2)), (2, true, false));
    assert_eq!(store.hoard().unwrap().members.len(), 2, "all members stay");
    assert_eq!(store.hoard_changes(&epoch, 0).unwrap().added.len(), 2);
}

/// A source in memory.
struct Memory {
    frames: Vec<EncodedFrame>,
    pages: Vec<(BlockId, Vec<u8>)>,
    index: Index,
}

impl Memory {
    fn of(disks: &[&[u16]]) -> Self {
        Self::in_frames_of(2, disks)
    }

    fn in_frames_of(blocks: usize, disks: &[&[u16]]) -> Self {
        let mut memory = Self { frames: Vec::new(), pages: Vec::new(), index: Index::new() };
        for numbers in disks {
            memory.pages.extend(disk(numbers).1);
            for together in numbers.chunks(blocks) {
                let blocks: Vec<_> =
                    together.iter().map(|number| (block(*number), contents(*number))).collect();
                let frame = encode(Kind::Data, &blocks);
                let at = memory.frames.len() as u64;
                let address = FrameAddress { pack: 0, offset: at, length: frame.stored.len() as u32 };
                memory.index.push_frame(address, blocks.iter().map(|(id, _)| *id)).unwrap();
                memory.frames.push(frame);
            }
        }
        memory
    }
}

impl FrameSource for Memory {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }
}

impl FrameIndex for Memory {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        Ok(self.index.locate(id))
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        stored.clear();
        stored.extend_from_slice(&self.frames[address.offset as usize].stored);
        Ok(())
    }
}

impl PageSource for Memory {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let found = self.pages.iter().find(|(page, _)| page == id);
        found.map(|(_, bytes)| bytes.clone()).ok_or_else(|| Error::missing("page"))
    }
}

const ONE: &[u16] = &[1, 2, 3, 4, 5, 6];
const TWO: &[u16] = &[4, 5, 6, 7, 8, 9];
const THREE: &[u16] = &[20, 21, 22, 23, 24, 25, 26, 27];

fn sets() -> [BootSet; 3] {
    [
        boot("one@1", ONE, &[5, 1, 6, 2]),
        boot("two@1", TWO, &[9, 5, 6, 8]),
        boot("three@1", THREE, &[27, 20, 26, 21, 25]),
    ]
}

fn snapshot(revision: u64, sets: &[&BootSet]) -> HoardSnapshot {
    let member = |set: &&BootSet| HoardMember {
        version: set.record.version.clone(),
        boot_set: set.encode().unwrap().id,
        added: 1,
        record: set.record.clone(),
    };
    HoardSnapshot { epoch: "e".into(), revision, members: sets.iter().map(member).collect() }
}

fn replica_place(disk: &SimulatedDisk) -> StorePlace {
    StorePlace::new(Arc::new(disk.clone()), "/hoard")
}

fn update(place: &StorePlace, revision: u64, sets: &[&BootSet]) -> Result<ReplicaFacts> {
    let memory = Memory::of(&[ONE, TWO, THREE]);
    let mut writer = HoardWriter::open(place)?;
    for set in sets {
        writer.add(set, Domain::SHARED, &memory)?;
    }
    writer.finish(&snapshot(revision, sets))
}

/// Returns whether every page and block of a set is readable and correct.
fn is_whole(hoard: &Hoard, set: &BootSet) -> bool {
    let data = set.blocks.iter().all(|row| {
        let number = (0..100).find(|number| block(*number) == row.id).unwrap();
        hoard.read_data(&row.id).is_ok_and(|bytes| bytes == contents(number))
    });
    data && set.pages.iter().all(|row| hoard.page(&row.id).is_ok())
        && hoard.boot_set(&set.encode().unwrap().id).is_ok_and(|found| found == *set)
}

#[test]
fn a_replica_is_in_boot_order_and_has_every_block_once() {
    let disk = SimulatedDisk::new(1);
    let place = replica_place(&disk);
    let [one, two, _] = &sets();
    let memory = Memory::of(&[ONE, TWO]);
    let mut writer = HoardWriter::open(&place).unwrap();
    let first = writer.add(one, Domain::SHARED, &memory).unwrap();
    assert_eq!(first.blocks, (one.pages.len() + 4) as u64);
    // Another source, with frames at the same addresses.
    let memory = Memory::of(&[TWO, ONE]);
    let second = writer.add(two, Domain::SHARED, &memory).unwrap();
    assert_eq!(second.blocks, (two.pages.len() + 2) as u64, "5 and 6 are already in the hoard");
    assert_eq!(writer.add(two, Domain::SHARED, &memory).unwrap(), Added::default());
    let facts = writer.finish(&snapshot(3, &[one, two])).unwrap();
    assert_eq!((facts.revision, facts.members), (3, 2));
    let hoard = Hoard::open(&place).unwrap();
    assert!(is_whole(&hoard, one) && is_whole(&hoard, two));
    assert!(!hoard.holds(&block(3)), "no boot reads it");
    let place_of = |number| hoard.locate(&block(number)).unwrap().unwrap();
    let frame = hoard.blocks_at(place_of(5).frame).unwrap();
    assert_eq!(frame, [5, 1, 6, 2].map(block));
    assert_eq!(hoard.blocks_at(place_of(9).frame).unwrap(), [9, 8].map(block));
}

#[test]
fn a_sequential_reader_learns_the_following_frames() {
    let place = replica_place(&SimulatedDisk::new(1));
    let numbers: Vec<u16> = (1..=1000).collect();
    let set = boot("long@1", &numbers, &numbers);
    let mut writer = HoardWriter::open(&place).unwrap();
    writer.add(&set, Domain::SHARED, &Memory::of(&[&numbers])).unwrap();
    writer.finish(&snapshot(1, &[&set])).unwrap();
    let hoard = Hoard::open(&place).unwrap();
    let frames: Vec<_> =
        hoard.frames().into_iter().filter(|(_, ids)| numbers.iter().any(|n| ids[0] == block(*n))).collect();
    assert!(frames.len() > 20);
    let first = |frame: usize| frames[frame].1[0];
    assert_eq!(hoard.read_on(frames[3].0), Some(Vec::new()), "one frame is no sequence");
    assert_eq!(hoard.read_on(frames[4].0), Some((5..13).map(first).collect()));
    let last = frames.len() - 1;
    let behind = hoard.read_on(frames[last].0).unwrap();
    assert!(behind.iter().all(|id| !numbers.iter().any(|n| *id == block(*n))), "no block of the boot");
    let gone = FrameAddress { offset: frames[5].0.offset + 1, ..frames[5].0 };
    assert_eq!(hoard.read_on(gone), Some(Vec::new()), "no such frame");
}

#[test]
fn large_frames_that_are_needed_whole_and_soon_are_kept_unchanged() {
    let disk = SimulatedDisk::new(1);
    let place = replica_place(&disk);
    let numbers: Vec<u16> = (1..=96).collect();
    // There are six frames. All blocks of the first and second are read close together, though not in frame order. The third
    // is not read whole. The fifth is read in part at the start and in part at the end.
    let near = [65, 9].into_iter().chain(1..=8).chain(10..=16).chain([40]).chain(17..=32);
    let read: Vec<u16> =
        near.chain(33..=39).chain(41..=47).chain(49..=64).chain(81..=96).chain(66..=80).collect();
    let set = boot("large@1", &numbers, &read);
    let memory = Memory::in_frames_of(16, &[&numbers]);
    let mut writer = HoardWriter::open(&place).unwrap();
    let added = writer.add(&set, Domain::SHARED, &memory).unwrap();
    assert_eq!(added.blocks, (set.pages.len() + read.len()) as u64);
    writer.finish(&snapshot(1, &[&set])).unwrap();
    let hoard = Hoard::open(&place).unwrap();
    assert!(is_whole(&hoard, &set));
    let frame_of = |number| {
        let address = hoard.locate(&block(number)).unwrap().unwrap().frame;
        let mut stored = Vec::new();
        hoard.read_frame(address, &mut stored).unwrap();
        (address, hoard.blocks_at(address).unwrap(), stored)
    };
    let (first, second, third, fifth) = (frame_of(1), frame_of(17), frame_of(40), frame_of(65));
    assert_eq!((&first.2, &second.2), (&memory.frames[0].stored, &memory.frames[1].stored));
    assert_eq!((third.1, fifth.1), (vec![block(40)], vec![block(65)]));
    let offsets = [fifth.0, first.0, third.0, second.0].map(|address| address.offset);
    assert!(offsets.is_sorted(), "in the order of the boot: {offsets:?}");
}

#[test]
fn only_missing_blocks_of_a_foreign_frame_are_added() {
    let disk = SimulatedDisk::new(1);
    let mut writer = HoardWriter::open(&replica_place(&disk)).unwrap();
    let frame = |numbers: &[u16]| {
        let blocks: Vec<_> = numbers.iter().map(|number| (block(*number), contents(*number))).collect();
        encode(Kind::Data, &blocks).stored
    };
    let whole = writer.add_frame(&frame(&[1, 2])).unwrap();
    assert_eq!((whole.blocks, whole.raw_bytes, whole.stored_bytes), (2, 8192, frame(&[1, 2]).len() as u64));
    assert_eq!(writer.add_frame(&frame(&[1, 3, 2])).unwrap().blocks, 1, "1 and 2 are already in the hoard");
    assert_eq!(writer.add_frame(&frame(&[3, 1])).unwrap(), Added::default());
    assert_eq!(writer.add_frame(&frame(&[])).unwrap(), Added::default());
}

#[test]
fn an_incomplete_revision_is_not_claimed() {
    let disk = SimulatedDisk::new(1);
    let place = replica_place(&disk);
    let [one, two, three] = &sets();
    let memory = Memory::of(&[ONE, THREE]);
    let mut writer = HoardWriter::open(&place).unwrap();
    writer.add(one, Domain::SHARED, &memory).unwrap();
    assert_eq!(
        writer.add(two, Domain::SHARED, &memory).unwrap_err().kind(),
        ErrorKind::Missing,
        "the source lacks it"
    );
    assert_eq!(writer.finish(&snapshot(2, &[one, two])).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(Hoard::open(&place).unwrap().snapshot().revision, 0);
    let second = HoardWriter::open(&place).unwrap();
    assert_eq!(HoardWriter::open(&place).map(drop).unwrap_err().kind(), ErrorKind::Transient);
    assert!(second.hoard().holds(&block(1)), "the sealed pack is found");
    drop(second);
    update(&place, 2, &[one, three]).unwrap();
}

#[test]
fn space_that_no_member_needs_is_reclaimed() {
    let disk = SimulatedDisk::new(1);
    let place = replica_place(&disk);
    let [one, two, three] = &sets();
    let all = update(&place, 1, &[one, two, three]).unwrap();
    let reader = Hoard::open(&place).unwrap();
    let located = reader.locate(&block(1)).unwrap().unwrap();
    let less = update(&place, 2, &[two]).unwrap();
    assert!(less.disk_bytes < all.disk_bytes / 2 + 1000, "{less:?} {all:?}");
    reader.refresh().unwrap();
    // The view still lists the blocks of the removed frame, for readers that located it before the update.
    assert!(reader.blocks_at(located.frame).unwrap().contains(&block(1)));
    assert!(is_whole(&reader, two) && !reader.holds(&block(1)) && reader.holds(&block(5)));
    let none = update(&place, 3, &[]).unwrap();
    assert_eq!((none.disk_bytes, none.blocks, none.revision), (0, 0, 3));
    let folders = disk.list(&place.dir().join("packs")).unwrap();
    let files =
        folders.iter().map(|folder| disk.list(&place.dir().join("packs").join(&folder.name)).unwrap());
    assert_eq!(files.map(|files| files.len()).sum::<usize>(), 0);
}

/// Power fails at any call: the claimed revision is complete, and the next update succeeds.
#[test]
fn power_cuts_leave_a_whole_revision() {
    let [one, two, three] = &sets();
    let start = SimulatedDisk::new(7);
    update(&replica_place(&start), 1, &[one, three]).unwrap();
    let calls = {
        let disk = start.fork();
        disk.set_fault(None);
        let before = disk.calls();
        update(&replica_place(&disk), 2, &[one, two]).unwrap();
        disk.calls() - before
    };
    assert!(calls > 20);
    for call in 1..=calls {
        for (seed, profile) in CrashProfile::EVERY.into_iter().enumerate() {
            let disk = start.fork();
            disk.set_fault(Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None }));
            let ended = update(&replica_place(&disk), 2, &[one, two]);
            disk.crash(profile, seed as u64 ^ call);
            let place = replica_place(&disk);
            let hoard = Hoard::open(&place).unwrap();
            let revision = hoard.snapshot().revision;
            assert!(revision == 2 || (revision == 1 && ended.is_err()), "call {call} {profile:?}");
            let sets = if revision == 2 { [one, two] } else { [one, three] };
            assert!(sets.into_iter().all(|set| is_whole(&hoard, set)), "call {call} {profile:?}: {revision}");
            drop(hoard);
            update(&place, 2, &[one, two]).unwrap();
            let hoard = Hoard::open(&place).unwrap();
            assert!(is_whole(&hoard, one) && is_whole(&hoard, two), "call {call} {profile:?}");
        }
    }
}

#[test]
fn a_damaged_hoard_json_is_replaced_by_the_next_update() {
    let disk = SimulatedDisk::new(1);
    let place = replica_place(&disk);
    let [one, two, _] = &sets();
    update(&place, 1, &[one]).unwrap();
    disk.overwrite(Path::new("/hoard/hoard.json"), b"{");
    assert_eq!(Hoard::open(&place).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    update(&place, 2, &[one, two]).unwrap();
    assert!(is_whole(&Hoard::open(&place).unwrap(), two));
    assert!(disk.exists(Path::new("/hoard/packs")).unwrap());
}
