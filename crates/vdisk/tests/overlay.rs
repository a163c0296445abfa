//! Overlays against a model: acknowledged writes survive a kill, and flushed writes survive a power cut, even
//! though the simulated disk drops, reorders and tears all unsynced writes.
#![expect(clippy::unwrap_used, reason = "a test may")]

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use platter_image::{BlockId, Domain, DomainKeys, ErrorKind, Extent, Extents, Result, Score};
use platter_vdisk::{Allocation, BlockDevice, Overlay, OverlayOptions};
use platter_vfs::simulated::{CrashProfile, Fault, FaultKind, Operation, SimulatedDisk};

const LENGTH: usize = 21 * 4096 + 512;
const PATH: &str = "/d.overlay";

/// A base with a pattern and a hole in the middle.
struct Pattern;

fn base_bytes() -> Vec<u8> {
    (0..LENGTH).map(|at| if (20_000..60_000).contains(&at) { 0 } else { (at % 251) as u8 | 1 }).collect()
}

impl BlockDevice for Pattern {
    fn length(&self) -> u64 {
        LENGTH as u64
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        buffer.copy_from_slice(&base_bytes()[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        let hole = Extent::between(20_480, 57_344);
        for (part, kind) in [
            (Extent::between(0, hole.offset), Allocation::Data),
            (hole, Allocation::Zero),
            (Extent::between(hole.end(), LENGTH as u64), Allocation::Data),
        ] {
            if let Some(part) = part.intersect(&range).filter(|part| part.length > 0)
                && !visit(part, kind)
            {
                return Ok(());
            }
        }
        Ok(())
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

thread_local! {
    /// The domain of the overlays that a test makes.
    static DOMAIN: Cell<Domain> = const { Cell::new(Domain::SHARED) };
}

/// From here on, overlays of this test are encrypted.
fn encrypt() {
    let keys = DomainKeys::derive(&[9; 32], &[1; 32]);
    DOMAIN.set(keys.domain());
    keys.add_to_process().unwrap();
}

fn options(boot: u8) -> OverlayOptions {
    OverlayOptions {
        base_score: Score(BlockId([1; 32])),
        domain: DOMAIN.get(),
        edit_lock: 7,
        boot_id: [boot; 16],
    }
}

fn create(disk: &SimulatedDisk) -> Overlay {
    Overlay::create(disk, Path::new(PATH), &options(0), Arc::new(Pattern)).unwrap()
}

/// Opens it. What is told without opening it is the same.
fn open(disk: &SimulatedDisk, boot: u8) -> Overlay {
    let options = options(boot);
    let written = Overlay::written(disk, Path::new(PATH), options.edit_lock, options.boot_id).unwrap();
    let overlay = Overlay::open(disk, Path::new(PATH), &options, Arc::new(Pattern)).unwrap();
    assert_eq!(written, overlay.dirty());
    overlay
}

fn contents(overlay: &Overlay) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    overlay.read(&mut bytes, 0).unwrap();
    bytes
}

/// Makes one random write or zeroing and applies it to the model as well. If `sectors`, lengths are whole
/// sectors: a power cut may mix two smaller writes to one sector, because the simulated disk keeps or loses
/// each on its own.
fn change(random: &mut Random, overlay: &Overlay, model: &mut [u8], sectors: bool) -> Result<()> {
    let start = random.below(LENGTH as u64 / 512) * 512;
    let start = if random.below(3) == 0 { start / 4096 * 4096 } else { start };
    let length = match random.below(4) {
        0 => 512 * (1 + random.below(4)),
        1 => 4096,
        2 => 4096 * (1 + random.below(6)),
        _ if sectors => 512 * (1 + random.below(18)),
        _ => 1 + random.below(9000),
    }
    .min(LENGTH as u64 - start);
    let range = start as usize..(start + length) as usize;
    if random.below(4) == 0 {
        model[range].fill(0);
        return overlay.write_zeroes(Extent::new(start, length));
    }
    let value = random.below(255) as u8;
    let bytes: Vec<u8> = (0..length).map(|at| value ^ (at / 512) as u8).collect();
    model[range].copy_from_slice(&bytes);
    overlay.write(&bytes, start)
}

#[test]
fn reads_return_what_was_written_across_kills() {
    for seed in 1..60 {
        let (mut random, disk) = (Random(seed * 77_777), SimulatedDisk::new(seed));
        let (mut overlay, mut model) = (create(&disk), base_bytes());
        for step in 0..120 {
            match random.below(12) {
                0 => overlay.flush().unwrap(),
                // The process is killed: nothing may be lost.
                1 => {
                    drop(overlay);
                    overlay = open(&disk, 0);
                }
                _ => change(&mut random, &overlay, &mut model, false).unwrap(),
            }
            assert!(contents(&overlay) == model, "seed {seed}, step {step}");
        }
        let dirty = overlay.dirty();
        let base = base_bytes();
        for (at, (now, before)) in model.iter().zip(&base).enumerate() {
            assert!(
                now == before || dirty.contains(at as u64),
                "seed {seed}: byte {at} was written but is not dirty"
            );
        }
        let (mut told, mut zeros) = (0, Vec::new());
        overlay
            .extents(Extent::new(100, LENGTH as u64 - 100), &mut |extent, allocation| {
                assert_eq!(extent.offset, 100 + told);
                told += extent.length;
                zeros.extend((allocation == Allocation::Zero).then_some(extent));
                true
            })
            .unwrap();
        assert_eq!(told, LENGTH as u64 - 100);
        let zeros: Extents = zeros.into_iter().collect();
        assert!(
            zeros
                .iter()
                .all(|zero| model[zero.offset as usize..zero.end() as usize].iter().all(|byte| *byte == 0))
        );
    }
}

/// One overlay through several power cuts: afterwards every sector holds its contents of the last flush, or a
/// version written since.
fn power_cuts(seed: u64, profile: CrashProfile) {
    let (mut random, disk) = (Random(seed * 99_991 + 3), SimulatedDisk::new(seed));
    let (mut overlay, mut model) = (create(&disk), base_bytes());
    let mut boot = 0;
    for round in 0..6 {
        // The contents that each sector may have: those at the last flush, then those after each later write.
        let mut since = vec![model.clone()];
        if random.below(2) == 0 {
            let call = 1 + random.below(40);
            disk.set_fault(Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None }));
        }
        for _ in 0..random.below(40) {
            let done = match random.below(7) {
                0 => overlay.flush().map(|()| since = vec![model.clone()]),
                1 if random.below(3) == 0 => {
                    drop(overlay);
                    match Overlay::open(&disk, Path::new(PATH), &options(boot), Arc::new(Pattern)) {
                        Ok(opened) => {
                            overlay = opened;
                            // Opening makes everything durable.
                            since = vec![model.clone()];
                        }
                        Err(_) => {
                            overlay = Overlay::create(
                                &SimulatedDisk::new(1),
                                Path::new(PATH),
                                &options(0),
                                Arc::new(Pattern),
                            )
                            .unwrap();
                            break;
                        }
                    }
                    Ok(())
                }
                _ => {
                    let changed = change(&mut random, &overlay, &mut model, true);
                    since.push(model.clone());
                    changed
                }
            };
            if done.is_err() {
                break;
            }
        }
        drop(overlay);
        disk.crash(profile, seed * 1000 + round);
        boot += 1;
        overlay = open(&disk, boot);
        let found = contents(&overlay);
        for (sector, bytes) in found.chunks(512).enumerate() {
            let range = sector * 512..sector * 512 + bytes.len();
            assert!(
                since.iter().any(|then| then[range.clone()] == *bytes),
                "seed {seed} {profile:?}, round {round}: sector {sector} matches none of its {} possible contents",
                since.len()
            );
        }
        model = found;
    }
}

/// A base that is far (`is_near` is false), except for its hole.
struct Far;

impl BlockDevice for Far {
    fn length(&self) -> u64 {
        LENGTH as u64
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        Pattern.read(buffer, offset)
    }

