//! A delta install yields the disk of a plain install, whatever the target held, and whatever fails.
#![expect(clippy::unwrap_used, reason = "a test may")]

mod memory;

use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memory::{MemoryDevice, MemoryStore};
use platter_disk::capture::{CaptureOptions, capture};
use platter_disk::install::{
    Delta, EdgesLast, FreeSpace, InstallCounts, InstallOptions, Local, TargetState, compare_rest,
    install_delta, is_alike,
};
use platter_disk::partition::TableChanges;
use platter_image::chunking::{FileRun, Region};
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, DiskWrite, Extent, Extents, Result, Score};

const DISK: usize = 12 << 20;
const GRID: usize = 32 << 10;

/// Incompressible bytes, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length / 8).flat_map(|_| random()).collect()
}

fn capture_disk(disk: &Vec<u8>, store: &MemoryStore, region: &Region) -> Score {
    let regions = std::slice::from_ref(region);
    capture(disk, regions, None, store, CaptureOptions::default(), &mut |_| {}).unwrap().score
}

fn whole_region() -> Region {
    Region::whole(Extent::new(0, DISK as u64))
}

/// Parts are allocated: files whose blocks do not begin on the grid, zeros, and cells of the grid with gaps.
fn region_with_gaps() -> Region {
    let mut region = Region { allocated: Extents::new(), ..whole_region() };
    let mut position = 0;
    for i in 0_u64.. {
        let extent = Extent::new(position, (i * 37 % 90 + 1) * 512);
        if extent.end() > DISK as u64 {
            return region;
        }
        region.allocated.push(extent);
        match i % 5 {
            0 => region.zeroed.push(extent),
            1 | 2 => region.files.push(FileRun::new(extent.offset, extent.length, i * 8 * 512)),
            _ => {}
        }
        position = extent.end() + i % 4 * 512;
    }
    region
}

/// A target whose reads or writes fail.
struct Faulty {
    device: MemoryDevice,
    unreadable: Option<Extent>,
    writes_left: AtomicU64,
}

impl Faulty {
    fn new(bytes: Vec<u8>) -> Self {
        let device = MemoryDevice(Mutex::new(bytes));
        Self { device, unreadable: None, writes_left: AtomicU64::new(u64::MAX) }
    }

    fn act(&self) -> io::Result<()> {
        let left =
            self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }

    fn bytes(&self) -> Vec<u8> {
        self.device.0.lock().clone()
    }
}

impl DiskRead for Faulty {
    fn length(&self) -> u64 {
        DiskRead::length(&self.device)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let range = Extent::new(offset, buffer.len() as u64);
        if self.unreadable.is_some_and(|bad| bad.intersect(&range).is_some()) {
            return Err(io::ErrorKind::Other.into());
        }
        self.device.read_exact_at(buffer, offset)
    }
}

impl DiskWrite for Faulty {
    fn length(&self) -> u64 {
        DiskRead::length(&self.device)
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.act()?;
        self.device.write_all_at(buffer, offset)
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.act()?;
        self.device.write_zeroes(offset, length)
    }

    fn flush(&self) -> io::Result<()> {
        self.act()
    }
}

impl DiskRead for &mut Faulty {
    fn length(&self) -> u64 {
        DiskRead::length(&**self)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, offset)
    }
}

impl DiskWrite for &mut Faulty {
    fn length(&self) -> u64 {
        DiskRead::length(&**self)
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        (**self).write_all_at(buffer, offset)
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        (**self).write_zeroes(offset, length)
    }

    fn flush(&self) -> io::Result<()> {
        DiskWrite::flush(&**self)
    }
}

