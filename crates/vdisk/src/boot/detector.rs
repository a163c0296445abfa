//! Detects boots in the reads of a disk.
//!
//! No I/O: the caller passes the reads and the time. The result is the list of ranges that the boot read, in the order
//! of first use. Only reads that reach the version count, because data written by the guest belongs to no version.
//!
//! An observation begins with the first read after a pause, and includes all reads from then on. It is a boot if the
//! disk's first sector is among its first reads: firmware, boot loaders and kernels all read it, for the boot sector or
//! the partition table. The boot ends when almost nothing new was read for [`BOOT_PAUSE_MS`]. A machine may pause for
//! longer and then continue to boot, for instance while it unpacks its initial file system. So the detector continues
//! for a while, and returns the whole boot again if it has grown.
//!
//! Not boots: a few reads, for instance of the partition table; a copy of the disk; a scan that only reads forwards;
//! more than [`BOOT_BYTES_MAX`], or more separate ranges than a boot has. The last two limit the memory of the
//! detector: about 3 MiB per disk while it is read, and nothing before or afterwards.
//!
//! Why copies do not count as boots: a boot reads parts of many files, so at its end it has read many separate places
//! ([`has_places_of_a_boot`]). A copy has gaps only at holes of the disk and at the positions of its threads, whatever
//! its size and the order of its replies. Reads count when they are requested, and from the first one on, so no part of
//! a copy is missed. Gaps at holes are recognized by the caller, which has the version's recipe.

use platter_image::Extent;

use super::ranges::RangeSet;

/// A boot has ended when almost nothing new was read for this time, in milliseconds.
pub const BOOT_PAUSE_MS: u64 = 4_000;
/// Maximum number of bytes of a boot. The largest of 18 Linux systems reads 160 MB, Windows some 600 MB.
pub const BOOT_BYTES_MAX: u64 = 1 << 30;

/// Reads after a pause belong to the same boot if the pause is shorter than this, in milliseconds.
const RESUME_MS: u64 = 30_000;
/// Maximum duration of a boot in milliseconds.
const BOOT_MS_MAX: u64 = 10 * 60_000;
/// Minimum number of bytes of a boot.
const BOOT_BYTES_MIN: u64 = 1 << 20;
/// Maximum number of ranges of a boot. The boots of 18 Linux systems have at most some ten thousand.
const RANGES_MAX: usize = 1 << 16;
/// A read that begins before this offset is a read of the first sector.
const FIRST_SECTOR_END: u64 = 512;
/// An observation can only be a boot if fewer bytes than this were read before the first sector.
const FIRST_BYTES_MAX: u64 = 1 << 20;
/// New reads count as activity once they amount to this fraction of the bytes so far, so that occasional writes to a
/// log do not prolong a boot.
const ACTIVE_PART: u64 = 256;
/// Reads after a pause belong to the boot up to this number of bytes, or the number of bytes that it read before.
const RESUMED_BYTES_MAX: u64 = 128 << 20;
/// A boot is returned again if it has grown by this fraction.
const GROWN_PART: u64 = 64;
/// Minimum number of separate places that a boot has read. A small Debian system has read 41 when it unpacks its
/// initial file system, and 326 when it is up; a copy has one per thread.
const BOOT_PLACES_MIN: u64 = 24;
/// Maximum average number of bytes that a boot reads per place: the small Debian system has 761 KiB when it unpacks its
/// initial file system, and 198 KiB when it is up.
const PLACE_BYTES_MAX: u64 = 1 << 20;
/// A read goes back if it ends this many bytes before the farthest one; on a small disk, this fraction of the disk.
const BACK_MIN: u64 = 64 << 20;
const BACK_MIN_PART: u64 = 16;
/// A boot goes back for at least this fraction of its bytes.
const BACK_PART: u64 = 8;

/// The reads of a boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// Ranges in the order of first use, without overlaps.
    pub ranges: Vec<Extent>,
    /// Number of reads.
    pub requests: u64,
    /// Total length of these reads in bytes.
    pub bytes_read: u64,
    /// Time from the first read to the last one with new data, in milliseconds.
    pub duration_ms: u64,
}

/// The detector of boots of one disk.
#[derive(Debug)]
pub struct BootDetector {
    disk_length: u64,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Nothing was read.
    Waiting,
    Observing(Box<Observation>),
    /// Current reads are not a boot. The next observation begins after a pause.
    Ignoring {
        last_read_ms: u64,
    },
}

/// The reads since a pause.
#[derive(Debug, Default)]
struct Observation {
    began_ms: u64,
    boot: Boot,
    seen: RangeSet,
    /// Number of different bytes.
    bytes: u64,
    /// The first sector was read.
    has_first_sector: bool,
    /// Number of those that went back.
    back_bytes: u64,
    /// End of the farthest read.
    front: u64,
    /// Time of the last activity, and the new bytes since then.
    active_ms: u64,
    fresh_bytes: u64,
    /// Number of bytes when the boot was last returned.
    given_bytes: u64,
}

