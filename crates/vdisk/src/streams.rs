//! Which reads of a disk follow each other, and how far ahead of them to read.
//!
//! Pure: it is told of reads and knows nothing else. Requests of one reader may come a little out of order, as they do
//! when a kernel has several under way, and several readers may go through one disk at once.

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
/// What a source far away is told of ahead of a reader, whoever reads that: its bytes have travelled. So a reader must have read so
/// many bytes first, and is believed to read on for as many as this part of those.
const FAR_RUN_MIN: u64 = 256 << 10;
const FAR_PART: u64 = 2;
/// A reader of so many bytes goes through the disk, not through a file: it is not expected to end where a file does.
const FAR_RUN_LONG: u64 = 32 << 20;
/// When more than this part of what a disk's readers read was told in vain, no more is told.
const FAR_VAIN_PART: u64 = 16;

/// How far a reader has come: work ahead of it that it has passed is not done any more.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    front: AtomicU64,
    /// End of what a source far away was told of, and where a file ended there; 0 for none.
    told_end: AtomicU64,
    file_end: AtomicU64,
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

    /// A source was told of what comes up to `end`; nothing beyond, if a file seems to end there.
    pub(crate) fn told(&self, end: u64, is_file_end: bool) {
        self.told_end.store(end, Ordering::Relaxed);
        self.file_end.store(if is_file_end { end } else { 0 }, Ordering::Relaxed);
    }

    /// Bytes that were told of and lie beyond `front`.
    fn told_beyond(&self, front: u64) -> u64 {
        self.told_end.load(Ordering::Relaxed).saturating_sub(front)
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
    pub(crate) range: Extent,
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
        let file_end = self.progress.file_end.load(Ordering::Relaxed);
        if file_end > self.front {
            return None;
        }
        if file_end > 0 {
            // It read on behind the end.
            self.progress.told(0, false);
            self.far_end = 0;
        }
        let window = self.run / FAR_PART;
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
        Some(Far {
            range: Extent::between(begin, end),
            within_file: self.run < FAR_RUN_LONG,
            progress: self.progress.clone(),
        })
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
}
