//! Capture and install with stores and devices in memory: a disk is restored as captured, damage is refused,
//! and errors name their cause.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod memory;

use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memory::{MemoryDevice, MemoryStore};
use platter_disk::capture::{Base, CaptureOptions, Captured, capture};
use platter_disk::install::{FreeSpace, InstallOptions, compare, install};
use platter_disk::{SurveyOptions, survey};
use platter_image::chunking::{FileRun, Region};
use platter_image::frame::EncodedFrame;
use platter_image::recipe::Recipe;
use platter_image::{
    BlockId, BlockPlace, DiskRead, DiskWrite, ErrorKind, Extent, Extents, FrameAddress, FrameIndex,
    FrameSource, FrameStore, Lease, Pin, Result,
};

const DISK: usize = 24 << 20;

/// A disk for that seed: runs of repeating text, noise and zeros.
fn disk(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(DISK);
    while bytes.len() < DISK {
        let length = ((random() % 100 + 1) * 512 * 7) as usize;
        match random() % 3 {
            0 => bytes.resize(bytes.len() + length, 0),
            1 => bytes.extend(std::iter::repeat_n(random().to_le_bytes(), length / 8).flatten()),
            _ => bytes.extend((0..length / 8).flat_map(|_| random().to_le_bytes())),
        }
    }
    bytes.truncate(DISK);
    bytes
}

/// A region with free space, files and zeroed parts.
fn region() -> Region {
    let (mut allocated, mut zeroed, mut files, mut position) =
        (Extents::new(), Extents::new(), Vec::new(), 0);
    for i in 0_u64.. {
        let extent = Extent::new(position, (i * 37 % 300 + 1) * 512);
        if extent.end() > DISK as u64 {
            break;
        }
        allocated.push(extent);
        match i % 5 {
            0 => zeroed.push(extent),
            1 | 2 => files.push(FileRun::new(extent.offset, extent.length, i * 8 * 512)),
            _ => {}
        }
        position = extent.end() + i % 4 * 512;
    }
    Region { extent: Extent::new(0, DISK as u64), allocated, zeroed, files }
}

fn options() -> CaptureOptions {
    CaptureOptions { threads: 3, ..CaptureOptions::default() }
}

fn captured(disk: &dyn DiskRead, region: &Region, store: &MemoryStore) -> Captured {
    capture(disk, std::slice::from_ref(region), None, store, options(), &mut |_| {}).unwrap()
}

/// The expected target: the disk's allocated bytes, zeros where zeroed, and `elsewhere` in free space.
fn expected(disk: &[u8], region: &Region, elsewhere: u8) -> Vec<u8> {
    let mut bytes = vec![elsewhere; DISK];
    for extent in &region.allocated {
        let range = extent.offset as usize..extent.end() as usize;
        bytes[range.clone()].copy_from_slice(&disk[range]);
    }
    for extent in &region.zeroed {
        bytes[extent.offset as usize..extent.end() as usize].fill(0);
    }
    bytes
}

fn assert_same(found: &MemoryDevice, wanted: &[u8]) {
    let found = found.0.lock();
    if let Some(at) = found.iter().zip(wanted).position(|(found, wanted)| found != wanted) {
        panic!("byte {at} differs");
    }
}

/// A disk of 15 TiB with little data. It counts reads, writes and requests for zeros.
#[derive(Default)]
struct Sparse {
    calls: AtomicU64,
    written: Mutex<Vec<(u64, usize)>>,
    zeroed: Mutex<Vec<Extent>>,
}

const SPARSE_LENGTH: u64 = 15 << 40;
const SPARSE_DATA: [Extent; 3] =
    [Extent::new(0, 22_016), Extent::new(9 << 40, 4096), Extent::new(SPARSE_LENGTH - 512, 512)];

impl DiskRead for Sparse {
    fn length(&self) -> u64 {
        SPARSE_LENGTH
    }

    fn read_exact_at(&self, buffer: &mut [u8], _: u64) -> io::Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        buffer.fill(7);
        Ok(())
    }
}

