//! Selects which part of a hoard's packs to read ahead. Frames are stored in boot order, so a reader that reads consecutive
//! frames will probably read the next ones.
//!
//! Pure: it is told which frames are read, and uses neither files nor clocks.

use std::ops::Range;

use platter_image::FrameAddress;

/// Maximum number of tracked readers. Each booting disk is one; blocks shared by several boot sets are stored with the first set.
const RUNS_MAX: usize = 16;
/// Initial and maximum length of the range ahead of a reader, in bytes.
const WINDOW_MIN: u64 = 256 << 10;
const WINDOW_MAX: u64 = 4 << 20;
/// Tolerance in bytes: a read belongs to a reader if it is at most this far behind the reader's last read or past its read-ahead
/// range. Boots differ a little from each other, and blocks in the memory cache are skipped.
const GAP_MAX: u64 = 512 << 10;

/// One tracked reader.
#[derive(Clone, Copy, Debug)]
struct Run {
    pack: u32,
    /// Byte after the farthest frame that was read.
    front: u64,
    /// Byte after the range that is read ahead.
    end: u64,
    window: u64,
    last_used: u64,
}

/// All tracked readers of a hoard.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    runs: Vec<Run>,
    clock: u64,
}

impl ReadAhead {
    /// Records that a frame is read. If it continues a sequence, returns the range of its pack to read ahead, possibly empty.
    pub(super) fn note(&mut self, frame: FrameAddress) -> Option<Range<u64>> {
        self.clock += 1;
        let (offset, end) = (frame.offset, frame.offset + u64::from(frame.length));
        let takes = |run: &Run| {
            run.pack == frame.pack
                && offset + GAP_MAX >= run.front
                && offset <= run.end.max(run.front).saturating_add(GAP_MAX)
        };
        let Some(run) = self.runs.iter_mut().find(|run| takes(run)) else {
            let run = Run { pack: frame.pack, front: end, end, window: WINDOW_MIN, last_used: self.clock };
            let is_full = self.runs.len() == RUNS_MAX;
            match self.runs.iter_mut().min_by_key(|run| run.last_used).filter(|_| is_full) {
                Some(oldest) => *oldest = run,
                None => self.runs.push(run),
            }
            return None;
        };
        run.last_used = self.clock;
        run.front = run.front.max(end);
        let begin = run.end.max(run.front);
        if begin - run.front > run.window / 2 {
            return Some(begin..begin);
        }
        run.end = run.front + run.window;
        run.window = (run.window * 2).min(WINDOW_MAX);
        Some(begin..run.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u32 = 70_000;

    fn frame(pack: u32, number: u64) -> FrameAddress {
        FrameAddress { pack, offset: 64 + number * u64::from(LENGTH), length: LENGTH }
    }

    #[test]
    fn a_sequential_reader_gets_each_byte_ahead_once_and_within_the_limit() {
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.note(frame(1, 0)), None, "one read is no sequence");
        let mut planned = frame(1, 1).offset;
        for number in 1..1000 {
            let front = frame(1, number + 1).offset;
            let range = ahead.note(frame(1, number)).unwrap();
            if !range.is_empty() {
                assert_eq!(range.start, planned.max(front));
                planned = range.end;
            }
            assert!(planned > front && planned <= front + WINDOW_MAX, "{number}");
        }
        assert!(planned > frame(1, 1000).offset + WINDOW_MAX / 4);
    }

    #[test]
    fn concurrent_readers_are_tracked_separately() {
        let mut ahead = ReadAhead::default();
        for number in 0..100 {
            for reader in 0..RUNS_MAX as u64 {
                let read = frame(reader as u32 % 2, reader * 10_000 + (number ^ 1));
                let told = ahead.note(read);
                assert!(told.is_none_or(|range| {
                    let front = frame(0, reader * 10_000 + number + 2).offset;
                    range.start <= front + WINDOW_MAX && range.end <= front + WINDOW_MAX
                }));
            }
        }
        assert_eq!(ahead.runs.len(), RUNS_MAX);
        assert!(ahead.runs.iter().all(|run| run.window == WINDOW_MAX));
    }

    #[test]
    fn random_reads_cause_no_read_ahead() {
        let (mut ahead, mut state, mut bytes) = (ReadAhead::default(), 1_u64, 0);
        for _ in 0..1000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            bytes += ahead.note(frame(1, (state >> 40) % 100_000)).map_or(0, |range| range.end - range.start);
        }
        assert!(bytes < 100 * WINDOW_MIN, "{bytes}");
    }
}
