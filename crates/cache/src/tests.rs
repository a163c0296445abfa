//! Tests a cache on a simulated disk: limit, eviction, pins, damage and power failure.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use platter_image::frame::{Compressor, FrameBuilder, FrameHeader};
use platter_image::{BlockId, Domain, ErrorKind, Kind};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, Operation, SimulatedDisk};

use super::{Cache, CacheOptions, PinName};

const SEGMENT: u64 = 1 << 20;
const LIMIT: u64 = 8 * SEGMENT;
/// Number of frames that fit under the limit: seven per segment.
const HELD: u32 = 56;

/// A frame of two incompressible blocks, 128 KiB together.
struct Frame {
    stored: Vec<u8>,
    header: FrameHeader,
}

impl Frame {
    fn new(n: u32) -> Self {
        Self::of(n, |_, contents| BlockId::of(Kind::Data, contents))
    }

    fn of(n: u32, name: impl Fn(u64, &[u8]) -> BlockId) -> Self {
        let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 256 << 10);
        for block in 0..2 {
            let mut word = 2 * (u64::from(n) * 2 + block) + 1;
            let contents: Vec<u8> = (0..8192)
                .flat_map(|_| {
                    word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    (word ^ word >> 33).to_le_bytes()
                })
                .collect();
            builder.push(name(block, &contents), &contents);
        }
        let stored = builder.encode(&mut Compressor::new(1).unwrap()).unwrap().stored;
        Self { header: FrameHeader::parse(&stored).unwrap(), stored }
    }

    fn id(&self) -> BlockId {
        self.header.blocks[1].id
    }

    fn is_right_in(&self, cache: &Cache) -> bool {
        get(cache, Kind::Data, &self.id()).is_some_and(|found| found == (1, self.stored.clone()))
    }

    fn put(&self, cache: &Cache) -> bool {
        cache.put(&self.stored, &self.header)
    }
}

/// The slot of a block and the frame that it is in, if it can be read.
fn get(cache: &Cache, kind: Kind, id: &BlockId) -> Option<(u32, Vec<u8>)> {
    let lease = cache.lease(kind, id)?;
    let mut stored = Vec::new();
    lease.read(&mut stored).ok()?;
    Some((lease.place.slot, stored))
}

fn frames(count: u32) -> Vec<Frame> {
    (0..count).map(Frame::new).collect()
}

fn options() -> CacheOptions {
    CacheOptions { limit_bytes: LIMIT, segment_bytes: SEGMENT, pause: Duration::ZERO }
}

fn open(disk: &SimulatedDisk) -> Cache {
    Cache::open(Arc::new(disk.clone()), "/cache", options()).unwrap()
}

fn set(name: &str) -> PinName {
    name.parse().unwrap()
}

fn file_bytes(disk: &SimulatedDisk, dir: &str) -> u64 {
    let dir = Path::new(dir);
    let entries = disk.list(dir).unwrap();
    entries.iter().map(|entry| disk.contents(&dir.join(&entry.name)).unwrap().len() as u64).sum()
}

#[test]
fn stored_frames_are_still_held_after_reopening() {
    let (disk, frames) = (SimulatedDisk::new(1), frames(17));
    let cache = open(&disk);
    let id = cache.id();
    assert!(frames.iter().all(|frame| frame.put(&cache)));
    assert!(frames.iter().all(|frame| frame.put(&cache)), "storing them again does nothing");
    assert_eq!((cache.counts().taken, cache.counts().blocks), (17, 34));
    assert!(frames.iter().all(|frame| frame.is_right_in(&cache)));
    assert!(get(&cache, Kind::Page, &frames[0].id()).is_none(), "a block is no page");
    assert!(Cache::open(Arc::new(disk.clone()), "/cache", options()).is_err(), "one process");
    drop(cache);
    // Two segments have a footer. The third has none and is continued.
    let cache = open(&disk);
    assert_eq!((cache.id(), cache.counts().blocks), (id, 34));
    assert!(frames.iter().all(|frame| frame.is_right_in(&cache)));
    let more = Frame::new(100);
    assert!(more.put(&cache));
    drop(cache);
    let cache = open(&disk);
    assert!(more.is_right_in(&cache) && frames.iter().all(|frame| frame.is_right_in(&cache)));
    assert_eq!(disk.list(Path::new("/cache/segments")).unwrap().len(), 3);
    assert!(cache.notes().is_empty());
}

