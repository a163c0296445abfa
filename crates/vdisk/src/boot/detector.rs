//! When a boot begins, when it ends, and what is no boot.
//!
//! Pure: it is told of reads and of the time, and gives the ranges that were read, in the order of first use. Only reads
//! that reach the version count: what a guest wrote itself is not part of any version.
//!
//! A boot begins with a read of the disk's first sector: firmware, boot loaders and kernels all read it, for the boot
//! sector or the partition table. It ends when hardly anything new was read for [`BOOT_PAUSE_MS`]. A machine may pause
//! for longer than that and boot on, for instance while it unpacks its initial file system, so the detector goes on for a while and gives
//! the whole boot again if there was more.
//!
//! These are no boots: a few reads, such as a look at the partition table; a copy of the disk, which reads on from
//! where it is; more than [`BOOT_BYTES_MAX`], or reads in more places than a boot has. The detector's memory is bounded by the last
//! two: about 3 MiB for one disk while it is read, and nothing before or afterwards.

use platter_image::Extent;

use super::ranges::RangeSet;

/// A boot has ended when hardly anything new was read for so long, in milliseconds.
pub const BOOT_PAUSE_MS: u64 = 4_000;
/// Most bytes of a boot. The largest of 18 Linux systems reads 160 MB, Windows some 600 MB.
pub const BOOT_BYTES_MAX: u64 = 1 << 30;

/// A machine that paused boots on if it reads within so long, in milliseconds.
const RESUME_MS: u64 = 30_000;
/// Nothing belongs to a boot so long after it began, in milliseconds.
const BOOT_MS_MAX: u64 = 10 * 60_000;
/// Fewer bytes are no boot.
const BOOT_BYTES_MIN: u64 = 1 << 20;
/// Most ranges of a boot, in the order of first use. The boots of 18 Linux systems have at most some ten thousand.
const RANGES_MAX: usize = 1 << 16;
/// A read of the first sector begins before that offset.
const FIRST_SECTOR_END: u64 = 512;
/// Reads count as new activity once they come to this part of what was read before: a log that is written now and then
/// prolongs no boot.
const ACTIVE_PART: u64 = 256;
/// What a machine reads after a pause belongs to its boot up to that many bytes, or as many as it read before.
const RESUMED_BYTES_MAX: u64 = 128 << 20;
/// A boot is given again if it has grown by this part.
const GROWN_PART: u64 = 64;
/// A copy has several reads under way, so they come out of order within so many bytes.
const COPY_WINDOW: u64 = 64 << 20;
/// Of a small disk, the window is this part.
const COPY_WINDOW_PART: u64 = 16;
/// A boot goes back by more than the window for at least this part of its bytes.
const BACK_PART: u64 = 8;

/// What a boot read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// In the order of first use; no byte twice.
    pub ranges: Vec<Extent>,
    /// Reads.
    pub requests: u64,
    /// Bytes that these asked for.
    pub bytes_read: u64,
    /// From the first read to the last that read something new, in milliseconds.
    pub duration_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub struct BootDetector {
    disk_length: u64,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// For a read of the first sector.
    Waiting,
    Booting(Box<Observation>),
    /// What is read is no boot, and the next one begins after a pause.
    Ignoring {
        last_read_ms: u64,
    },
}

/// What was read since the first sector was.
#[derive(Debug, Default)]
struct Observation {
    began_ms: u64,
    boot: Boot,
    seen: RangeSet,
    /// Different bytes.
    bytes: u64,
    /// These of them that lay behind what was read before, by more than the window.
    back_bytes: u64,
    /// End of the farthest read.
    front: u64,
    /// When enough was new, and bytes that were new since.
    active_ms: u64,
    fresh_bytes: u64,
    /// Bytes when the boot was given last.
    given_bytes: u64,
}

impl BootDetector {
    /// For a disk of that many bytes, which nobody has read yet.
    pub fn new(disk_length: u64) -> Self {
        Self { disk_length, phase: Phase::Waiting }
    }

    /// A read of that range was answered from the version.
    pub fn note_read(&mut self, range: Extent, now_ms: u64) {
        if range.offset < FIRST_SECTOR_END && self.is_settled(now_ms) {
            self.phase = Phase::Booting(Box::new(Observation {
                began_ms: now_ms,
                active_ms: now_ms,
                ..Observation::default()
            }));
        }
        let window = COPY_WINDOW.min(self.disk_length / COPY_WINDOW_PART);
        match &mut self.phase {
            Phase::Waiting => {}
            Phase::Ignoring { last_read_ms } => *last_read_ms = now_ms,
            Phase::Booting(boot) => {
                boot.add(range, window, now_ms);
                if boot.is_too_much() {
                    self.phase = Phase::Ignoring { last_read_ms: now_ms };
                }
            }
        }
    }

