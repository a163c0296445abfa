//! One peer's stream: what was said, what is to be said, and our questions under way.
//!
//! Owns the order of a conversation: HELLO first, answers only to questions, and never more than was asked for.

use std::collections::{BTreeMap, VecDeque};

use platter_image::{BlockId, Error, Result};

use super::serving::Asker;
use crate::peer::filter::{FilterVersion, Holdings, PieceCursor};
use crate::peer::wire::PeerMessage;

/// One peer's stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The driver has a connection.
    pub(super) is_connected: bool,
    /// The peer said HELLO.
    pub(super) is_joined: bool,
    /// Its connection takes no more for now.
    pub(super) is_full: bool,
    /// Its filter is wanted here.
    pub(super) is_heard: bool,
    /// Small messages, which go before frames.
    pub(super) control: VecDeque<PeerMessage>,
    /// Our questions.
    pub(super) questions: BTreeMap<u32, Question>,
    /// The peer's questions.
    pub(super) asker: Asker,
    /// How far the peer knows our filter, if it wants to.
    pub(super) reader: Option<FilterReader>,
}

/// Our question to a peer.
#[derive(Debug)]
pub(super) struct Question {
    ids: Vec<BlockId>,
    frames: usize,
    is_cancelled: bool,
}

impl Stream {
    /// Notes a question that is being sent.
    pub(super) fn ask(&mut self, request: u32, ids: Vec<BlockId>) {
        self.questions.insert(request, Question { ids, frames: 0, is_cancelled: false });
    }

    /// True when there was such a question, and it is cancelled only now.
    pub(super) fn cancel(&mut self, request: u32) -> bool {
        let question = self.questions.get_mut(&request).filter(|question| !question.is_cancelled);
        question.map(|question| question.is_cancelled = true).is_some()
    }

    /// A frame came. True when somebody still wants it.
    pub(super) fn heed_frame(&mut self, request: u32) -> Result<bool> {
        let question = self.questions.get_mut(&request).ok_or_else(|| unasked(request))?;
        question.frames += 1;
        if question.frames > question.ids.len() {
            let asked = question.ids.len();
            return Err(Error::corrupt(format!("a peer sent more than {asked} frames for as many ids")));
        }
        Ok(!question.is_cancelled)
    }

    /// A question was answered to its end. True when somebody still wants to know.
    pub(super) fn heed_end(&mut self, request: u32, missing: &[BlockId]) -> Result<bool> {
        let question = self.questions.remove(&request).ok_or_else(|| unasked(request))?;
        if missing.iter().any(|id| !question.ids.contains(id)) {
            return Err(Error::corrupt("a peer misses blocks that nobody asked for"));
        }
        Ok(!question.is_cancelled)
    }

    /// A question was put off. True when somebody still wants to know.
    pub(super) fn heed_busy(&mut self, request: u32) -> Result<bool> {
        let question = self.questions.remove(&request).ok_or_else(|| unasked(request))?;
        if question.frames > 0 {
            return Err(Error::corrupt("a peer was busy in the middle of an answer"));
        }
        Ok(!question.is_cancelled)
    }
}

fn unasked(request: u32) -> Error {
    Error::corrupt(format!("a peer answers question {request}, which was not asked"))
}

/// How far a subscriber knows our filter.
#[derive(Debug, Default)]
pub(super) struct FilterReader {
    cursor: PieceCursor,
    /// None until the first filter went out whole.
    version: Option<FilterVersion>,
}

impl FilterReader {
    /// The next message that brings it up to date; none when it is.
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
