//! Tests of disks read through a cache on a simulated disk, above a store that can be unavailable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use platter_cache::CacheOptions;
use platter_image::frame::FrameHeader;
use platter_image::frame::stream::FramesRequest;
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Error, ErrorKind, Extent, FrameIndex, Kind, Result, Score};
use platter_store::{Store, StorePlace};
use platter_testbed::store_disk;
use platter_vdisk::{BlockCache, BlockDevice, RecipeDisk};
use platter_vfs::Vfs;
use platter_vfs::simulated::{CrashProfile, SimulatedDisk};
use tempfile::TempDir;

use super::{CachedSource, Fill, HeldFrames, NodeCache};
use crate::driver::{Fetcher, OriginFrames, ShelfLimits, SourceOptions, TakeFrame};

const LENGTH: usize = 12 << 20;
/// So little memory that frames damaged in the cache are fetched.
const SMALL: ShelfLimits =
    ShelfLimits { bytes_max: 1 << 19, read_bytes_max: 1 << 19, ahead_bytes_max: 1 << 18 };

/// A store as the source below: slow or unavailable on request, with a count of fetches.
struct Below {
    store: Store,
    fetches: AtomicUsize,
    away: AtomicBool,
    delay: Duration,
}

impl OriginFrames for Below {
    fn fetch(&self, request: &FramesRequest, take: &mut TakeFrame<'_>) -> Result<Vec<BlockId>> {
        thread::sleep(self.delay);
        if self.away.load(Ordering::SeqCst) {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            return Err(Error::transient("away"));
        }
        let (mut sent, mut missing, mut stored) = (Vec::new(), Vec::new(), Vec::new());
        for id in &request.ids {
            match self.store.locate(id)? {
                None => missing.push(*id),
                Some(place) if sent.contains(&place.frame) => {}
                Some(place) => {
                    self.fetches.fetch_add(1, Ordering::SeqCst);
                    self.store.read_frame(place.frame, &mut stored)?;
                    take(&FrameHeader::parse(&stored)?, &stored)?;
                    sent.push(place.frame);
                }
            }
        }
        Ok(missing)
    }
}

/// A disk in a store, and a simulated disk for caches of it.
struct Lab {
    _folder: TempDir,
    below: Arc<Below>,
    score: Score,
    bytes: Vec<u8>,
    disk: SimulatedDisk,
}

impl Lab {
    fn new() -> Self {
        Self::with_delay(Duration::ZERO)
    }

    fn with_delay(delay: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let mut word = 1_u64;
        let bytes: Vec<u8> = (0..LENGTH / 8)
            .flat_map(|_| {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (word ^ word >> 33).to_le_bytes()
            })
            .collect();
        store_disk(&place, "lab/disk", &bytes);
        let store = Store::open_reader(&place).unwrap();
        let score = store.resolve("lab/disk").unwrap().score;
        let (fetches, away) = (AtomicUsize::new(0), AtomicBool::new(false));
        let below = Arc::new(Below { store, fetches, away, delay });
        Self { _folder: folder, below, score, bytes, disk: SimulatedDisk::new(1) }
    }

    fn open_on(&self, disk: &SimulatedDisk, limit_bytes: u64) -> Arc<CachedSource> {
        let options = CacheOptions { limit_bytes, segment_bytes: 1 << 20, pause: Duration::ZERO };
        // The threads of a dropped source keep the cache open until they have ended.
        let node = (0..2000)
            .find_map(|_| {
                let opened = NodeCache::open_on(Arc::new(disk.clone()), Path::new("/cache"), options, "x");
                opened.inspect_err(|_| thread::sleep(Duration::from_millis(5))).ok()
            })
            .unwrap();
        let fetcher = Fetcher::with_limits(self.below.clone(), Some(node.clone()), SMALL);
        self.source(node, &fetcher)
    }

    fn source(&self, node: Arc<NodeCache>, fetcher: &Arc<Fetcher>) -> Arc<CachedSource> {
        let options = SourceOptions { retry_time_max: Duration::from_secs(1), exact: false };
        CachedSource::new(node, fetcher.source(self.score, options))
    }

    fn open(&self, limit_bytes: u64) -> Arc<CachedSource> {
        self.open_on(&self.disk, limit_bytes)
    }

    /// Reads the whole disk as clients do.
    fn read(&self, source: &Arc<CachedSource>) -> Result<Vec<u8>> {
        let cache =
            BlockCache::new(platter_vdisk::CacheOptions { block_bytes_max: 1 << 20, ..Default::default() })?;
        let disk = RecipeDisk::open(self.score, source.clone(), cache)?;
        let mut bytes = vec![0; LENGTH];
        for (n, piece) in bytes.chunks_mut(1 << 20).enumerate() {
            disk.read(piece, (n << 20) as u64)?;
        }
        Ok(bytes)
    }