    fn is_near(&self, range: Extent) -> Option<bool> {
        Some(range.offset >= 20_480 && range.end() <= 57_344)
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        Pattern.extents(range, visit)
    }
}

#[test]
fn is_near_is_unknown_for_written_blocks_and_asks_the_base_for_others() {
    let disk = SimulatedDisk::new(1);
    let overlay = Overlay::create(&disk, Path::new(PATH), &options(0), Arc::new(Far)).unwrap();
    let near = |first: u64, blocks: u64| overlay.is_near(Extent::new(first * 4096, blocks * 4096));
    assert_eq!([near(0, 2), near(6, 2), near(4, 2)], [Some(false), Some(true), Some(false)]);
    overlay.write(&[1; 4096], 0).unwrap();
    overlay.write(&[1; 4096], 7 * 4096).unwrap();
    overlay.write_zeroes(Extent::new(4096, 4096)).unwrap();
    assert_eq!([near(0, 1), near(1, 1), near(0, 2), near(6, 3)], [None, Some(true), None, None]);
    assert_eq!([near(0, 4), near(2, 2)], [Some(false), Some(false)]);
}

#[test]
fn power_cuts_lose_no_flushed_data() {
    for seed in 0..150 {
        for profile in CrashProfile::EVERY {
            power_cuts(seed, profile);
        }
    }
}

/// 17,000 overlays with six power cuts each; takes minutes, so only `make test-full` runs it.
#[test]
#[ignore = "minutes: 100,000 power cuts"]
fn many_power_cuts() {
    for seed in 1000..3834 {
        for profile in CrashProfile::EVERY {
            power_cuts(seed, profile);
        }
    }
}

#[test]
fn writes_and_flushes_fail_after_a_failed_sync() {
    let disk = SimulatedDisk::new(1);
    let overlay = create(&disk);
    overlay.write(&[5; 4096], 0).unwrap();
    disk.set_fault(Some(Fault {
        call: 1,
        kind: FaultKind::Io,
        persistent: false,
        only: Some(Operation::Sync),
    }));
    assert!(overlay.flush().is_err());
    assert!(overlay.flush().is_err(), "a later sync proves nothing about earlier writes");
    assert!(overlay.write(&[6; 512], 0).is_err());
    assert!(contents(&overlay)[..4096].iter().all(|byte| *byte == 5), "reads still work");
}

/// After a failed sync the system may mark lost pages as clean. Opening in the same boot must make what is
/// visible durable again.
#[test]
fn reopening_rewrites_what_a_failed_sync_left_uncertain() {
    let disk = SimulatedDisk::new(1);
    let overlay = create(&disk);
    overlay.write(&[5; 4096], 0).unwrap();
    overlay.flush().unwrap();
    overlay.flush().unwrap();
    overlay.write(&[6; 512], 512).unwrap();
    overlay.write(&[7; 8192], 8192).unwrap();
    disk.set_fault(Some(Fault {
        call: 1,
        kind: FaultKind::Io,
        persistent: false,
        only: Some(Operation::Sync),
    }));
    assert!(overlay.flush().is_err());
    drop(overlay);
    let shown = contents(&open(&disk, 0));
    disk.crash(CrashProfile::Nothing, 1);
    assert!(contents(&open(&disk, 1)) == shown);
}

#[test]
fn a_full_disk_fails_writes_and_corrupts_nothing() {
    for call in 1..30 {
        let disk = SimulatedDisk::new(call);
        let (overlay, mut model) = (create(&disk), base_bytes());
        disk.set_fault(Some(Fault { call, kind: FaultKind::NoSpace, persistent: true, only: None }));
        for block in 0..10_u64 {
            let bytes = [block as u8 + 1; 4096];
            if overlay.write(&bytes, block * 8192).is_ok() {
                model[block as usize * 8192..][..4096].copy_from_slice(&bytes);
            } else {
                // The failed write may have happened or not.
                let range = block as usize * 8192..block as usize * 8192 + 4096;
                let found = contents(&overlay);
                assert!(found[range.clone()] == bytes || found[range.clone()] == model[range.clone()]);
                model[range.clone()].copy_from_slice(&found[range]);
            }
            assert!(contents(&overlay) == model, "call {call}, block {block}");
        }
        disk.set_fault(None);
        overlay.write(&[9; 4096], 0).unwrap();
        overlay.flush().unwrap();
    }
}

#[test]
fn used_space_follows_the_written_data() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("o");
    let large: Arc<dyn BlockDevice> = Arc::new(Large);
    let overlay = Overlay::create(&platter_vfs::OsVfs, &path, &options(0), large).unwrap();
    let used = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let empty = used();
    assert!(empty <= 64 << 10);
    for at in 0..16 {
        overlay.write(&[1; 1 << 20], at << 30).unwrap();
    }
    overlay.flush().unwrap();
    assert!(used() - empty < (17 << 20), "{}", used());
    overlay.write_zeroes(Extent::new(0, 16 << 30)).unwrap();
    overlay.flush().unwrap();
    assert!(used() - empty < (1 << 20), "{}", used());
    assert!(overlay.dirty().total() <= 16 << 20, "zeroing zeros must record nothing");
}

