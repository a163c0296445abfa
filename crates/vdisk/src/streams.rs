//! Which reads of a disk follow each other, and how far ahead of them to read.
//!
//! Pure: it is told of reads and knows nothing else. Requests of one reader may come a little out of order, as they do
//! when a kernel has several under way, and several readers may go through one disk at once.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::Extent;

/// Sequential readers that are told apart.
const STREAMS_MAX: usize = 8;
/// A read this long belongs to no random pattern, in bytes: most of its frames are wanted whole.
const LONG_READ: u64 = 128 << 10;
/// How far past its stream's front a read may begin, in bytes; for long reads, as far as twice their length.
const GAP_MAX: u64 = 128 << 10;
/// A stream forgets what it read longer ago than this, in bytes.
const MEMORY: u64 = 8 << 20;
/// Bytes that a stream must have read before something is read ahead of it.
const RUN_MIN: u64 = 32 << 10;
/// The least that is read ahead, in bytes: about a frame.
const AHEAD_MIN: u64 = 128 << 10;
/// What a source far away is told of travels, whether it is read or not: a reader must have read so many bytes in order first, and
/// is believed to read on for as many as he has read.
const FAR_RUN_MIN: u64 = 64 << 10;
/// A reader of so many bytes goes through the disk, not through a file: it is not expected to end where a file does.
const FAR_RUN_LONG: u64 = 32 << 20;
/// When more than this part of what a disk's readers read was told in vain, no more is told.
const FAR_VAIN_PART: u64 = 8;

/// How far a reader has come: work ahead of it that it has passed is not done any more.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    front: AtomicU64,
    told: Mutex<Told>,
}

/// What a source far away was told of.
#[derive(Debug, Default)]
struct Told {
    end: u64,
    /// Where a file seems to end: nothing behind it was told of. 0 if it goes on.
    file_end: u64,
}

impl Progress {
    /// The reader has come to `offset`.
    pub(crate) fn set(&self, offset: u64) {
        self.front.store(offset, Ordering::Relaxed);
    }

    /// Nobody reads on.
    pub(crate) fn end(&self) {
        self.set(u64::MAX);
    }

    /// Whether what ends at `end` is of no use any more.
    pub(crate) fn has_passed(&self, end: u64) -> bool {
        self.front.load(Ordering::Relaxed) >= end
    }

    /// Tells a source of what comes up to `end`, unless that was done or a file ends before. `tell` gives how far it told of, and
    /// whether a file ends there. One at a time: none may begin behind the end that another finds.
    pub(crate) fn tell_up_to(&self, end: u64, tell: impl FnOnce(Extent) -> (u64, bool)) {
        let mut told = self.told.lock();
        let front = self.front.load(Ordering::Relaxed);
        let begin = told.end.max(front);
        if (told.file_end == 0 || told.file_end < front) && begin < end {
            let (end, is_file_end) = tell(Extent::between(begin, end));
            *told = Told { end, file_end: if is_file_end { end } else { 0 } };
        }
    }

    /// Bytes that were told of and lie beyond `front`, as far as that is known.
    fn told_beyond(&self, front: u64) -> u64 {
        self.told().map_or(0, |told| told.end.saturating_sub(front))
    }

    /// `None` while a source is being told: that may take as long as a page of a recipe takes to come, and no reader waits for
    /// it.
    fn told(&self) -> Option<MutexGuard<'_, Told>> {
        self.told.try_lock()
    }
}

/// What to make of a read.
pub(crate) struct Access {
    /// It follows others, or is long.
    pub(crate) sequential: bool,
    /// What to read ahead of it, where that costs little.
    pub(crate) ahead: Option<(Extent, Arc<Progress>)>,
    /// What to tell a source far away of, up to the end of the file, if it says so.
    pub(crate) far: Option<Far>,
}

/// What a reader is believed to come to.
pub(crate) struct Far {
    /// How far.
    pub(crate) end: u64,
    /// No further than a file goes.
    pub(crate) within_file: bool,
    pub(crate) progress: Arc<Progress>,
}

#[derive(Default)]
struct Stream {
    /// Where it began, or what it still remembers begins.
    start: u64,
    /// First byte after the farthest read.
    front: u64,
    /// Bytes read since `start`.
    covered: u64,
    reads: u32,
    /// Bytes read in order since it began.
    run: u64,
    /// End of what was read ahead.
    ahead_end: u64,
    /// End of what a source far away is told of.
    far_end: u64,
    last_used: u64,
    progress: Arc<Progress>,
}

impl Stream {
    fn takes(&self, read: Extent) -> bool {
        let gap = GAP_MAX.max(2 * read.length);
        self.reads > 0 && read.offset >= self.start && read.offset <= self.front.saturating_add(gap)
    }

    /// Most of what it went over was read.
    fn is_sequential(&self) -> bool {
        self.reads >= 2 && 2 * self.covered >= self.front - self.start
    }