impl DiskWrite for Sparse {
    fn length(&self) -> u64 {
        SPARSE_LENGTH
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.written.lock().push((offset, buffer.len()));
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.zeroed.lock().push(Extent::new(offset, length));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The cost of a sparse disk depends on its data, not its length.
#[test]
fn a_sparse_disk_costs_little() {
    let all = Extent::new(0, SPARSE_LENGTH);
    let zeroed = SPARSE_DATA.into_iter().collect::<Extents>().complement(all);
    let region = Region { zeroed, ..Region::whole(all) };
    let (disk, store, target) = (Sparse::default(), MemoryStore::default(), Sparse::default());
    let done = captured(&disk, &region, &store);
    assert_eq!((done.counts.data, done.counts.zero), (26_624, SPARSE_LENGTH - 26_624));
    assert!(disk.calls.into_inner() < 10 && store.index.lock().len() < 200);
    let recipe = Recipe::open(done.score, &store).unwrap();
    install(&recipe, &store, &target, InstallOptions::default(), &|_| {}).unwrap();
    assert!(target.calls.into_inner() < 10);
    let zeroed: Extents = target.zeroed.into_inner().into_iter().collect();
    let written = target.written.into_inner();
    let written: Extents =
        written.into_iter().map(|(offset, length)| Extent::new(offset, length as u64)).collect();
    assert_eq!(zeroed.total() + written.total(), SPARSE_LENGTH);
    assert_eq!(zeroed.subtract(&written), zeroed);
}

/// The runs of zeros of at least `block` bytes on that disk, as a filesystem with such blocks would leave
/// holes.
fn zeros_of(disk: &[u8], block: usize) -> Extents {
    let zeros = disk.chunks(block).enumerate().filter(|(_, bytes)| bytes.iter().all(|byte| *byte == 0));
    zeros.map(|(at, bytes)| Extent::new((at * block) as u64, bytes.len() as u64)).collect()
}

/// A disk has the same score whether its zeros are holes of the file or stored bytes, although holes end
/// inside grid cells and the partition does not start at a multiple of the grid.
#[test]
fn a_disk_has_one_score_with_and_without_holes() {
    for seed in 0..4 {
        let mut bytes = disk(seed);
        bytes[..512].fill(0);
        bytes[450] = 0x83;
        bytes[454..458].copy_from_slice(&63_u32.to_le_bytes());
        bytes[458..462].copy_from_slice(&40_000_u32.to_le_bytes());
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        let store = MemoryStore::default();
        let score = |data: Option<&Extents>| {
            let survey = survey(&bytes, data, &SurveyOptions::default()).unwrap();
            assert_eq!(survey.parts[1].region.extent.offset, 63 * 512);
            let regions: Vec<Region> = survey.parts.into_iter().map(|part| part.region).collect();
            let done = capture(&bytes, &regions, None, &store, options(), &mut |_| {}).unwrap();
            (done.score, done.counts.data, done.counts.zero)
        };
        let dense = score(None);
        for block in [512, 4096, 65_536] {
            let data = zeros_of(&bytes, block).complement(Extent::new(0, DISK as u64));
            assert_eq!(score(Some(&data)), dense, "seed {seed}, holes of {block} bytes");
        }
    }
}

/// A store that counts lookups, allows several at once, and wants announcements.
#[derive(Default)]
struct Far {
    store: MemoryStore,
    single: AtomicU64,
    together: AtomicU64,
    hinted: Mutex<Vec<BlockId>>,
}

impl FrameSource for Far {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }

    fn will_need(&self, ids: &[BlockId]) {
        self.hinted.lock().extend(ids);
    }

    fn hint_length(&self) -> u64 {
        1
    }
}

impl FrameIndex for Far {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        assert!(self.hinted.lock().contains(id), "{id} is read and was not told");
        self.store.locate(id)
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.store.read_frame(address, stored)
    }
}

impl FrameStore for Far {
    fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<Pin>> {
        self.single.fetch_add(1, Ordering::Relaxed);
        self.store.lookup_and_pin(id)
    }