/// 16 GiB of zeros.
struct Large;

impl BlockDevice for Large {
    fn length(&self) -> u64 {
        16 << 30
    }

    fn read(&self, buffer: &mut [u8], _: u64) -> Result<()> {
        buffer.fill(0);
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Zero);
        Ok(())
    }
}

#[test]
fn rebase_replaces_the_base_and_keeps_the_writes() {
    let disk = SimulatedDisk::new(1);
    let overlay = create(&disk);
    overlay.write(&[5; 4096], 4096).unwrap();
    let other = Score(BlockId([2; 32]));
    struct Sevens;
    impl BlockDevice for Sevens {
        fn length(&self) -> u64 {
            LENGTH as u64
        }
        fn read(&self, buffer: &mut [u8], _: u64) -> Result<()> {
            buffer.fill(7);
            Ok(())
        }
        fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
            visit(range, Allocation::Data);
            Ok(())
        }
    }
    overlay.rebase(other, Arc::new(Sevens)).unwrap();
    let mut wanted = vec![7; LENGTH];
    wanted[4096..8192].fill(5);
    assert!(contents(&overlay) == wanted);
    drop(overlay);
    disk.crash(CrashProfile::Nothing, 1);
    let again = Overlay::open(&disk, Path::new(PATH), &options(1), Arc::new(Pattern));
    assert_eq!(again.err().map(|error| error.kind()), Some(ErrorKind::Refused));
    let options = OverlayOptions { base_score: other, ..options(1) };
    let overlay = Overlay::open(&disk, Path::new(PATH), &options, Arc::new(Sevens)).unwrap();
    assert!(contents(&overlay) == wanted);
}