/// Installs onto the target, and compares it by hashes and with the store.
fn install_onto(
    target: &mut Faulty,
    store: &MemoryStore,
    score: Score,
    free: FreeSpace,
) -> Result<(InstallCounts, Delta)> {
    let recipe = Recipe::open(score, store)?;
    let whole = Extent::new(0, DISK as u64);
    let mut delta = Delta::of_target(&recipe, whole, free, target, true, &|_| {})?;
    delta.search_target(&recipe, target);
    let options = InstallOptions { free, ..InstallOptions::default() };
    let state = Arc::new(TargetState::new(Path::new("disk")));
    let edges = EdgesLast::begin(target, DISK as u64, state)?;
    let counts = install_delta(&recipe, store, &edges, options, &|_| {}, &Local::new(&delta, &edges))?;
    let right = Delta::of_target(&recipe, whole, free, &edges, false, &|_| {})?;
    compare_rest(&recipe, store, &edges, options, &|_| {}, &Local::new(&right, &edges))?;
    edges.finish(true, Some(&TableChanges::default()), &Extents::new())?;
    Ok((counts, delta))
}

/// What a plain install makes of a target.
fn expected(disk: &[u8], region: &Region, before: &[u8], free: FreeSpace) -> Vec<u8> {
    let mut bytes = match free {
        FreeSpace::Skip => before.to_vec(),
        FreeSpace::Zero => vec![0; DISK],
    };
    // The edges are emptied.
    bytes[..1 << 20].fill(0);
    bytes[DISK - (1 << 20)..].fill(0);
    for extent in &region.allocated {
        let range = extent.offset as usize..extent.end() as usize;
        bytes[range.clone()].copy_from_slice(&disk[range]);
    }
    for extent in &region.zeroed.subtract(&region.files.iter().map(FileRun::extent).collect::<Extents>()) {
        bytes[extent.offset as usize..extent.end() as usize].fill(0);
    }
    bytes
}

#[test]
fn whatever_the_target_held_the_disk_is_right() {
    let store = MemoryStore::default();
    let region = region_with_gaps();
    let disk = noise(1, DISK);
    let score = capture_disk(&disk, &store, &region);
    for free in [FreeSpace::Skip, FreeSpace::Zero] {
        let mut before = disk.clone();
        for part in 0..40 {
            let start = part * DISK / 40 / 512 * 512;
            match part % 4 {
                0 => before[start..start + 50_176].copy_from_slice(&noise(part as u64 + 7, 50_176)),
                1 => before[start..start + 512].fill(0),
                2 => before.copy_within(start..start + 70_144, start + 70_144),
                _ => {}
            }
        }
        let mut target = Faulty::new(before.clone());
        let (counts, delta) = install_onto(&mut target, &store, score, free).unwrap();
        assert!(target.bytes() == expected(&disk, &region, &before, free), "{free:?}");
        let (kept, _) = delta.held_bytes();
        assert!(kept > 0 && counts.data > 0 && kept > counts.data, "{kept} kept, {counts:?}");
        // Once more: only blocks in the edges are written, from memory.
        let before = target.bytes();
        let (counts, _) = install_onto(&mut target, &store, score, free).unwrap();
        assert!(target.bytes() == expected(&disk, &region, &before, free), "{free:?}");
        assert!(counts.data <= 3 << 20 && counts.frame_bytes < 2 << 20, "{counts:?}");
    }
}

/// The halves of a disk change places: every block is the source of a block that overwrites another source.
#[test]
fn blocks_that_change_places_are_copied() {
    let store = MemoryStore::default();
    let disk = noise(2, DISK);
    let score = capture_disk(&disk, &store, &whole_region());
    let mut before = disk.clone();
    before.rotate_left(DISK / 2);
    let mut target = Faulty::new(before);
    let (counts, delta) = install_onto(&mut target, &store, score, FreeSpace::Skip).unwrap();
    assert!(target.bytes() == disk);
    assert_eq!((counts.data, counts.frame_bytes), (DISK as u64, 0), "nothing is fetched");
    assert_eq!(delta.copied_bytes(), DISK as u64);
}