    fn lookup_and_pin_all(&self, ids: &[BlockId]) -> Result<Vec<Option<Pin>>> {
        self.together.fetch_add(1, Ordering::Relaxed);
        ids.iter().map(|id| self.store.lookup_and_pin(id)).collect()
    }

    fn append(&self, frame: &EncodedFrame) -> Result<Pin> {
        self.store.append(frame)
    }

    fn lookups_under_way(&self) -> usize {
        3
    }
}

/// A far store gets few lookups for many blocks each, and a reader announces the blocks that it will need.
#[test]
fn a_far_store_gets_few_lookups_and_announcements() {
    let (bytes, region, far) = (disk(5), region(), Far::default());
    let regions = std::slice::from_ref(&region);
    let source = MemoryDevice(Mutex::new(bytes.clone()));
    let run = || capture(&source, regions, None, &far, options(), &mut |_| {}).unwrap();
    let first = run();
    far.single.store(0, Ordering::Relaxed);
    far.together.store(0, Ordering::Relaxed);
    assert_eq!(run().score, first.score);
    let together = far.together.load(Ordering::Relaxed);
    assert_eq!(far.single.load(Ordering::Relaxed), 0);
    assert!(together < first.counts.new_blocks / 10, "{together} lookups");
    let near = captured(&source, &region, &MemoryStore::default());
    assert_eq!((near.score, near.counts), (first.score, first.counts));
    let target = MemoryDevice::filled(DISK, 0x5a);
    let recipe = Recipe::open(first.score, &far.store).unwrap();
    install(&recipe, &far, &target, InstallOptions::default(), &|_| {}).unwrap();
    assert_same(&target, &expected(&bytes, &region, 0x5a));
}

#[test]
fn a_captured_disk_is_restored() {
    for (seed, region) in [(1, region()), (2, Region::whole(Extent::new(0, DISK as u64)))] {
        let (disk, store) = (disk(seed), MemoryStore::default());
        let done = captured(&disk, &region, &store);
        assert_eq!(done.counts.allocated, region.allocated.total());
        assert_eq!(done.counts.zero + done.counts.data, done.counts.allocated);
        let recipe = Recipe::open(done.score, &store).unwrap();
        for free in [FreeSpace::Skip, FreeSpace::Zero] {
            let target = MemoryDevice::filled(DISK + 4096, 0xaa);
            let options = InstallOptions { free, threads: 3 };
            let counts = install(&recipe, &store, &target, options, &|_| {}).unwrap();
            let mut wanted = expected(&disk, &region, if free == FreeSpace::Skip { 0xaa } else { 0 });
            wanted.resize(DISK + 4096, 0xaa);
            assert_same(&target, &wanted);
            assert_eq!(compare(&recipe, &store, &target, options, &|_| {}).unwrap().data, counts.data);

            let at = region.allocated.as_slice()[0].offset as usize;
            target.0.lock()[at] ^= 1;
            let error = compare(&recipe, &store, &target, options, &|_| {}).unwrap_err();
            assert!(error.to_string().contains(&format!("byte {at} ")), "{error}");
        }
    }
}

#[test]
fn second_capture_adds_nothing_and_changes_add_little() {
    let (mut bytes, region, store) = (disk(3), region(), MemoryStore::default());
    let first = captured(&bytes, &region, &store);
    let second = captured(&bytes, &region, &store);
    assert_eq!((second.score, second.counts.new_frames), (first.score, 0));
    bytes[region.files[5].extent().offset as usize] ^= 1;
    let third = captured(&bytes, &region, &store);
    assert_ne!(third.score, first.score);
    assert_eq!(third.counts.new_blocks, 1);
}

#[test]
fn the_result_does_not_depend_on_threads() {
    let (disk, region) = (disk(4), region());
    let score = |threads| {
        let store = MemoryStore::default();
        let options = CaptureOptions { threads, ..options() };
        capture(&disk, std::slice::from_ref(&region), None, &store, options, &mut |_| {}).unwrap().score
    };
    assert_eq!(score(1), score(4));
}