    fn add(&mut self, read: Extent) {
        self.run += read.end().saturating_sub(self.front.max(read.offset));
        self.front = self.front.max(read.end());
        self.covered += read.length;
        self.reads = self.reads.saturating_add(1);
        while self.front - self.start > MEMORY {
            self.start += (self.front - self.start) / 2;
            self.covered /= 2;
        }
        self.progress.set(self.front);
    }

    /// What to read ahead now: the more it has read the more, in pieces of half of that at least.
    fn ahead(&mut self, ahead_max: u64) -> Option<Extent> {
        let run = self.covered.min(self.front - self.start);
        if ahead_max < AHEAD_MIN || run < RUN_MIN {
            return None;
        }
        let window = run.clamp(AHEAD_MIN, ahead_max);
        let begin = self.ahead_end.max(self.front);
        let end = self.front.saturating_add(window);
        if begin > self.front.saturating_add(window / 2) {
            return None;
        }
        self.ahead_end = end;
        Some(Extent::between(begin, end))
    }

    /// What to tell a source far away of now.
    fn far(&mut self, far_max: &dyn Fn() -> u64) -> Option<Far> {
        if self.run < FAR_RUN_MIN {
            return None;
        }
        match self.progress.told()?.file_end {
            0 => {}
            file_end if file_end >= self.front => return None,
            // It read on behind the end.
            _ => self.far_end = 0,
        }
        let window = self.run;
        let begin = self.far_end.max(self.front);
        if begin > self.front.saturating_add(window / 2) {
            return None;
        }
        let window = window.min(far_max());
        let end = self.front.saturating_add(window);
        if begin > self.front.saturating_add(window / 2) || begin >= end {
            return None;
        }
        self.far_end = end;
        Some(Far { end, within_file: self.run < FAR_RUN_LONG, progress: self.progress.clone() })
    }
}

/// The sequential readers of one disk.
#[derive(Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS_MAX],
    clock: u64,
    /// Bytes that were read, and those that a source far away was told of in vain.
    read: u64,
    vain: u64,
}