/// Opening and reading a damaged overlay never panics.
#[test]
fn a_damaged_overlay_does_not_panic() {
    let disk = SimulatedDisk::new(1);
    let overlay = create(&disk);
    overlay.write(&[5; 9000], 4096).unwrap();
    overlay.flush().unwrap();
    overlay.write_zeroes(Extent::new(0, 4096)).unwrap();
    drop(overlay);
    let whole = disk.contents(Path::new(PATH)).unwrap();
    let log = (LENGTH.div_ceil(4096) + 1) * 4096;
    for at in (0..128).chain(log..whole.len()) {
        for (boot, bit) in [(0, 1), (1, 0x80)] {
            let fork = disk.fork();
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            fork.overwrite(Path::new(PATH), &bytes);
            if let Ok(overlay) = Overlay::open(&fork, Path::new(PATH), &options(boot), Arc::new(Pattern)) {
                contents(&overlay);
            }
        }
    }
    for length in [0, 1, 111, 112, 4096, 5000, log - 1, log, log + 20, whole.len() - 1] {
        let fork = disk.fork();
        fork.overwrite(Path::new(PATH), &whole[..length]);
        if let Ok(overlay) = Overlay::open(&fork, Path::new(PATH), &options(1), Arc::new(Pattern)) {
            let mut bytes = vec![0; LENGTH];
            let _ = overlay.read(&mut bytes, 0);
        }
    }
}

/// An invalid record counts as the end of the log only if no later record proves that the log went on.
#[test]
fn damage_inside_a_log_is_reported_as_corrupt() {
    let disk = SimulatedDisk::new(1);
    let overlay = create(&disk);
    let start = disk.contents(Path::new(PATH)).unwrap().len();
    for value in 1..4_u8 {
        overlay.write(&[value; 9000], u64::from(value) * 12_288).unwrap();
        overlay.flush().unwrap();
    }
    let written = contents(&overlay);
    drop(overlay);
    let whole = disk.contents(Path::new(PATH)).unwrap();
    // The last record says that everything before it was flushed.
    let last = whole.len() - 48;
    for at in start..whole.len() {
        for boot in [0, 1] {
            let fork = disk.fork();
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            fork.overwrite(Path::new(PATH), &bytes);
            match Overlay::open(&fork, Path::new(PATH), &options(boot), Arc::new(Pattern)) {
                Ok(overlay) => assert!(at >= last && contents(&overlay) == written, "byte {at}, boot {boot}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}, boot {boot}: {error}"),
            }
        }
    }
}

