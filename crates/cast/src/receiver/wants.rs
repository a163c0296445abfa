//! The state of every chunk of a session, from not wanted to done.
//!
//! Owns the counts for the progress display and for the end of the session. All numbers are wire numbers.

use std::ops::Range;

/// State of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// Not wanted (yet).
    Unwanted,
    /// Wanted, and nothing of it has arrived.
    Wanted,
    /// Being assembled in that slot.
    Filling(u32),
    /// It was corrupt and is fetched over the reliable channel; datagrams of it are ignored.
    Fetching,
    /// Passed to the driver.
    Delivered,
    /// Accepted by the driver.
    Done,
}

/// The states of all chunks.
#[derive(Debug)]
pub(crate) struct Wants {
    states: Vec<ChunkState>,
    directory_chunks: u32,
    /// Number of content chunks wanted so far, and accepted.
    pub(crate) wanted: u32,
    pub(crate) done: u32,
    /// Number of chunks in state `Wanted`.
    unheld: u32,
}

impl Wants {
    /// Only the directory is wanted.
    pub(crate) fn new(total: u32, directory_chunks: u32) -> Self {
        let mut wants = Self {
            states: vec![ChunkState::Unwanted; total as usize],
            directory_chunks,
            wanted: 0,
            done: 0,
            unheld: 0,
        };
        for chunk in 0..directory_chunks {
            wants.set(chunk, ChunkState::Wanted);
        }
        wants
    }

    /// Returns the state of a chunk. One that does not exist is not wanted.
    pub(crate) fn state(&self, chunk: u32) -> ChunkState {
        self.states.get(chunk as usize).copied().unwrap_or(ChunkState::Unwanted)
    }

    /// Changes the state of a chunk.
    pub(crate) fn set(&mut self, chunk: u32, state: ChunkState) {
        let Some(slot) = self.states.get_mut(chunk as usize) else { return };
        let before = std::mem::replace(slot, state);
        self.unheld -= u32::from(before == ChunkState::Wanted);
        self.unheld += u32::from(state == ChunkState::Wanted);
        if chunk >= self.directory_chunks {
            self.wanted += u32::from(before == ChunkState::Unwanted && state != ChunkState::Unwanted);
            self.done += u32::from(state == ChunkState::Done);
            self.done -= u32::from(before == ChunkState::Done);
        }
    }

    /// Marks these chunks as wanted, unless they already are.
    pub(crate) fn want(&mut self, range: Range<u32>) {
        for chunk in range.start..range.end.min(self.states.len() as u32) {
            if self.state(chunk) == ChunkState::Unwanted {
                self.set(chunk, ChunkState::Wanted);
            }
        }
    }

    /// Returns whether there is a wanted chunk of which nothing has arrived.
    pub(crate) fn has_unheld(&self) -> bool {
        self.unheld > 0
    }

    /// Returns the next run of wanted chunks of which nothing has arrived, from `start` on.
    pub(crate) fn next_unheld(&self, start: u32) -> Option<Range<u32>> {
        let rest = self.states.get(start as usize..)?;
        let first = start + rest.iter().position(|state| *state == ChunkState::Wanted)? as u32;
        let run =
            self.states[first as usize..].iter().take_while(|state| **state == ChunkState::Wanted).count();
        Some(first..first + run as u32)
    }

    /// Drops the chunks that are being assembled: they are wanted again.
    pub(crate) fn drop_filling(&mut self) {
        for chunk in 0..self.states.len() as u32 {
            if matches!(self.state(chunk), ChunkState::Filling(_)) {
                self.set(chunk, ChunkState::Wanted);
            }
        }
    }
}
