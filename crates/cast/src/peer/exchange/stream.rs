//! The state of one peer's stream: received and pending messages, and our open questions.
//!
//! Owns the rules of the protocol: HELLO comes first, answers only follow questions, and never have more than was requested.

use std::collections::{BTreeMap, VecDeque};

use platter_image::{BlockId, Error, Result};

use super::serving::Asker;
use crate::peer::filter::{FilterVersion, Holdings, PieceCursor};
use crate::peer::wire::PeerMessage;

/// The state of one peer's stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Whether the driver has a connection.
    pub(super) is_connected: bool,
    /// Whether the peer has sent HELLO.
    pub(super) is_joined: bool,
    /// Whether the connection is full for now.
    pub(super) is_full: bool,
    /// Whether we subscribe to the peer's filter.
    pub(super) is_heard: bool,
    /// Small messages, which are sent before frames.
    pub(super) control: VecDeque<PeerMessage>,
    /// Our questions to the peer.
    pub(super) questions: BTreeMap<u32, Question>,
    /// The peer's questions to us.
    pub(super) asker: Asker,
    /// The peer's progress in reading our filter, if it subscribes to it.
    pub(super) reader: Option<FilterReader>,
}

/// One of our questions to a peer.
#[derive(Debug)]
pub(super) struct Question {
    ids: Vec<BlockId>,
    frames: usize,
    is_cancelled: bool,
}

impl Stream {
    /// Records a question that is being sent.
    pub(super) fn ask(&mut self, request: u32, ids: Vec<BlockId>) {
        self.questions.insert(request, Question { ids, frames: 0, is_cancelled: false });
    }

    /// Cancels a question. Returns whether it was open and not yet cancelled.
    pub(super) fn cancel(&mut self, request: u32) -> bool {
        let question = self.questions.get_mut(&request).filter(|question| !question.is_cancelled);
        question.map(|question| question.is_cancelled = true).is_some()
    }

    /// Handles a frame. Returns whether it is still wanted.
    pub(super) fn heed_frame(&mut self, request: u32) -> Result<bool> {
        let question = self.questions.get_mut(&request).ok_or_else(|| unasked(request))?;
        question.frames += 1;
        if question.frames > question.ids.len() {
            let asked = question.ids.len();
            return Err(Error::corrupt(format!("a peer sent more than {asked} frames for {asked} ids")));
        }
        Ok(!question.is_cancelled)
    }

    /// Handles the end of an answer. Returns whether it is still wanted.
    pub(super) fn heed_end(&mut self, request: u32, missing: &[BlockId]) -> Result<bool> {
        let question = self.questions.remove(&request).ok_or_else(|| unasked(request))?;
        if missing.iter().any(|id| !question.ids.contains(id)) {
            return Err(Error::corrupt("a peer reports missing blocks that were not requested"));
        }
        Ok(!question.is_cancelled)
    }

    /// Handles a BUSY. Returns whether the question is still wanted.
    pub(super) fn heed_busy(&mut self, request: u32) -> Result<bool> {
        let question = self.questions.remove(&request).ok_or_else(|| unasked(request))?;
        if question.frames > 0 {
            return Err(Error::corrupt("a peer sent BUSY after frames of the same answer"));
        }
        Ok(!question.is_cancelled)
    }
}

fn unasked(request: u32) -> Error {
    Error::corrupt(format!("a peer answers question {request}, which was not asked"))
}

/// A subscriber's progress in reading our filter.
#[derive(Debug, Default)]
pub(super) struct FilterReader {
    cursor: PieceCursor,
    /// The version that it has; `None` until the first whole filter was sent.
    version: Option<FilterVersion>,
}

impl FilterReader {
    /// Returns the next message that brings it up to date; `None` if it is.
    pub(super) fn next_message(&mut self, holdings: &Holdings) -> Option<PeerMessage> {
        let now = holdings.version();
        if self.version.is_none_or(|version| version.generation != now.generation) {
            if let Some(piece) = holdings.next_piece(&mut self.cursor) {
                return Some(PeerMessage::Filter(piece));
            }
            self.version = Some(self.cursor.version());
            self.cursor = PieceCursor::default();
        }
        let version = self.version.as_mut()?;
        let changes = holdings.changes_since(*version)?;
        version.additions += changes.keys.len() as u32;
        Some(PeerMessage::Changes(changes))
    }
}