#[test]
fn damaged_frames_are_never_written() {
    let (disk, region, store) = (disk(5), region(), MemoryStore::default());
    let done = captured(&disk, &region, &store);
    let recipe = Recipe::open(done.score, &store).unwrap();
    let wanted = expected(&disk, &region, 0xaa);
    for at in [60, 700, 20_000] {
        store.frames.lock()[3][at] ^= 0x10;
        let target = MemoryDevice::filled(DISK, 0xaa);
        let error = install(&recipe, &store, &target, InstallOptions::default(), &|_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        store.frames.lock()[3][at] ^= 0x10;
        let found = target.0.lock();
        assert!(found.iter().zip(&wanted).all(|(found, wanted)| found == wanted || *found == 0xaa));
    }
}

/// A disk that counts the bytes read.
struct Counted(Vec<u8>, AtomicU64);

impl DiskRead for Counted {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.0.read_exact_at(buffer, offset)
    }
}

/// Capturing a changed version reads only the changes, and gives the same disk as reading everything.
#[test]
fn unchanged_data_is_not_read() {
    let whole = Region::whole(Extent::new(0, DISK as u64));
    for (seed, second) in [(7_u64, region()), (8, whole), (9, region())] {
        let (first, store) = (region(), MemoryStore::default());
        let before = disk(seed);
        let recipe = Recipe::open(captured(&before, &first, &store).score, &store).unwrap();
        // A virtual disk shows zeros in free space.
        let mut bytes = expected(&before, &first, 0);
        let run = |i: u64| Extent::new((i * 600 + i * i % 7 * seed) << 10, (i % 4 * i % 50 + 1) << 12);
        let changed: Extents = (0..40).map(run).collect();
        for run in &changed {
            let range = run.offset as usize..run.end() as usize;
            bytes[range.clone()].copy_from_slice(&disk(seed + 100)[range]);
        }
        let disk = Counted(bytes, AtomicU64::new(0));
        let entries = |range| recipe.entries(range).collect();
        let base = Base { entries: &entries, changed: &changed };
        let regions = [second];
        let done = capture(&disk, &regions, Some(&base), &store, options(), &mut |_| {}).unwrap();
        let read = disk.1.into_inner();
        assert!(read > 0 && read < changed.total() * 3, "{read} read of {} changed", changed.total());
        assert!(done.counts.new_raw <= changed.total() * 2);
        let recipe = Recipe::open(done.score, &store).unwrap();
        let target = MemoryDevice::filled(DISK, 0xaa);
        install(&recipe, &store, &target, InstallOptions::default(), &|_| {}).unwrap();
        assert_same(&target, &expected(&disk.0, &regions[0], 0xaa));
    }
}

/// A disk that cannot be read from some offset on.
struct Failing(Vec<u8>, u64);

impl DiskRead for Failing {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if offset + buffer.len() as u64 > self.1 {
            return Err(io::Error::other("a bad sector"));
        }
        self.0.read_exact_at(buffer, offset)
    }
}

#[test]
fn errors_name_the_failed_operation() {
    let region = [Region::whole(Extent::new(0, DISK as u64))];
    let run = |disk: &dyn DiskRead, store: &MemoryStore| -> Result<Captured> {
        capture(disk, &region, None, store, options(), &mut |_| {})
    };
    let error = run(&Failing(disk(6), 9 << 20), &MemoryStore::default()).unwrap_err();
    assert!(error.to_string().starts_with("reading "), "{error}");
    let full = MemoryStore { appends_left: Some(10.into()), ..MemoryStore::default() };
    let error = run(&disk(6), &full).unwrap_err();
    assert_eq!(error.to_string(), "appending");

    let store = MemoryStore::default();
    let recipe = Recipe::open(run(&disk(6), &store).unwrap().score, &store).unwrap();
    let error =
        install(&recipe, &store, &MemoryDevice::filled(DISK - 512, 0), InstallOptions::default(), &|_| {});
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Refused);
}
