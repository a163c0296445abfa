//! The state of every chunk of a session, from not wanted to done.
//!
//! Owns the counts that the screen and the end of the session live on. All numbers are wire numbers.

use std::ops::Range;

/// The state of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// Nobody wants it (yet).
    Unwanted,
    /// Wanted, and nothing of it is here.
    Wanted,
    /// Being put together in that slot.
    Filling(u32),
    /// It came wrong, and is fetched over the reliable channel: what datagrams bring of it is not looked at.
    Fetching,
    /// With the driver.
    Delivered,
    /// Taken.
    Done,
}

/// All chunks.
#[derive(Debug)]
pub(crate) struct Wants {
    states: Vec<ChunkState>,
    directory_chunks: u32,
    /// Content chunks wanted so far, and taken.
    pub(crate) wanted: u32,
    pub(crate) done: u32,
    /// Chunks in state `Wanted`.
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

    /// The state of a chunk; one that does not exist is not wanted.
    pub(crate) fn state(&self, chunk: u32) -> ChunkState {
        self.states.get(chunk as usize).copied().unwrap_or(ChunkState::Unwanted)
    }

    /// Changes a chunk's state.
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

    /// Wants these chunks, unless they are already.
    pub(crate) fn want(&mut self, range: Range<u32>) {
        for chunk in range.start..range.end.min(self.states.len() as u32) {
            if self.state(chunk) == ChunkState::Unwanted {
                self.set(chunk, ChunkState::Wanted);
            }
        }
    }

    /// Whether a wanted chunk has nothing here.
    pub(crate) fn has_unheld(&self) -> bool {
        self.unheld > 0
    }

    /// The next run of wanted chunks of which nothing is here, from `start` on.
    pub(crate) fn next_unheld(&self, start: u32) -> Option<Range<u32>> {
        let rest = self.states.get(start as usize..)?;
        let first = start + rest.iter().position(|state| *state == ChunkState::Wanted)? as u32;
        let run =
            self.states[first as usize..].iter().take_while(|state| **state == ChunkState::Wanted).count();
        Some(first..first + run as u32)
    }

    /// Gives up what is being put together: it is wanted again.
    pub(crate) fn drop_filling(&mut self) {
        for chunk in 0..self.states.len() as u32 {
            if matches!(self.state(chunk), ChunkState::Filling(_)) {
                self.set(chunk, ChunkState::Wanted);
            }
        }
    }
}