#[test]
fn the_limit_is_kept_and_the_oldest_frames_are_evicted_first() {
    let disk = SimulatedDisk::new(1);
    let cache = open(&disk);
    for n in 0..3 * HELD {
        assert!(Frame::new(n).put(&cache));
        let bytes = file_bytes(&disk, "/cache/segments");
        assert!(bytes <= LIMIT + SEGMENT && bytes == cache.counts().bytes, "{bytes}");
        // Frame 2 is read again and again.
        assert!(n < 10 || Frame::new(2).is_right_in(&cache), "{n}");
    }
    assert!(file_bytes(&disk, "/cache/segments") <= LIMIT);
    assert!(cache.counts().evicted > u64::from(HELD));
    assert!((3 * HELD - 30..3 * HELD).all(|n| Frame::new(n).is_right_in(&cache)));
    assert!((3..HELD).all(|n| !cache.holds(&Frame::new(n).id())));
    drop(cache);
    let smaller = CacheOptions { limit_bytes: LIMIT / 2, ..options() };
    let cache = Cache::open(Arc::new(disk.clone()), "/cache", smaller).unwrap();
    assert!(file_bytes(&disk, "/cache/segments") <= LIMIT / 2);
    assert!(cache.holds(&Frame::new(3 * HELD - 1).id()));
}

/// A sequential read of more than fits leaves no frames marked as used.
#[test]
fn a_long_scan_causes_no_copies() {
    let disk = SimulatedDisk::new(1);
    let cache = open(&disk);
    for n in 0..2 * HELD {
        let frame = Frame::new(n);
        assert!(frame.put(&cache) && frame.is_right_in(&cache));
    }
    let last = disk.list(Path::new("/cache/segments")).unwrap().pop().unwrap().name;
    assert_eq!(last, "00000010.segment", "sixteen segments with seven frames each");
}

#[test]
fn pinned_frames_stay_and_nothing_is_stored_when_all_is_pinned() {
    let (disk, frames) = (SimulatedDisk::new(1), frames(4 * HELD));
    let ids: Vec<BlockId> = frames.iter().map(Frame::id).collect();
    let cache = open(&disk);
    cache.pin(&set("hoard"), &ids[..10]).unwrap();
    assert!(frames[..HELD as usize].iter().all(|frame| frame.put(&cache)));
    cache.pin(&set("disk-1"), &ids[10..15]).unwrap();
    assert!(frames[HELD as usize..].iter().all(|frame| frame.put(&cache)));
    assert!(frames[..15].iter().all(|frame| frame.is_right_in(&cache)));
    assert_eq!(cache.pinned(&set("disk-1")).unwrap().unwrap().len(), 5);
    drop(cache);
    let cache = open(&disk);
    assert!(["disk-1", "hoard"].iter().all(|name| cache.pinned(&set(name)).unwrap().is_some()));
    frames.iter().rev().for_each(|frame| assert!(frame.put(&cache)));
    assert!(frames[..15].iter().all(|frame| frame.is_right_in(&cache)), "also after reopening");
    let pinned = cache.counts().pinned_bytes;
    cache.unpin(&set("disk-1")).unwrap();
    assert!(cache.counts().pinned_bytes < pinned && cache.pinned(&set("disk-1")).unwrap().is_none());
    cache.pin(&set("hoard"), &ids).unwrap();
    let taken = frames.iter().filter(|frame| frame.put(&cache)).count();
    assert!((30..=HELD as usize + 4).contains(&taken), "{taken}");
    assert!(cache.counts().bytes <= LIMIT && cache.counts().refused > 0);
    assert_eq!(cache.notes().iter().filter(|note| note.contains("full of pinned blocks")).count(), 1);
    assert!(frames.iter().filter(|frame| cache.holds(&frame.id())).all(|frame| frame.is_right_in(&cache)));
    cache.pin(&set("hoard"), &ids[..3]).unwrap();
    assert!(frames.iter().all(|frame| frame.put(&cache)), "there is room again");
    assert!(frames[..3].iter().all(|frame| cache.holds(&frame.id())));
}

/// Whoever found a frame can read it, though everything was evicted meanwhile.
#[test]
fn a_lease_outlives_eviction() {
    let (disk, frames) = (SimulatedDisk::new(1), frames(60));
    let cache = open(&disk);
    assert!(frames[0].put(&cache));
    let lease = cache.lease(Kind::Data, &frames[0].id()).unwrap();
    frames[1..].iter().for_each(|frame| assert!(frame.put(&cache)));
    assert!(!cache.holds(&frames[0].id()), "it was evicted");
    let mut stored = Vec::new();
    lease.read(&mut stored).unwrap();
    assert_eq!((lease.place.slot, stored), (1, frames[0].stored.clone()));
}

