//! Detects sequential readers of a disk and decides how far to read ahead of them.
//!
//! Pure: it only receives the reads. A reader's requests may arrive slightly out of order, as from a kernel
//! with several requests in flight, and several readers may read one disk at the same time.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::Extent;

/// The most sequential readers that are tracked.
const STREAMS_MAX: usize = 8;
/// A read of at least this many bytes counts as sequential: it needs most of its frames whole.
const LONG_READ: u64 = 128 << 10;
/// A read may begin this many bytes past a stream's front and still belong to it; for long reads, twice the
/// read's length.
const GAP_MAX: u64 = 128 << 10;
/// A stream remembers its reads over this many bytes.
const MEMORY: u64 = 8 << 20;
/// Bytes that a stream must have read before read-ahead starts.
const RUN_MIN: u64 = 32 << 10;
/// The smallest read-ahead in bytes: about one frame.
const AHEAD_MIN: u64 = 128 << 10;
/// A far source transfers all announced blocks, read or not. So a reader must first have read this many bytes
/// in order. It is then expected to read on for as many bytes as it has read.
const FAR_RUN_MIN: u64 = 64 << 10;
/// A reader that has read this many bytes in order reads the whole disk and not a file, so it is not expected
/// to stop at the end of a file.
const FAR_RUN_LONG: u64 = 32 << 20;
/// Announcements stop when more than 1/8 of the bytes read was announced in vain.
const FAR_VAIN_PART: u64 = 8;

/// How far a reader has come. Jobs ahead of it are skipped once the reader has passed them.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    front: AtomicU64,
    told: Mutex<Told>,
}

/// The announcements to a far source about this reader.
#[derive(Debug, Default)]
struct Told {
    end: u64,
    /// Where a file seems to end; nothing beyond it was announced. 0 if no end was found.
    file_end: u64,
}

impl Progress {
    /// The reader has reached `offset`.
    pub(crate) fn set(&self, offset: u64) {
        self.front.store(offset, Ordering::Relaxed);
    }

    /// The reader has stopped: all its jobs become useless.
    pub(crate) fn end(&self) {
        self.set(u64::MAX);
    }

    /// Whether the reader has passed `end`, so that data before it is no longer useful.
    pub(crate) fn has_passed(&self, end: u64) -> bool {
        self.front.load(Ordering::Relaxed) >= end
    }

    /// Announces the range up to `end` to a source, unless that was done before or a file ends earlier.
    /// `tell` returns how far it announced, and whether a file ends there. Calls are serialized: none may
    /// begin beyond a file's end that another call is about to find.
    pub(crate) fn tell_up_to(&self, end: u64, tell: impl FnOnce(Extent) -> (u64, bool)) {
        let mut told = self.told.lock();
        let front = self.front.load(Ordering::Relaxed);
        let begin = told.end.max(front);
        if (told.file_end == 0 || told.file_end < front) && begin < end {
            let (end, is_file_end) = tell(Extent::between(begin, end));
            *told = Told { end, file_end: if is_file_end { end } else { 0 } };
        }
    }

    /// Bytes announced beyond `front`; 0 while that is unknown.
    fn told_beyond(&self, front: u64) -> u64 {
        self.told().map_or(0, |told| told.end.saturating_sub(front))
    }

    /// `None` while an announcement is in progress. It may take as long as fetching a recipe page, and no
    /// reader should wait for that.
    fn told(&self) -> Option<MutexGuard<'_, Told>> {
        self.told.try_lock()
    }
}

/// How to treat a read.
pub(crate) struct Access {
    /// It follows earlier reads, or is long.
    pub(crate) sequential: bool,
    /// The range to read ahead, if the source is near.
    pub(crate) ahead: Option<(Extent, Arc<Progress>)>,
    /// The range to announce to a far source.
    pub(crate) far: Option<Far>,
}

/// The range that a reader is expected to read next.
pub(crate) struct Far {
    /// The end of the range.
    pub(crate) end: u64,
    /// Stop at the end of the file.
    pub(crate) within_file: bool,
    pub(crate) progress: Arc<Progress>,
}