/// Writes are killed in the middle and the overlay is reopened in the same boot: no read fails its checksum.
#[test]
fn a_kill_at_any_call_damages_no_block() {
    for seed in 1..400 {
        let (mut random, disk) = (Random(seed * 31_337), SimulatedDisk::new(seed));
        let (mut overlay, mut model) = (create(&disk), base_bytes());
        for _ in 0..5 {
            let call = 1 + random.below(60);
            disk.set_fault(Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None }));
            for _ in 0..30 {
                let done = match random.below(6) {
                    0 => overlay.flush(),
                    _ => change(&mut random, &overlay, &mut model, false),
                };
                if done.is_err() {
                    break;
                }
            }
            disk.set_fault(None);
            overlay = open(&disk, 0);
            // The killed write may be there in part.
            model = contents(&overlay);
        }
    }
}

/// Corrupted bytes in the file are detected, both by the process that wrote them and, in the same boot, by
/// the next one. Blocks that were overwritten in place have no checksum and are exempt.
#[test]
fn a_flipped_byte_in_a_checksummed_block_is_reported_as_corrupt() {
    for (flushes, is_reopened) in
        [0, 1, 2].into_iter().flat_map(|flushes| [(flushes, false), (flushes, true)])
    {
        let disk = SimulatedDisk::new(1);
        let mut overlay = create(&disk);
        let last = LENGTH as u64 / 4096;
        overlay.write(&[1; 3 * 4096], 4096).unwrap();
        overlay.write(&[2; 100], last * 4096).unwrap();
        (0..flushes).for_each(|_| {
            overlay.flush().unwrap();
            overlay.write(&[3; 4096], 9 * 4096).unwrap();
        });
        overlay.write(&[4; 512], 2 * 4096 + 512).unwrap();
        for _ in 0..2 {
            if is_reopened {
                drop(overlay);
                overlay = open(&disk, 0);
            }
        }
        let good = disk.contents(Path::new(PATH)).unwrap();
        for block in [1, 2, 3, last] {
            let mut bad = good.clone();
            bad[4096 + block as usize * 4096 + 77] ^= 1;
            disk.overwrite(Path::new(PATH), &bad);
            let mut all = vec![0; LENGTH];
            let read = overlay.read(&mut all, 0);
            // A flushed block was overwritten in place.
            if block == 2 && flushes > 0 {
                read.unwrap();
                continue;
            }
            let error = read.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let part = overlay.read(&mut [0; 32], block * 4096 + 8);
            assert_eq!(part.unwrap_err().kind(), ErrorKind::Corrupt, "a part of the block");
            assert!(
                error.to_string().contains(&format!("overlay's block at offset {} ", block * 4096)),
                "{error}"
            );
            // A partial write reads the rest of the block first, so it fails as well.
            assert!(flushes > 0 || is_reopened || overlay.write(&[5; 10], block * 4096 + 900).is_err());
        }
    }
}

/// If creation fails for lack of space or is interrupted at any call, no overlay appears under the name, and
/// the next creation succeeds.
#[test]
fn a_failed_creation_leaves_no_overlay() {
    let make = |disk: &SimulatedDisk| Overlay::create(disk, Path::new(PATH), &options(0), Arc::new(Pattern));
    let is_there = |disk: &SimulatedDisk| disk.contents(Path::new(PATH)).is_some();
    let mut refused = 0;
    for room in 0..64 {
        let disk = SimulatedDisk::new(1);
        disk.set_capacity(room << 12);
        let made = make(&disk);
        disk.set_capacity(u64::MAX);
        assert_eq!(made.is_ok(), is_there(&disk), "{room}");
        refused += u64::from(made.is_err());
        assert!(made.is_ok() || make(&disk).is_ok(), "{room}");
    }
    assert!((1..64).contains(&refused), "{refused}");
    for call in 1..20 {
        let disk = SimulatedDisk::new(call);
        disk.set_fault(Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None }));
        let made = make(&disk);
        disk.set_fault(None);
        disk.crash(CrashProfile::All, call);
        match is_there(&disk) {
            true => drop(open(&disk, 1)),
            false => {
                assert!(made.is_err(), "{call}");
                drop(make(&disk).unwrap());
            }
        }
    }
}

#[test]
fn encrypted_overlays_survive_kills() {
    encrypt();
    reads_return_what_was_written_across_kills();
    a_kill_at_any_call_damages_no_block();
}

#[test]
fn encrypted_overlays_survive_power_cuts() {
    encrypt();
    power_cuts_lose_no_flushed_data();
}