impl Streams {
    /// Takes note of a read, and says what to make of it; `ahead_max` is the most bytes to read ahead of it, `far_max` tells the
    /// most that a source far away is told of.
    pub(crate) fn note(&mut self, read: Extent, ahead_max: u64, far_max: &dyn Fn() -> u64) -> Access {
        self.clock += 1;
        self.read += read.length;
        let known = self.streams.iter().position(|stream| stream.takes(read));
        let oldest = || (0..STREAMS_MAX).min_by_key(|at| self.streams[*at].last_used);
        let at = known.or_else(oldest).unwrap_or(0);
        let stream = &mut self.streams[at];
        if known.is_none() {
            self.vain += stream.progress.told_beyond(stream.front);
            stream.progress.end();
            *stream = Stream { start: read.offset, front: read.offset, ..Stream::default() };
        }
        stream.last_used = self.clock;
        stream.add(read);
        let follows = stream.is_sequential();
        if !follows {
            // What was planned ahead of it is not wanted: it turned random.
            self.vain += stream.progress.told_beyond(stream.front);
            std::mem::take(&mut stream.progress).end();
            (stream.ahead_end, stream.far_end, stream.run) = (0, 0, 0);
        }
        let ahead = if follows { stream.ahead(ahead_max) } else { None };
        let ahead = ahead.map(|range| (range, stream.progress.clone()));
        let is_worth_it = follows && ahead_max > 0 && self.vain * FAR_VAIN_PART <= self.read;
        let far = if is_worth_it { stream.far(far_max) } else { None };
        Access { sequential: follows || read.length >= LONG_READ, ahead, far }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.streams.iter().for_each(|stream| stream.progress.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 4 << 20;

    #[test]
    fn one_reader_is_sequential_from_its_second_read_and_each_byte_ahead_is_planned_once() {
        let mut streams = Streams::default();
        let mut planned = 0;
        for i in 0..10_000 {
            let access = streams.note(Extent::new(i * 4096, 4096), MAX, &|| 0);
            assert_eq!(access.sequential, i > 0, "read {i}");
            if let Some((range, _)) = access.ahead {
                assert!(range.offset >= planned && range.offset >= (i + 1) * 4096);
                assert!(range.end() <= (i + 1) * 4096 + MAX);
                planned = range.end();
            }
        }
        assert_eq!(planned, (planned / 4096) * 4096);
        assert!(planned > 10_000 * 4096 + MAX / 4, "it grows up to some MiB: {planned}");
    }

    #[test]
    fn readers_at_once_and_a_little_out_of_order_are_told_apart() {
        let mut streams = Streams::default();
        for i in 0..1000_u64 {
            for reader in 0..5 {
                let place = i ^ 1;
                let read = Extent::new((reader << 32) + place * 65536, 65536);
                let access = streams.note(read, MAX, &|| 0);
                assert!(access.sequential || i < 2, "read {i} of {reader}");
            }
        }
    }

    #[test]
    fn random_reads_are_not_sequential_and_plan_nothing() {
        let mut streams = Streams::default();
        let mut state = 1_u64;
        let mut sequential = 0;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let access = streams.note(Extent::new((state >> 30) / 4096 % (1 << 22) * 4096, 4096), MAX, &|| 0);
            sequential += u32::from(access.sequential);
            assert!(access.ahead.is_none());
        }
        assert!(sequential < 100, "{sequential}");
    }

    #[test]
    fn what_was_planned_is_dropped_when_a_reader_is_forgotten() {
        let mut streams = Streams::default();
        let mut token = None;
        for i in 0..100 {
            let access = streams.note(Extent::new(i * 65536, 65536), MAX, &|| 0);
            token = access.ahead.map(|(_, token)| token).or(token);
        }
        let token = token.unwrap();
        assert!(!token.has_passed(101 * 65536) && token.has_passed(100 * 65536));
        for i in 0..STREAMS_MAX as u64 {
            streams.note(Extent::new((i + 1) << 40, 512), MAX, &|| 0);
        }
        assert!(token.has_passed(101 * 65536));
    }

    /// A disk of one stream: reads of 64 KiB from `from` to `to`. Gives what was told of, and the most ahead of the reader.
    fn read_through(streams: &mut Streams, from: u64, to: u64, far_max: u64) -> (Vec<Extent>, u64) {
        let (mut told, mut most) = (Vec::new(), 0);
        for offset in (from..to).step_by(65536) {
            let far = streams.note(Extent::new(offset, 65536), MAX, &|| far_max).far;
            if let Some(far) = far {
                most = most.max(far.end - (offset + 65536));
                far.progress.tell_up_to(far.end, |range| {
                    told.push(range);
                    (range.end(), false)
                });
            }
        }
        (told, most)
    }

    #[test]
    fn a_far_source_is_told_of_more_the_longer_a_reader_reads_on() {
        for far_max in [1 << 20, 16 << 20] {
            let mut streams = Streams::default();
            let (told, most) = read_through(&mut streams, 0, 100 << 20, far_max);
            assert_eq!(most, far_max);
            assert!(told[0].offset >= FAR_RUN_MIN, "{:?}", told[0]);
            for range in &told {
                // It had read what lies before, but for what it was told of itself.
                assert!(range.length <= range.offset, "{range:?}");
            }
            assert!(told.windows(2).all(|pair| pair[0].end() <= pair[1].offset), "each byte once");
            let all: u64 = told.iter().map(|range| range.length).sum();
            assert!(all > 98 << 20, "{all}");
        }
        let (told, _) = read_through(&mut Streams::default(), 0, 100 << 20, 0);
        assert!(told.is_empty(), "a near one is not bothered");
    }

    #[test]
    fn who_ends_where_a_file_does_costs_nothing_and_who_reads_on_goes_on() {
        let mut streams = Streams::default();
        let mut note = |read: u64| streams.note(Extent::new(read * 65536, 65536), MAX, &|| 16 << 20).far;
        let file_end = 100 * 65536;
        let mut last = 0;
        for read in 0..100 {
            if let Some(far) = note(read) {
                far.progress.tell_up_to(far.end, |range| {
                    assert!(range.offset < file_end);
                    last = range.end().min(file_end);
                    (last, last == file_end)
                });
                // One that was planned before the end was found.
                far.progress.tell_up_to(u64::MAX, |range| {
                    assert_ne!(range.offset, file_end);
                    (range.offset, false)
                });
            }
        }
        assert_eq!(last, file_end);
        let on = (100..110).find_map(&mut note).unwrap();
        let mut begin = 0;
        on.progress.tell_up_to(on.end, |range| {
            begin = range.offset;
            (range.end(), false)
        });
        assert!(begin > file_end);
    }

    #[test]
    fn what_is_told_of_in_vain_is_bounded() {
        let mut streams = Streams::default();
        let (mut told, mut read, mut runs) = (0, 0, 0);
        for place in 1..2000_u64 {
            let start = place << 32;
            let (ranges, _) = read_through(&mut streams, start, start + 2 * FAR_RUN_MIN, 16 << 20);
            let ahead = ranges.last().map_or(0, |range| range.end().saturating_sub(start + 2 * FAR_RUN_MIN));
            (told, read, runs) = (told + ahead, read + 2 * FAR_RUN_MIN, runs + u64::from(ahead > 0));
        }
        assert!(runs > 10, "some are believed: {runs}");
        // Those that are not given up yet are counted when they are.
        let not_seen = (STREAMS_MAX as u64 + 1) * 2 * FAR_RUN_MIN;
        assert!(told <= read / FAR_VAIN_PART + not_seen, "{told} of {read}");
    }
}