    fn is_right_through(&self, source: &Arc<CachedSource>) -> bool {
        self.read(source).unwrap() == self.bytes
    }

    fn fetches(&self) -> usize {
        self.below.fetches.load(Ordering::SeqCst)
    }

    fn leave(&self, away: bool) {
        self.below.away.store(away, Ordering::SeqCst);
    }

    fn segments(&self) -> Vec<PathBuf> {
        let dir = Path::new("/cache/segments");
        self.disk.list(dir).unwrap().iter().map(|entry| dir.join(&entry.name)).collect()
    }
}

#[test]
fn a_disk_that_was_read_once_is_read_from_the_cache_including_pages() {
    let lab = Lab::new();
    let source = lab.open(64 << 20);
    assert!(lab.is_right_through(&source));
    let fetches = lab.fetches();
    assert!(fetches > 50, "{fetches}");
    // The last frames are stored after their readers got them. Two fetches may bring one frame.
    for _ in 0..400 {
        if source.node().counters().fetched_frames < fetches as u64 {
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(source.node().counters().fetched_bytes >= LENGTH as u64);
    drop(source);
    lab.leave(true);
    let source = lab.open(64 << 20);
    assert!(lab.is_right_through(&source));
    assert_eq!(lab.fetches(), fetches);
    assert_eq!(source.node().counters().fetched_bytes, 0);
}

#[test]
fn many_readers_of_one_missing_block_cause_one_fetch_even_across_two_disks() {
    let lab = Lab::with_delay(Duration::from_millis(100));
    let options = CacheOptions::new(64 << 20);
    let node = NodeCache::open_on(Arc::new(lab.disk.clone()), Path::new("/cache"), options, "x").unwrap();
    let fetcher = Fetcher::new(lab.below.clone(), Some(node.clone()));
    let [source, other] = [(); 2].map(|()| lab.source(node.clone(), &fetcher));
    let id = lab.score.0;
    thread::scope(|scope| {
        for n in 0..8 {
            let source = if n % 2 == 0 { &source } else { &other };
            scope.spawn(move || source.page(&id).unwrap());
        }
    });
    assert_eq!(lab.fetches(), 1);
}

#[test]
fn an_unavailable_source_fails_reads_and_works_again_later() {
    let lab = Lab::with_delay(Duration::from_millis(100));
    let source = lab.open(64 << 20);
    lab.leave(true);
    let id = lab.score.0;
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(source.page(&id).unwrap_err().kind(), ErrorKind::Transient));
        }
    });
    assert!(lab.fetches() <= 5, "{}", lab.fetches());
    lab.leave(false);
    assert!(source.page(&id).is_ok());
}

#[test]
fn a_cache_smaller_than_the_disk_still_delivers_the_disk() {
    let lab = Lab::new();
    let source = lab.open(8 << 20);
    for _ in 0..2 {
        assert!(lab.is_right_through(&source));
        assert!(source.node().cache().counts().bytes <= 9 << 20);
    }
    assert!(source.node().counters().evicted > 0);
}

#[test]
fn without_room_reads_succeed_and_nothing_is_cached() {
    let lab = Lab::new();
    let source = lab.open(64 << 20);
    lab.disk.set_capacity(2 << 20);
    assert!(lab.is_right_through(&source));
    assert!(source.node().counters().refused > 0);
    lab.disk.set_capacity(u64::MAX);
    assert!(lab.is_right_through(&source));
    let fetches = lab.fetches();
    assert!(lab.is_right_through(&source));
    assert_eq!(lab.fetches(), fetches, "everything is cached once there is room again");
}

#[test]
fn damage_in_the_cache_costs_a_fetch_and_no_byte() {
    let lab = Lab::new();
    let source = lab.open(64 << 20);
    assert!(lab.is_right_through(&source));
    let fetches = lab.fetches();
    for again in [false, true] {
        for (n, segment) in lab.segments().iter().enumerate() {
            let mut bytes = lab.disk.contents(segment).unwrap();
            let at = bytes.len() / 3 + n * 1000;
            bytes[at] ^= 0x10;
            lab.disk.overwrite(segment, &bytes);
        }
        assert!(lab.is_right_through(&source));
        let fetched = lab.fetches() - fetches;
        assert!((5..60).contains(&fetched), "{fetched}, {again}");
    }
    assert!(source.node().counters().damaged >= 10);
}

