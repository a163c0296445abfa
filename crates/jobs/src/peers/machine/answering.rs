//! What becomes of frames: who waited for them, and the questions of peers.
//!
//! Must never give out a frame that was not verified, nor take one that was not asked for.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use platter_cast::peer::{Failure, NodeId, PieceId};
use platter_image::frame::FrameHeader;
use platter_image::{BlockId, Error, ErrorKind, Kind, Result};

use super::event::VerifiedFrame;
use super::state::Machine;
use crate::peers::reads::Progress;
use crate::peers::serving::{Answer, Asked};
use crate::peers::wants::{Found, Place};

impl Machine {
    /// Somebody waits for a block.
    pub(super) fn want(&mut self, now: Duration, place: Place, id: BlockId, waiter: Sender<Found>) {
        match self.shelf.find(place.kind, &id) {
            // Who does not wait any more does not need it.
            Some(frame) => drop(waiter.send(Ok(Some(frame.stored.clone())))),
            None => self.wants.demand(&mut self.parts.choice, now, place, id, waiter),
        }
    }

    /// A frame came for our question to a peer. It was verified; whether it was asked for is seen here.
    pub(super) fn take_from_peer(&mut self, now: Duration, node: NodeId, request: u32, stored: Arc<[u8]>) {
        let header = self.header.take().map_or_else(|| FrameHeader::parse(&stored), Ok);
        let asked = self.asked.get(&(node, request));
        let header = header.ok().filter(|header| {
            let named = |ids: &[BlockId]| header.blocks.iter().any(|block| ids.contains(&block.id));
            asked.is_some_and(|ask| ask.kind == header.kind && named(&ask.ids))
        });
        let Some(header) = header else {
            self.drop_liar(now, node);
            return;
        };
        self.counts.frames_received += 1;
        self.counts.frame_bytes_received += stored.len() as u64;
        self.take(now, request, &VerifiedFrame { header, stored });
    }

    /// A verified frame came as an answer: it is kept, and given to whoever waits.
    pub(super) fn take(&mut self, now: Duration, request: u32, frame: &VerifiedFrame) {
        if self.shelf.insert(frame) {
            // What cannot be kept now is still given to whoever wants it.
            self.parts.keeper.keep(frame.clone());
        }
        let ids: Vec<BlockId> = frame.ids().copied().collect();
        self.parts.choice.handle_arrived(now, request, &ids);
        let came = self.wants.came(&mut self.parts.choice, frame.header.kind, ids.iter());
        let mut reads = Vec::new();
        for wanted in came {
            for waiter in wanted.waiters {
                let _ = waiter.send(Ok(Some(frame.stored.clone())));
            }
            reads.extend(wanted.reads);
        }
        reads.sort_unstable();
        reads.dedup();
        reads.into_iter().for_each(|read| self.give_to_read(read, frame));
    }

    /// The origin's answer to a question ended.
    pub(super) fn handle_origin_ended(&mut self, now: Duration, number: u32, result: Result<Vec<BlockId>>) {
        self.parts.origin.ended(number);
        match result {
            Ok(missing) => {
                // Ids of blocks and of pages cannot be equal.
                self.wants.absent(Kind::Data, &missing);
                self.wants.absent(Kind::Page, &missing);
                self.parts.choice.handle_answered(now, number, &missing, None);
            }
            Err(error) => {
                self.origin_failure = told(&error);
                self.parts.choice.handle_failed(now, number, Failure::Gone);
            }
        }
    }

    /// Nobody gave these.
    pub(super) fn handle_failed_piece(&mut self, piece: PieceId, ids: &[BlockId]) {
        for (key, wanted) in self.wants.ended(piece, ids) {
            for waiter in wanted.waiters {
                let found = if wanted.absent {
                    Ok(None)
                } else {
                    let why = &self.origin_failure;
                    let what = format!("no peer gives {:?} {}, nor the origin: {why}", key.kind, key.id);
                    Err((ErrorKind::Transient, what))
                };
                let _ = waiter.send(found);
            }
            for read in wanted.reads {
                self.fail_read(read, &key.id);
            }
        }
    }

    /// What is held for a peer's question: it is given. What is not is fetched, if the peer takes this node for its home.
    pub(super) fn handle_served(&mut self, now: Duration, answer: Answer) {
        let Answer { asked: Asked { number, node, ask }, mut frames, mut missing } = answer;
        let request = ask.request;
        if self.serving.get(&(node, request)) != Some(&number) {
            return;
        }
        // What just came may not be held yet.
        for id in std::mem::take(&mut missing) {
            match self.shelf.find(ask.kind, &id) {
                Some(frame) if !frames.iter().any(|it| Arc::ptr_eq(it, &frame.stored)) => {
                    frames.push(frame.stored.clone());
                }
                Some(_) => {}
                None => missing.push(id),
            }
        }
        for frame in frames {
            self.parts.exchange.give(node, request, frame);
        }
        if !ask.fetch || missing.is_empty() || !self.reads.has_room() {
            self.finish(node, request, missing);
            return;
        }
        self.counts.fetches_for_peers += 1;
        self.reads.begin(number, node, request, &missing);
        // The question is of one group.
        let group = ask.ids.first().map_or(0, |first| self.parts.links.context.groups.of(ask.kind, first));
        let place = Place { score: ask.score, kind: ask.kind, group };
        if !self.wants.demand_for_peer(&mut self.parts.choice, now, place, &missing, number) {
            self.reads.cancel(number);
            self.finish(node, request, missing);
        }
    }

    fn give_to_read(&mut self, read: u64, frame: &VerifiedFrame) {
        let Some((node, request)) = self.reads.get(read) else { return };
        let (gives, ends) = match self.reads.came(read, frame.ids()) {
            Progress::Nothing => (false, None),
            Progress::Gives => (true, None),
            Progress::Ends(missing) => (true, Some(missing)),
        };
        if gives {
            self.parts.exchange.give(node, request, frame.stored.clone());
        }
        if let Some(missing) = ends {
            self.finish(node, request, missing);
        }
    }

    fn fail_read(&mut self, read: u64, id: &BlockId) {
        let Some((node, request)) = self.reads.get(read) else { return };
        if let Progress::Ends(missing) = self.reads.failed(read, id) {
            self.finish(node, request, missing);
        }
    }

    fn finish(&mut self, node: NodeId, request: u32, missing: Vec<BlockId>) {
        self.serving.remove(&(node, request));
        self.parts.exchange.finish(node, request, missing);
    }
}

/// An error with its causes.
fn told(error: &Error) -> String {
    let mut what = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        what = format!("{what}: {cause}");
        source = cause.source();
    }
    what
}