impl BootDetector {
    /// Creates the detector of an unread disk of this length.
    pub fn new(disk_length: u64) -> Self {
        Self { disk_length, phase: Phase::Waiting }
    }

    /// Records a requested read of this range from the version. Returns whether the boot continues with it: then it
    /// also continues until [`BootDetector::note_answer`] reports that the read was answered.
    pub fn note_read(&mut self, range: Extent, now_ms: u64) -> bool {
        let has_first_sector = range.offset < FIRST_SECTOR_END;
        if self.is_settled(has_first_sector, now_ms) {
            let (began_ms, active_ms) = (now_ms, now_ms);
            let begun = Observation { began_ms, active_ms, ..Observation::default() };
            self.phase = Phase::Observing(Box::new(begun));
        }
        let back_min = BACK_MIN.min(self.disk_length / BACK_MIN_PART);
        match &mut self.phase {
            Phase::Waiting => false,
            Phase::Ignoring { last_read_ms } => {
                *last_read_ms = now_ms;
                false
            }
            Phase::Observing(seen) => {
                seen.has_first_sector |= has_first_sector;
                let is_active = seen.add(range, back_min, now_ms);
                if seen.is_too_much() {
                    self.phase = Phase::Ignoring { last_read_ms: now_ms };
                }
                is_active
            }
        }
    }

    /// Records that a read with which the boot continues was answered.
    pub fn note_answer(&mut self, now_ms: u64) {
        if let Phase::Observing(seen) = &mut self.phase {
            seen.active_ms = seen.active_ms.max(now_ms);
            seen.boot.duration_ms = seen.boot.duration_ms.max(now_ms.saturating_sub(seen.began_ms));
        }
    }

    /// Returns a boot that has ended. To be called about every second. While `is_busy` is true, reads are in flight,
    /// and their time does not count as a pause.
    pub fn poll(&mut self, now_ms: u64, is_busy: bool) -> Option<Boot> {
        let Phase::Observing(boot) = &mut self.phase else { return None };
        let pause_ms = if is_busy { 0 } else { now_ms.saturating_sub(boot.active_ms) };
        let is_late = now_ms.saturating_sub(boot.began_ms) >= BOOT_MS_MAX;
        let is_over = is_late || pause_ms >= RESUME_MS;
        let given = (pause_ms >= BOOT_PAUSE_MS || is_late).then(|| boot.give()).flatten();
        if is_over {
            self.phase = Phase::Ignoring { last_read_ms: now_ms.saturating_sub(pause_ms) };
        }
        given
    }

    /// Whether an observation is in progress.
    pub fn is_observing(&self) -> bool {
        matches!(self.phase, Phase::Observing(_))
    }

    /// Whether a read begins another observation.
    fn is_settled(&self, has_first_sector: bool, now_ms: u64) -> bool {
        let is_pause = |since_ms: u64| now_ms.saturating_sub(since_ms) >= BOOT_PAUSE_MS;
        match &self.phase {
            Phase::Waiting => true,
            // Any other read may belong to a machine that paused.
            Phase::Observing(seen) => has_first_sector && is_pause(seen.active_ms),
            Phase::Ignoring { last_read_ms } => is_pause(*last_read_ms),
        }
    }
}

impl Observation {
    /// True if enough was new.
    fn add(&mut self, range: Extent, back_min: u64, now_ms: u64) -> bool {
        self.boot.requests += 1;
        self.boot.bytes_read += range.length;
        if self.seen.contains(range) {
            return false;
        }
        for part in self.seen.absent(range) {
            self.bytes += part.length;
            self.fresh_bytes += part.length;
            if part.end() <= self.front.saturating_sub(back_min) {
                self.back_bytes += part.length;
            }
            self.front = self.front.max(part.end());
            match self.boot.ranges.last_mut() {
                Some(last) if last.end() == part.offset => last.length += part.length,
                _ => self.boot.ranges.push(part),
            }
        }
        self.seen.add(range);
        let is_active = self.fresh_bytes * ACTIVE_PART >= self.bytes;
        if is_active {
            (self.active_ms, self.fresh_bytes) = (now_ms, 0);
            self.boot.duration_ms = now_ms.saturating_sub(self.began_ms);
        }
        is_active
    }

    fn is_too_much(&self) -> bool {
        let resumed_max = RESUMED_BYTES_MAX.max(self.given_bytes);
        self.bytes > BOOT_BYTES_MAX
            || !self.has_first_sector && self.bytes > FIRST_BYTES_MAX
            || self.boot.ranges.len() > RANGES_MAX
            || self.given_bytes > 0 && self.bytes - self.given_bytes > resumed_max
    }