/// A disk that is reported as filled is durable at that moment.
#[test]
fn a_disk_is_reported_filled_only_when_a_power_loss_removes_nothing_of_it() {
    let lab = Lab::new();
    let source = lab.open(64 << 20);
    let (told, heard) = mpsc::channel();
    let disk = lab.disk.clone();
    let on_filled = Box::new(move || told.send(disk.fork()).unwrap());
    let fill = Fill::start(source.clone(), lab.score, None, on_filled).unwrap();
    let crashed = heard.recv_timeout(Duration::from_secs(60)).unwrap();
    let status = fill.status();
    assert!(status.filled && status.held == status.blocks && status.blocks > 180, "{status:?}");
    fill.stop();
    crashed.crash(CrashProfile::Nothing, 1);
    lab.leave(true);
    let source = lab.open_on(&crashed, 64 << 20);
    assert!(lab.is_right_through(&source));
    // It stays while other disks are cached and evicted.
    let cache = source.node().cache();
    assert!(cache.counts().pinned_bytes > LENGTH as u64);
    let (told, heard) = mpsc::channel();
    let fill =
        Fill::start(source.clone(), lab.score, None, Box::new(move || told.send(()).unwrap())).unwrap();
    heard.recv_timeout(Duration::from_secs(60)).unwrap();
    fill.stop();
}

#[test]
fn a_fill_waits_for_an_unavailable_source_and_continues() {
    let lab = Lab::new();
    let source = lab.open(64 << 20);
    assert!(source.fetch(Kind::Page, &lab.score.0).unwrap());
    lab.leave(true);
    let (told, heard) = mpsc::channel();
    let fill =
        Fill::start(source.clone(), lab.score, None, Box::new(move || told.send(()).unwrap())).unwrap();
    while fill.status().trouble.is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!fill.status().filled);
    lab.leave(false);
    heard.recv_timeout(Duration::from_secs(60)).unwrap();
    fill.stop();
}

#[test]
fn filling_a_disk_larger_than_the_cache_reports_an_error() {
    let lab = Lab::new();
    let source = lab.open(8 << 20);
    let fill = Fill::start(source.clone(), lab.score, None, Box::new(|| {})).unwrap();
    while fill.status().trouble.is_none() {
        assert!(!fill.status().filled);
        thread::sleep(Duration::from_millis(5));
    }
    assert!(fill.status().trouble.unwrap().contains("too small"));
    fill.stop();
    assert!(lab.is_right_through(&source), "and reading still works");
}

#[test]
fn a_fill_that_runs_once_tells_errors_and_ends_when_nobody_looks() {
    let lab = Lab::new();
    let source = lab.open(64 << 20);
    lab.leave(true);
    let once =
        |look: &mut dyn FnMut() -> Result<()>| Fill::new(lab.score, None).once(&source, &mut |_| look());
    let error = once(&mut || Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient, "{error}");
    assert!(once(&mut || Err(Error::refused("gone"))).unwrap_err().to_string().contains("gone"));
    lab.leave(false);
    // What was requested before may still fail.
    while let Err(error) = once(&mut || Ok(())) {
        assert_eq!(error.kind(), ErrorKind::Transient, "{error}");
    }
    lab.leave(true);
    assert!(lab.is_right_through(&source) && source.node().cache().counts().pinned_bytes > LENGTH as u64);
}

#[test]
fn located_frames_can_be_read_after_their_eviction() {
    let lab = Lab::new();
    let source = lab.open(8 << 20);
    let recipe = Recipe::open(lab.score, &lab.below.store).unwrap();
    let blocks =
        recipe.entries(Extent::new(0, LENGTH as u64)).filter_map(|entry| match entry.unwrap().state {
            State::Data { block, .. } => Some(block),
            _ => None,
        });
    let blocks: Vec<BlockId> = blocks.collect();
    let frames = HeldFrames::new(source.node().clone());
    assert!(frames.locate(&blocks[0]).unwrap().is_none(), "nothing is fetched");
    let read = |address| {
        let mut stored = Vec::new();
        frames.read_frame(address, &mut stored).map(|()| stored)
    };
    let located: Vec<_> = blocks[..16]
        .iter()
        .map(|id| {
            assert!(source.fetch(Kind::Data, id).unwrap());
            let address = frames.locate(id).unwrap().unwrap().frame;
            (address, read(address).unwrap())
        })
        .collect();
    blocks.iter().for_each(|id| assert!(source.fetch(Kind::Data, id).unwrap()));
    assert!(blocks[..16].iter().all(|id| !source.node().cache().holds(id)), "they are evicted");
    assert!(located.iter().all(|(address, stored)| read(*address).unwrap() == *stored));
}