#[test]
fn a_damaged_frame_is_dropped_and_can_be_stored_again() {
    let (disk, frames) = (SimulatedDisk::new(1), frames(8));
    let cache = open(&disk);
    assert!(frames.iter().all(|frame| frame.put(&cache)));
    let lease = cache.lease(Kind::Data, &frames[1].id()).unwrap();
    let address = lease.place.frame;
    let path = Path::new("/cache/segments/00000001.segment");
    let damage = |at: u64| {
        let mut bytes = disk.contents(path).unwrap();
        bytes[at as usize] ^= 4;
        disk.overwrite(path, &bytes);
    };
    damage(address.offset + 100_000);
    assert!(!frames[1].is_right_in(&cache) && !cache.holds(&frames[1].id()));
    assert_eq!(lease.read(&mut Vec::new()).unwrap_err().kind(), ErrorKind::Transient, "take another lease");
    assert_eq!(cache.counts().damaged, 1);
    assert_eq!(cache.notes().len(), 1);
    assert!(frames[1].put(&cache) && frames[1].is_right_in(&cache), "it is appended at the end");
    assert!(frames.iter().all(|frame| frame.is_right_in(&cache)));
    // A lease keeps the cache open.
    drop((lease, cache));
    // Now the footer is damaged too: each frame is verified by itself, and the damaged copy is dropped at once.
    damage(disk.contents(path).unwrap().len() as u64 - 80);
    let cache = open(&disk);
    assert!(frames.iter().all(|frame| frame.is_right_in(&cache)));
}

/// A checksum detects damage, a hash detects false names: frames read from disk are hashed once.
#[test]
fn a_frame_with_a_false_name_is_not_returned_after_reopening() {
    let disk = SimulatedDisk::new(1);
    let wanted = BlockId::of(Kind::Data, b"something else");
    let liar = Frame::of(1, |block, contents| match block {
        0 => BlockId::of(Kind::Data, contents),
        _ => wanted,
    });
    let cache = open(&disk);
    assert!(liar.put(&cache));
    drop(cache);
    let cache = open(&disk);
    assert!(!cache.holds(&wanted), "without a footer, names are computed from the contents");
    assert!(liar.put(&cache) && frames(9).iter().all(|frame| frame.put(&cache)));
    drop(cache);
    let cache = open(&disk);
    assert!(cache.holds(&wanted), "its footer says so");
    assert!(get(&cache, Kind::Data, &wanted).is_none() && !cache.holds(&wanted));
    assert!(frames(9).iter().all(|frame| frame.is_right_in(&cache)));
}

/// Stores frames, pins some of them and syncs from time to time. Sets `durable` to the frames that must survive a crash now.
fn work(cache: &Cache, frames: &[Frame], durable: &mut Vec<usize>) -> platter_image::Result<()> {
    let mut pinned: Vec<usize> = Vec::new();
    for (n, frame) in frames.iter().enumerate() {
        if n % 9 == 4 {
            pinned.push(n);
            let ids: Vec<BlockId> = pinned.iter().map(|n| frames[*n].id()).collect();
            cache.pin(&set("disk"), &ids)?;
        }
        frame.put(cache);
        if n % 20 == 19 {
            cache.sync()?;
            *durable = pinned.iter().copied().filter(|n| cache.holds(&frames[*n].id())).collect();
        }
    }
    Ok(())
}

/// The cache is stopped at many calls, also during eviction, and the disk crashes in every way. Synced and pinned frames are
/// still held, and no held frame is wrong.
#[test]
fn a_power_failure_loses_nothing_that_was_synced_and_pinned() {
    let frames = frames(2 * HELD + 10);
    let mut seen = 0;
    for call in (20..).step_by(11) {
        let disk = SimulatedDisk::new(call);
        let cache = open(&disk);
        disk.set_fault(Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None }));
        let mut durable = Vec::new();
        let done = work(&cache, &frames, &mut durable).is_ok() && disk.fault_hits() == 0;
        for (seed, profile) in (call..).zip(CrashProfile::EVERY) {
            let crashed = disk.fork();
            crashed.crash(profile, seed);
            let cache = open(&crashed);
            let ids = cache.pinned(&set("disk")).unwrap().unwrap_or_default();
            for n in &durable {
                assert!(ids.contains(&frames[*n].id()), "{call} {profile:?}: pin {n}");
                assert!(frames[*n].is_right_in(&cache), "{call} {profile:?}: frame {n} of {durable:?}");
            }
            seen += durable.len();
            for frame in &frames {
                let found = get(&cache, Kind::Data, &frame.id());
                assert!(found.is_none_or(|found| found.1 == frame.stored), "{call} {profile:?}");
            }
            assert!(Frame::new(1000).put(&cache) && cache.counts().bytes <= LIMIT);
        }
        if done {
            break;
        }
    }
    assert!(seen > 500, "{seen}");
}