    /// Returns the observation if it is a boot and has grown enough since it was last returned.
    fn give(&mut self) -> Option<Boot> {
        let goes_back = self.back_bytes * BACK_PART >= self.bytes;
        let is_scattered = has_places_of_a_boot(self.seen.len() as u64, self.bytes);
        let is_boot = self.has_first_sector && self.bytes >= BOOT_BYTES_MIN && goes_back && is_scattered;
        let is_grown = (self.bytes - self.given_bytes) * GROWN_PART >= self.bytes;
        (is_boot && is_grown).then(|| {
            self.given_bytes = self.bytes;
            self.boot.clone()
        })
    }
}

/// Whether a boot may have read so many bytes in so many separate places.
pub fn has_places_of_a_boot(places: u64, bytes: u64) -> bool {
    places >= BOOT_PLACES_MIN && places.saturating_mul(PLACE_BYTES_MAX) >= bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const DISK: u64 = 4 << 30;

    /// A detector with a clock that advances by a millisecond per read. It is polled every half second.
    struct Scene {
        detector: BootDetector,
        now_ms: u64,
        given: Vec<Boot>,
    }

    impl Scene {
        fn new() -> Self {
            Self::of(DISK)
        }

        fn of(disk_length: u64) -> Self {
            Self { detector: BootDetector::new(disk_length), now_ms: 1_000, given: Vec::new() }
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
        // Neither does continuous work after a short pause.
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

    /// The requests of a copy by `threads` threads. Like `nbdcopy`, each copies regions of the disk one after another,
    /// with several requests in flight.
    fn copy(disk: u64, threads: u64, request: u64) -> Vec<Extent> {
        let region = (disk / threads / 3).clamp(request, 128 * MIB) / request * request;
        let mut next = (0..).map(|n| n * region).take_while(move |start| *start < disk);
        let mut fronts: Vec<Extent> = Vec::new();
        let mut all: Vec<Extent> = Vec::new();
        loop {
            while fronts.len() < threads as usize
                && let Some(start) = next.next()
            {
                fronts.push(Extent::between(start, (start + region).min(disk)));
            }
            let Some(turn) = fronts.len().checked_sub(1) else { return all };
            let front = &mut fronts[all.len() * 7 % (turn + 1)];
            let length = request.min(front.length);
            all.push(Extent::new(front.offset, length));
            *front = Extent::between(front.offset + length, front.end());
            fronts.retain(|front| front.length > 0);
        }
    }

    /// Requests of several connections reach the server in any order within a few of them.
    fn shuffled(mut requests: Vec<Extent>) -> Vec<Extent> {
        for (n, some) in requests.chunks_mut(16).enumerate() {
            some.rotate_left(n * 5 % 16 % some.len());
        }
        requests
    }

    #[test]
    fn a_copy_is_no_boot_whatever_its_size_and_wherever_it_stops() {
        for (disk, request) in [(2 * MIB, 65_536), (64 * MIB, 262_144), (4_000 * MIB, 2 * MIB)] {
            for threads in [1, 2, 4, 16] {
                let requests = shuffled(copy(disk, threads, request));
                for part in 1..=16 {
                    let mut scene = Scene::of(disk);
                    let stop = requests.len() * part / 16;
                    requests[..stop].iter().for_each(|it| scene.read(it.offset, it.length));
                    scene.pause(100);
                    assert_eq!(scene.given, [], "{part}/16 of {disk} bytes by {threads}");
                }
            }
        }
    }

    /// A disk of 2 MiB was taken for booted if many of its requests were answered before the one for its first sector.
    #[test]
    fn reads_before_the_first_sector_count() {
        let mut late = Scene::of(2 * MIB);
        (0..32).rev().for_each(|n| late.read(n * 65_536, 65_536));
        late.pause(100);
        assert_eq!(late.given, []);
        // A few reads of other places first do not prevent a boot.
        let mut early = Scene::new();
        early.read(DISK - 512, 512);
        early.boot(0);
        early.pause(5);
        assert_eq!(early.given.len(), 1);
        assert_eq!(early.given[0].ranges[0], Extent::new(DISK - 512, 512));
    }

    /// A check of a file system, or a backup, reads scattered places, but only forwards.
    #[test]
    fn a_scan_is_no_boot() {
        let mut boot = Scene::new();
        boot.boot(0);
        let mut places: Vec<Extent> = {
            let Phase::Observing(it) = &boot.detector.phase else { panic!() };
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

    /// A slow read is not a pause: the pause begins with its answer.
    #[test]
    fn a_pause_begins_with_the_answer() {
        let mut scene = Scene::new();
        scene.boot(0);
        assert!(scene.detector.note_read(Extent::new(3_999 * MIB, MIB), scene.now_ms));
        scene.wait(60, true);
        scene.detector.note_answer(scene.now_ms);
        scene.pause(3);
        assert_eq!(scene.given, []);
        scene.pause(2);
        assert_eq!(scene.given[0].duration_ms, 60_100);
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