#[derive(Default)]
struct Stream {
    /// Where it began, or where its memory begins.
    start: u64,
    /// The first byte after the farthest read.
    front: u64,
    /// Bytes read since `start`.
    covered: u64,
    reads: u32,
    /// Bytes read in order since it began.
    run: u64,
    /// The end of what was read ahead.
    ahead_end: u64,
    /// The end of what was announced to a far source.
    far_end: u64,
    last_used: u64,
    progress: Arc<Progress>,
}

impl Stream {
    fn takes(&self, read: Extent) -> bool {
        let gap = GAP_MAX.max(2 * read.length);
        self.reads > 0 && read.offset >= self.start && read.offset <= self.front.saturating_add(gap)
    }

    /// Whether at least half of the range it passed was read.
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

    /// The next range to read ahead. The window grows with what was read; a new range is planned once at most
    /// half of the window is left.
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

    /// The next range to announce to a far source.
    fn far(&mut self, far_max: &dyn Fn() -> u64) -> Option<Far> {
        if self.run < FAR_RUN_MIN {
            return None;
        }
        match self.progress.told()?.file_end {
            0 => {}
            file_end if file_end >= self.front => return None,
            // It read on past the end of the file.
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
    /// Bytes read, and bytes announced to a far source but not read.
    read: u64,
    vain: u64,
}

impl Streams {
    /// Records a read and decides how to treat it. `ahead_max` is the most bytes to read ahead; `far_max`
    /// returns the most bytes to announce to a far source.
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
            // It turned random: drop what was planned ahead of it.
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
    fn a_reader_is_sequential_from_its_second_read_and_each_byte_ahead_is_planned_once() {
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
    fn concurrent_readers_slightly_out_of_order_are_distinguished() {
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
    fn planned_read_ahead_is_dropped_when_a_reader_is_forgotten() {
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

    /// Reads 64 KiB at a time from `from` to `to`. Returns the announced ranges, and the most bytes announced
    /// ahead of the reader.
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
    fn announcements_to_a_far_source_grow_with_the_length_of_a_run() {
        for far_max in [1 << 20, 16 << 20] {
            let mut streams = Streams::default();
            let (told, most) = read_through(&mut streams, 0, 100 << 20, far_max);
            assert_eq!(most, far_max);
            assert!(told[0].offset >= FAR_RUN_MIN, "{:?}", told[0]);
            for range in &told {
                // No announcement is longer than what the reader had read before.
                assert!(range.length <= range.offset, "{range:?}");
            }
            assert!(told.windows(2).all(|pair| pair[0].end() <= pair[1].offset), "each byte once");
            let all: u64 = told.iter().map(|range| range.length).sum();
            assert!(all > 98 << 20, "{all}");
        }
        let (told, _) = read_through(&mut Streams::default(), 0, 100 << 20, 0);
        assert!(told.is_empty(), "a near source gets no announcements");
    }

    #[test]
    fn announcements_stop_at_the_end_of_a_file_and_resume_behind_it() {
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
                // A job that was planned before the end was found.
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
    fn useless_announcements_are_bounded() {
        let mut streams = Streams::default();
        let (mut told, mut read, mut runs) = (0, 0, 0);
        for place in 1..2000_u64 {
            let start = place << 32;
            let (ranges, _) = read_through(&mut streams, start, start + 2 * FAR_RUN_MIN, 16 << 20);
            let ahead = ranges.last().map_or(0, |range| range.end().saturating_sub(start + 2 * FAR_RUN_MIN));
            (told, read, runs) = (told + ahead, read + 2 * FAR_RUN_MIN, runs + u64::from(ahead > 0));
        }
        assert!(runs > 10, "some runs are announced: {runs}");
        // Announcements of streams that are still tracked are not counted as useless yet.
        let not_seen = (STREAMS_MAX as u64 + 1) * 2 * FAR_RUN_MIN;
        assert!(told <= read / FAR_VAIN_PART + not_seen, "{told} of {read}");
    }
}