    /// Gives a boot that has ended by now. To be called about every second; `is_busy` says that reads are under way, which is
    /// no pause however long they take.
    pub fn poll(&mut self, now_ms: u64, is_busy: bool) -> Option<Boot> {
        let Phase::Booting(boot) = &mut self.phase else { return None };
        let pause_ms = if is_busy { 0 } else { now_ms.saturating_sub(boot.active_ms) };
        let is_late = now_ms.saturating_sub(boot.began_ms) >= BOOT_MS_MAX;
        let is_over = is_late || pause_ms >= RESUME_MS;
        let given = (pause_ms >= BOOT_PAUSE_MS || is_late).then(|| boot.give()).flatten();
        if is_over {
            self.phase = Phase::Ignoring { last_read_ms: now_ms.saturating_sub(pause_ms) };
        }
        given
    }

    /// Whether a read of the first sector begins another boot.
    fn is_settled(&self, now_ms: u64) -> bool {
        match &self.phase {
            Phase::Waiting => true,
            Phase::Booting(boot) => now_ms.saturating_sub(boot.active_ms) >= BOOT_PAUSE_MS,
            Phase::Ignoring { last_read_ms } => now_ms.saturating_sub(*last_read_ms) >= BOOT_PAUSE_MS,
        }
    }
}

impl Observation {
    fn add(&mut self, range: Extent, window: u64, now_ms: u64) {
        self.boot.requests += 1;
        self.boot.bytes_read += range.length;
        if self.seen.contains(range) {
            return;
        }
        for part in self.seen.absent(range) {
            self.bytes += part.length;
            self.fresh_bytes += part.length;
            if part.end() <= self.front.saturating_sub(window) {
                self.back_bytes += part.length;
            }
            self.front = self.front.max(part.end());
            match self.boot.ranges.last_mut() {
                Some(last) if last.end() == part.offset => last.length += part.length,
                _ => self.boot.ranges.push(part),
            }
        }
        self.seen.add(range);
        if self.fresh_bytes * ACTIVE_PART >= self.bytes {
            (self.active_ms, self.fresh_bytes) = (now_ms, 0);
            self.boot.duration_ms = now_ms.saturating_sub(self.began_ms);
        }
    }

    fn is_too_much(&self) -> bool {
        let resumed_max = RESUMED_BYTES_MAX.max(self.given_bytes);
        self.bytes > BOOT_BYTES_MAX
            || self.boot.ranges.len() > RANGES_MAX
            || self.given_bytes > 0 && self.bytes - self.given_bytes > resumed_max
    }

