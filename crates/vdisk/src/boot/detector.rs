//! When a boot begins, when it ends, and what is not a boot.
//!
//! Pure: it is told of reads and of the time, and gives the ranges that were read, in the order of first use. Only reads
//! that reach the version count: what a guest wrote itself is not part of any version.
//!
//! An observation begins with the first read after a pause, and takes every read from then on. It is a boot if the disk's
//! first sector is among its first reads: firmware, boot loaders and kernels all read it, for the boot sector or the
//! partition table. The boot ends when hardly anything new was read for [`BOOT_PAUSE_MS`]. A machine may pause for longer
//! than that and boot on, for instance while it unpacks its initial file system, so the detector goes on for a while and
//! gives the whole boot again if there was more.
//!
//! These are not boots: a few reads, such as a look at the partition table; a copy of the disk; a scan that reads forward
//! only; more than [`BOOT_BYTES_MAX`], or reads in more places than a boot has. The detector's memory is bounded by the
//! last two: about 3 MiB for one disk while it is read, and nothing before or afterwards.
//!
//! Why copies are not taken for boots: a boot reads pieces of many files, so what it has read by its end lies in many
//! separate places ([`has_places_of_a_boot`]). A copy leaves gaps only at holes of the disk and where each
//! of its threads has come to, whatever its size and in whatever order the answers come. Reads count when they are
//! requested, and from the first one on, so no part of a copy is missed. Gaps at holes are recognised by whoever knows the
//! version's recipe.

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
/// An observation is a boot if the first sector is read before so many bytes were.
const FIRST_BYTES_MAX: u64 = 1 << 20;
/// Reads count as new activity once they come to this part of what was read before: a log that is written now and then
/// prolongs no boot.
const ACTIVE_PART: u64 = 256;
/// What a machine reads after a pause belongs to its boot up to that many bytes, or as many as it read before.
const RESUMED_BYTES_MAX: u64 = 128 << 20;
/// A boot is given again if it has grown by this part.
const GROWN_PART: u64 = 64;
/// A boot reads in at least so many separate places. A small Debian system has read in 41 when it unpacks its initial file
/// system, and in 326 when it is up; a copy reads in one for each of its threads.
const BOOT_PLACES_MIN: u64 = 24;
/// A boot reads at most so many bytes in each place, on average: the small Debian system 761 KiB when it unpacks its initial
/// file system, and 198 KiB when it is up.
const PLACE_BYTES_MAX: u64 = 1 << 20;
/// A read goes back if it ends so many bytes before the farthest one, or this part of a small disk.
const BACK_MIN: u64 = 64 << 20;
const BACK_MIN_PART: u64 = 16;
/// A boot goes back for at least this part of its bytes.
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
    /// Nothing was read.
    Waiting,
    Observing(Box<Observation>),
    /// What is read is not a boot, and the next observation begins after a pause.
    Ignoring {
        last_read_ms: u64,
    },
}

/// What was read since a pause.
#[derive(Debug, Default)]
struct Observation {
    began_ms: u64,
    boot: Boot,
    seen: RangeSet,
    /// Different bytes.
    bytes: u64,
    /// The first sector was read.
    has_first_sector: bool,
    /// Those that went back.
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

    /// A read of that range from the version was requested. True if the boot goes on with it: then it also goes on until the
    /// read is answered, which [`BootDetector::note_answer`] says.
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

    /// A read that the boot goes on with was answered.
    pub fn note_answer(&mut self, now_ms: u64) {
        if let Phase::Observing(seen) = &mut self.phase {
            seen.active_ms = seen.active_ms.max(now_ms);
            seen.boot.duration_ms = seen.boot.duration_ms.max(now_ms.saturating_sub(seen.began_ms));
        }
    }

    /// Gives a boot that has ended by now. To be called about every second; `is_busy` says that reads are under way, which is
    /// no pause however long they take.
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

    /// Whether an observation goes on.
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

    /// The boot, unless this is not one, or there is hardly more of it than was given before.
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

    /// A detector and a clock that runs on by a millisecond with each read, and is polled every half second.
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

    /// The requests of a copy by that many threads: each takes regions of the disk one after another, as `nbdcopy` does, and
    /// has several requests under way.
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
        // A look at other places first is no reason against a boot.
        let mut early = Scene::new();
        early.read(DISK - 512, 512);
        early.boot(0);
        early.pause(5);
        assert_eq!(early.given.len(), 1);
        assert_eq!(early.given[0].ranges[0], Extent::new(DISK - 512, 512));
    }

    /// A check of a file system, or a backup, reads here and there, and forward.
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

    /// A read that takes long is no pause, and what follows its answer follows at once.
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