#[test]
fn encrypted_overlays_survive_faults_and_damage() {
    encrypt();
    writes_and_flushes_fail_after_a_failed_sync();
    reopening_rewrites_what_a_failed_sync_left_uncertain();
    a_full_disk_fails_writes_and_corrupts_nothing();
    used_space_follows_the_written_data();
    rebase_replaces_the_base_and_keeps_the_writes();
    a_damaged_overlay_does_not_panic();
    damage_inside_a_log_is_reported_as_corrupt();
    a_flipped_byte_in_a_checksummed_block_is_reported_as_corrupt();
}

/// Whether the text is in the file.
fn has(disk: &SimulatedDisk, text: &[u8]) -> bool {
    disk.contents(Path::new(PATH)).unwrap().windows(text.len()).any(|bytes| bytes == text)
}

#[test]
fn the_file_of_an_encrypted_overlay_shows_nothing_of_what_was_written() {
    let marker = *b"text that is looked for in the file, 64 bytes of it, no repeats.";
    let write = |disk: &SimulatedDisk| {
        let overlay = create(disk);
        // Whole blocks, a new block in part, settled blocks in place, and less than a sector of those.
        overlay.write(&marker.repeat(128), 4096).unwrap();
        overlay.write(&marker, 40_000).unwrap();
        overlay.flush().unwrap();
        overlay.flush().unwrap();
        overlay.write(&marker.repeat(8), 4096 + 512).unwrap();
        overlay.write(&marker, 8192 + 1000).unwrap();
        let mut read = [0; 64];
        for at in [4096, 40_000, 4096 + 512, 8192 + 1000] {
            overlay.read(&mut read, at).unwrap();
            assert_eq!(read, marker, "{at}");
        }
        overlay.flush().unwrap();
    };
    let plain = SimulatedDisk::new(1);
    write(&plain);
    assert!(has(&plain, &marker), "the search finds it where it is");
    encrypt();
    let disk = SimulatedDisk::new(1);
    write(&disk);
    let other = SimulatedDisk::new(2);
    write(&other);
    assert!(!has(&disk, &marker));
    let (one, two) = (disk.contents(Path::new(PATH)).unwrap(), other.contents(Path::new(PATH)).unwrap());
    let sectors = |bytes: &[u8]| bytes[8192..16_384].chunks(16).map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert!(!sectors(&one).iter().any(|it| sectors(&two).contains(it)), "each overlay has its own key");
    let mut once = sectors(&one);
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 512, "equal contents differ in each sector");
}

#[test]
fn an_overlay_does_not_change_its_domain() {
    let disk = SimulatedDisk::new(1);
    drop(create(&disk));
    encrypt();
    let encrypted = SimulatedDisk::new(1);
    drop(create(&encrypted));
    let open = |disk: &SimulatedDisk, domain| {
        let options = OverlayOptions { domain, ..options(0) };
        Overlay::open(disk, Path::new(PATH), &options, Arc::new(Pattern)).err().map(|error| error.kind())
    };
    let domain = DOMAIN.get();
    assert_eq!(open(&disk, domain), Some(ErrorKind::Refused), "a plain overlay in an encrypted store");
    assert_eq!(open(&encrypted, Domain::SHARED), Some(ErrorKind::Refused));
    assert_eq!((open(&disk, Domain::SHARED), open(&encrypted, domain)), (None, None));
}

/// Without the key, an overlay can be listed, but neither read nor written, and none is created.
#[test]
fn an_overlay_without_its_key_says_so() {
    encrypt();
    let disk = SimulatedDisk::new(1);
    drop(create(&disk));
    let mut bytes = disk.contents(Path::new(PATH)).unwrap();
    // The same overlay in another domain.
    let domain = Domain([3; 16]);
    bytes[104..120].copy_from_slice(&domain.0);
    let checksum = twox_hash::XxHash3_64::oneshot(&bytes[..120]);
    bytes[120..128].copy_from_slice(&checksum.to_le_bytes());
    disk.overwrite(Path::new(PATH), &bytes);
    DOMAIN.set(domain);
    let overlay = open(&disk, 0);
    assert!(overlay.dirty().is_empty());
    let error = overlay.write(&[1; 512], 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("--unlock-file"), "{error}");
    let made = Overlay::create(&SimulatedDisk::new(1), Path::new(PATH), &options(0), Arc::new(Pattern));
    assert_eq!(made.err().map(|error| error.kind()), Some(ErrorKind::Refused));
}
