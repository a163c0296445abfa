//! Which part of a hoard's packs is read before it is asked for. Frames lie there in the order of boots, so whoever has read some
//! that lie behind each other reads on.
//!
//! Pure: it is told of reads, and knows neither files nor clocks.

use std::ops::Range;

use platter_image::FrameAddress;

/// Readers that are told apart: each disk that boots is one, and what several boot sets share lies where the first has it.
const RUNS_MAX: usize = 16;
/// Bytes ahead of a reader at first, and at most.
const WINDOW_MIN: u64 = 256 << 10;
const WINDOW_MAX: u64 = 4 << 20;
/// How far behind what was read, and beyond what is read ahead, a read of the same reader may be, in bytes: boots are not alike to
/// the last read, and what is in memory already is left out.
const GAP_MAX: u64 = 512 << 10;

/// A reader.
#[derive(Clone, Copy, Debug)]
struct Run {
    pack: u32,
    /// First byte after the farthest frame that was read, and after what is read ahead.
    front: u64,
    end: u64,
    window: u64,
    last_used: u64,
}

/// All readers of a hoard.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    runs: Vec<Run>,
    clock: u64,
}

impl ReadAhead {
    /// Takes note of a frame that a reader comes to. If it follows others: which bytes of its pack to read ahead, if any.
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
    fn who_reads_in_order_has_everything_ahead_of_him_once_and_no_more_than_the_bound() {
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.note(frame(1, 0)), None, "one read is no order");
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
    fn readers_at_once_are_told_apart() {
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
    fn who_reads_here_and_there_has_nothing_read_ahead() {
        let (mut ahead, mut state, mut bytes) = (ReadAhead::default(), 1_u64, 0);
        for _ in 0..1000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            bytes += ahead.note(frame(1, (state >> 40) % 100_000)).map_or(0, |range| range.end - range.start);
        }
        assert!(bytes < 100 * WINDOW_MIN, "{bytes}");
    }
}