#[test]
fn another_disk_supplies_blocks_unless_it_changes() {
    let store = MemoryStore::default();
    let disk = noise(3, DISK);
    let score = capture_disk(&disk, &store, &whole_region());
    let recipe = Recipe::open(score, &store).unwrap();
    for is_changed in [false, true] {
        let target = MemoryDevice::filled(DISK, 0xaa);
        let whole = Extent::new(0, DISK as u64);
        let mut delta = Delta::of_target(&recipe, whole, FreeSpace::Skip, &target, false, &|_| {}).unwrap();
        let other = Arc::new(MemoryDevice(Mutex::new(disk.clone())));
        delta.search_other(&recipe, Box::new(Shared(other.clone())), None);
        if is_changed {
            other.0.lock().fill(0);
        }
        let options = InstallOptions::default();
        let counts =
            install_delta(&recipe, &store, &target, options, &|_| {}, &Local::new(&delta, &target)).unwrap();
        assert!(*target.0.lock() == disk, "what does not have its hash any more is fetched");
        assert_eq!(counts.frame_bytes > DISK as u64 / 2, is_changed);
        assert_eq!(counts.frame_bytes == 0, !is_changed);
    }
}

struct Shared(Arc<MemoryDevice>);

impl DiskRead for Shared {
    fn length(&self) -> u64 {
        DiskRead::length(&*self.0)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
}

#[test]
fn unreadable_parts_of_the_target_are_written() {
    let store = MemoryStore::default();
    let disk = noise(4, DISK);
    let score = capture_disk(&disk, &store, &whole_region());
    let recipe = Recipe::open(score, &store).unwrap();
    let mut target = Faulty::new(disk.clone());
    target.device.0.lock()[5 << 20..6 << 20].fill(1);
    target.unreadable = Some(Extent::new(5 << 20, 1 << 20));
    let whole = Extent::new(0, DISK as u64);
    let mut delta = Delta::of_target(&recipe, whole, FreeSpace::Skip, &target, false, &|_| {}).unwrap();
    delta.search_target(&recipe, &target);
    let local = Local::new(&delta, &target);
    let counts = install_delta(&recipe, &store, &target, InstallOptions::default(), &|_| {}, &local).unwrap();
    assert!(target.bytes() == disk);
    assert!(counts.data >= 1 << 20 && counts.data < 4 << 20, "{counts:?}");
}

/// Every write fails once. The target then never looks complete unless it is, and repeating the install completes it.
#[test]
fn an_interrupted_install_is_completed_by_the_next() {
    let store = MemoryStore::default();
    let disk = noise(5, DISK);
    let score = capture_disk(&disk, &store, &whole_region());
    let mut before = disk.clone();
    before[..DISK / 2].rotate_left(3 * GRID);
    before[8 << 20..9 << 20].fill(7);
    for writes in 0.. {
        let mut target = Faulty::new(before.clone());
        target.writes_left = AtomicU64::new(writes);
        let is_done = install_onto(&mut target, &store, score, FreeSpace::Skip).is_ok();
        let found = target.bytes();
        let is_untouched = found == before;
        let looks_empty = found[..4096].iter().all(|byte| *byte == 0);
        assert!(is_untouched || looks_empty || found == disk, "after {writes} writes");
        assert!(!is_done || found == disk, "after {writes} writes");
        target.writes_left = AtomicU64::new(u64::MAX);
        install_onto(&mut target, &store, score, FreeSpace::Skip).unwrap();
        assert!(target.bytes() == disk, "after {writes} writes, and again");
        if is_done {
            assert!(writes > 8, "all of the writes were tried");
            return;
        }
    }
}

#[test]
fn samples_recognize_a_similar_disk() {
    let store = MemoryStore::default();
    let disk = noise(6, DISK);
    let score = capture_disk(&disk, &store, &whole_region());
    let recipe = Recipe::open(score, &store).unwrap();
    let whole = Extent::new(0, DISK as u64);
    let alike = |bytes: Vec<u8>| is_alike(&recipe, whole, &bytes).unwrap();
    assert!(alike(disk.clone()));
    let mut half = disk.clone();
    half[DISK / 2..].fill(0);
    assert!(alike(half));
    assert!(!alike(noise(7, DISK)) && !alike(vec![0; DISK]));
}