    /// The boot, unless it is none, or there is hardly more of it than was given before.
    fn give(&mut self) -> Option<Boot> {
        let is_boot = self.bytes >= BOOT_BYTES_MIN && self.back_bytes * BACK_PART >= self.bytes;
        let is_grown = (self.bytes - self.given_bytes) * GROWN_PART >= self.bytes;
        (is_boot && is_grown).then(|| {
            self.given_bytes = self.bytes;
            self.boot.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const DISK: u64 = 4 << 30;

    /// A detector and a clock that runs on by a millisecond with each read, and is polled every half second.
    struct Scene {
        detector: BootDetector,
        now_ms: u64,
        given: Vec<Boot>,
    }

    impl Scene {
        fn new() -> Self {
            Self { detector: BootDetector::new(DISK), now_ms: 1_000, given: Vec::new() }
        }

        fn read(&mut self, offset: u64, length: u64) {
            self.now_ms += 1;
            self.detector.note_read(Extent::new(offset, length), self.now_ms);
        }

        fn pause(&mut self, seconds: u64) {
            self.wait(seconds, false);
        }

        fn wait(&mut self, seconds: u64, is_busy: bool) {
            for _ in 0..2 * seconds {
                self.now_ms += 500;
                self.given.extend(self.detector.poll(self.now_ms, is_busy));
            }
        }

        /// Here and there on the disk, `count` times half a MiB; other places for another `seed`.
        fn scattered(&mut self, seed: u64, count: u64) {
            for n in 0..count {
                self.read((n * 2_654_435_761 + seed * 77_777) % 4_000 * MIB + seed * MIB / 2, MIB / 2);
            }
        }

        fn boot(&mut self, seed: u64) {
            self.read(0, 512);
            self.scattered(seed, 100);
        }
    }

    #[test]
    fn a_boot_begins_with_the_first_sector_and_ends_with_a_pause() {
        let mut scene = Scene::new();
        scene.scattered(1, 100);
        scene.pause(5);
        assert_eq!(scene.given, [], "no first sector");
        scene.boot(0);
        scene.pause(3);
        assert_eq!(scene.given, [], "it may go on");
        scene.pause(2);
        let [boot] = &scene.given[..] else { panic!("{:?}", scene.given) };
        assert_eq!(boot.ranges[0], Extent::new(0, MIB / 2), "the first sector, and what follows it");
        assert_eq!(boot.ranges[1], Extent::new(2_654_435_761 % 4_000 * MIB, MIB / 2), "in order");
        assert_eq!((boot.requests, boot.bytes_read), (101, 512 + 50 * MIB));
        assert_eq!(boot.duration_ms, 100);
        scene.pause(100);
        assert_eq!(scene.given.len(), 1, "once");
    }

    #[test]
    fn the_next_boot_begins_anew() {
        let mut scene = Scene::new();
        for _ in 0..3 {
            scene.boot(0);
            scene.pause(5);
        }
        assert_eq!(scene.given.len(), 3);
        assert!(scene.given.iter().all(|boot| *boot == scene.given[0]));
    }

    #[test]
    fn a_machine_that_pauses_and_boots_on_is_given_again_as_a_whole() {
        let mut scene = Scene::new();
        scene.boot(0);
        scene.pause(20);
        scene.scattered(1, 20);
        scene.read(512, 512);
        scene.pause(100);
        let [first, second] = &scene.given[..] else { panic!("{:?}", scene.given) };
        assert_eq!(second.ranges[..first.ranges.len()], first.ranges[..]);
        assert_eq!(second.ranges.len(), first.ranges.len() + 20);
    }

    #[test]
    fn what_comes_long_after_a_boot_is_none_of_it() {
        let mut scene = Scene::new();
        scene.boot(0);
        scene.pause(40);
        scene.scattered(1, 100);
        scene.pause(10);
        assert_eq!(scene.given.len(), 1);
        // Nor is work that goes on and on after a short pause.
        scene.boot(0);
        scene.pause(5);
        for seed in 1..10 {
            scene.scattered(seed, 100);
        }
        scene.pause(10);
        assert_eq!(scene.given.len(), 2);
    }

    #[test]
    fn a_trickle_prolongs_no_boot_and_a_slow_read_does() {
        let mut scene = Scene::new();
        scene.boot(0);
        for second in 0..5 {
            scene.read(3_999 * MIB + second * 4096, 4096);
            scene.pause(1);
        }
        assert_eq!(scene.given.len(), 1);
        let mut scene = Scene::new();
        scene.boot(0);
        scene.wait(60, true);
        assert_eq!(scene.given, []);
        scene.pause(1);
        assert_eq!(scene.given.len(), 1, "it was the last");
    }

    #[test]
    fn a_look_at_the_disk_is_no_boot() {
        let mut scene = Scene::new();
        scene.read(0, 4096);
        for place in [DISK - 4096, 64 * MIB, 4096, 1 << 30] {
            scene.read(place, 4096);
        }
        scene.pause(100);
        assert_eq!(scene.given, []);
    }

    /// `dd` reads in order. `nbdcopy` has some 64 MiB under way, leaves holes out, and its answers come in any order.
    #[test]
    fn a_copy_is_no_boot_wherever_it_stops() {
        for stop_mib in [8, 100, 900, 2_000] {
            let mut dd = Scene::new();
            (0..stop_mib).for_each(|n| dd.read(n * MIB, MIB));
            dd.pause(100);
            assert_eq!(dd.given, []);
            let mut nbdcopy = Scene::new();
            for n in 0..stop_mib * 4 {
                let shuffled = n / 128 * 128 + n * 37 % 128;
                let hole = shuffled / 400 * 100 * MIB;
                nbdcopy.read((hole + shuffled * MIB / 4) % DISK, MIB / 4);
            }
            nbdcopy.pause(100);
            assert_eq!(nbdcopy.given, [], "{stop_mib}");
        }
        // The same bytes as a boot's are one in another order.
        let mut boot = Scene::new();
        boot.boot(0);
        let mut places: Vec<Extent> = {
            let Phase::Booting(it) = &boot.detector.phase else { panic!() };
            it.boot.ranges.clone()
        };
        places.sort_unstable_by_key(|range| range.offset);
        let mut sorted = Scene::new();
        places.iter().for_each(|range| sorted.read(range.offset, range.length));
        for scene in [&mut boot, &mut sorted] {
            scene.pause(5);
        }
        assert_eq!((boot.given.len(), sorted.given.len()), (1, 0));
    }

    #[test]
    fn whoever_reads_in_too_many_places_is_forgotten() {
        let mut scene = Scene::new();
        scene.read(0, 512);
        for n in 1..=RANGES_MAX as u64 + 1 {
            scene.read(n * 7_919 % (DISK / 8192) * 8192, 4096);
        }
        assert!(matches!(scene.detector.phase, Phase::Ignoring { .. }));
        scene.pause(100);
        assert_eq!(scene.given, []);
        scene.boot(0);
        scene.pause(5);
        assert_eq!(scene.given.len(), 1, "and may boot later");
    }

    #[test]
    fn a_machine_that_never_pauses_ends_in_time() {
        let mut scene = Scene::new();
        scene.boot(0);
        let mut seed = 1;
        while scene.given.is_empty() {
            scene.scattered(seed, 1);
            scene.read(seed * 3_000_007 % 4_000 * MIB + 700_000, 300_000);
            scene.pause(1);
            seed += 1;
            assert!(seed < 700, "ten minutes");
        }
        assert!(seed > 590);
    }
}