#[test]
fn a_full_disk_stops_storing_but_not_reading() {
    let (disk, frames) = (SimulatedDisk::new(1), frames(30));
    let cache = open(&disk);
    disk.set_capacity(2 << 20);
    let taken = frames.iter().filter(|frame| frame.put(&cache)).count();
    assert!((12..17).contains(&taken), "{taken}");
    assert!(frames[..12].iter().all(|frame| frame.is_right_in(&cache)));
    assert!(cache.counts().write_failures > 0 && cache.notes()[0].contains("nothing is stored"));
    disk.set_capacity(u64::MAX);
    assert!(frames.iter().all(|frame| frame.put(&cache) && frame.is_right_in(&cache)));
    drop(cache);
    let cache = open(&disk);
    assert!(frames.iter().all(|frame| frame.is_right_in(&cache)));
    // During the pause, no write is tried.
    drop(cache);
    let options = CacheOptions { pause: Duration::from_secs(1000), ..options() };
    let cache = Cache::open(Arc::new(disk.clone()), "/cache", options).unwrap();
    let only = Some(Operation::Write);
    disk.set_fault(Some(Fault { call: 1, kind: FaultKind::NoSpace, persistent: false, only }));
    assert!(!Frame::new(50).put(&cache) && !Frame::new(51).put(&cache));
    assert_eq!(cache.counts().write_failures, 1);
}

#[test]
fn frames_in_doubt_after_a_failed_sync_are_not_held() {
    let (disk, frames) = (SimulatedDisk::new(1), frames(4));
    let cache = open(&disk);
    assert!(frames[0].put(&cache) && cache.sync().is_ok());
    assert!(frames[1].put(&cache));
    let only = Some(Operation::Sync);
    disk.set_fault(Some(Fault { call: 1, kind: FaultKind::Io, persistent: false, only }));
    assert!(cache.sync().is_err());
    assert!(frames[0].is_right_in(&cache) && !cache.holds(&frames[1].id()));
    assert!(frames[1].put(&cache) && cache.sync().is_ok());
    disk.crash(CrashProfile::Nothing, 1);
    let cache = open(&disk);
    assert!(frames[0].is_right_in(&cache) && frames[1].is_right_in(&cache));
    assert!(frames[2].put(&cache));
    let only = Some(Operation::SyncDir);
    disk.set_fault(Some(Fault { call: 1, kind: FaultKind::Io, persistent: false, only }));
    assert!(cache.sync().is_err() && !cache.holds(&frames[2].id()));
}

#[test]
fn changes_list_added_and_dropped_blocks() {
    let disk = SimulatedDisk::new(1);
    let cache = open(&disk);
    let whole = cache.changes(0);
    assert!(whole.whole && whole.added.is_empty());
    let mut held: std::collections::BTreeSet<BlockId> = Default::default();
    let mut mark = whole.mark;
    for n in 0..2 * HELD {
        assert!(Frame::new(n).put(&cache));
        if n % 7 == 0 {
            let changes = cache.changes(mark);
            assert!(!changes.whole);
            changes.added.iter().for_each(|id| assert!(held.insert(*id)));
            changes.dropped.iter().for_each(|id| assert!(held.remove(id)));
            let mut all = cache.changes(0).added;
            all.sort_unstable();
            assert!(held.iter().eq(&all));
            mark = changes.mark;
        }
    }
}

#[test]
fn frames_whose_key_is_missing_are_not_evicted_when_a_cache_is_opened() {
    let domain = Domain::of(&[77; 32]);
    assert!(!domain.is_open());
    let (disk, mut frames) = (SimulatedDisk::new(1), frames(HELD));
    let cache = open(&disk);
    for frame in &mut frames {
        frame.stored[24..40].copy_from_slice(&domain.0);
        assert!(frame.put(&cache));
    }
    cache.pin(&set("disk"), &[frames[0].id()]).unwrap();
    drop(cache);
    let before = file_bytes(&disk, "/cache/segments");
    let smaller = CacheOptions { limit_bytes: LIMIT / 2, ..options() };
    let cache = Cache::open(Arc::new(disk.clone()), "/cache", smaller).unwrap();
    assert!(cache.notes().iter().any(|note| note.contains("whose key is missing")));
    assert!(!Frame::new(HELD).put(&cache), "there is no room");
    assert_eq!(file_bytes(&disk, "/cache/segments"), before);
    assert!(cache.holds(&frames[0].id()));
}
