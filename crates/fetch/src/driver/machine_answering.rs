//! Delivers frames to waiting readers, and serves requests of peers.
//!
//! Must never deliver an unverified frame, nor accept one that was not requested.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use platter_cast::peer::{Failure, NodeId, PIECE_TIME_MAX, PieceId};
use platter_image::frame::FrameHeader;
use platter_image::{BlockId, ErrorKind, Kind, Result};

use super::frame::{Key, VerifiedFrame};
use super::machine::Machine;
use super::reads::Progress;
use super::serving::{Answer, Asked};
use super::wants::{FetchResult, WantKey};

impl Machine {
    /// A reader waits for a block.
    pub(super) fn want(&mut self, now: Duration, place: WantKey, id: BlockId, waiter: Sender<FetchResult>) {
        match self.shelf.read(Key { kind: place.kind, id }) {
            // Sending fails only when the reader no longer waits.
            Some(frame) => drop(waiter.send(Ok(Some(frame)))),
            None => self.wants.demand(&mut self.scheduler, now, place, id, waiter),
        }
    }

    /// A verified frame arrived for a request to a peer. Checks that it was requested.
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
        self.take(now, request, &VerifiedFrame::new(header, stored));
    }

    /// A verified frame arrived from the origin for this request.
    ///
    /// # Errors
    /// `Corrupt` when it was not requested; `Refused` when it is no longer wanted. In both cases the rest of the
    /// response is not read.
    pub(super) fn take_from_origin(
        &mut self,
        now: Duration,
        number: u32,
        frame: &Arc<VerifiedFrame>,
    ) -> Result<()> {
        self.origin.came(number, frame)?;
        self.counts.origin_frames += 1;
        self.counts.origin_frame_bytes += frame.stored.len() as u64;
        self.origin_failure = (ErrorKind::Transient, "it did not arrive in time".to_owned());
        self.scheduler.handle_bytes(now, number, frame.stored.len() as u64);
        self.take(now, number, frame);
        Ok(())
    }

    /// A requested, verified frame arrived: it is kept, and delivered to waiting readers.
    fn take(&mut self, now: Duration, request: u32, frame: &Arc<VerifiedFrame>) {
        let ids: Vec<BlockId> = frame.ids().copied().collect();
        self.scheduler.handle_arrived(now, request, &ids);
        let came = self.wants.came(&mut self.scheduler, frame.header.kind, ids.iter());
        let is_read = self.keeps || came.iter().any(|wanted| !wanted.waiters.is_empty());
        self.shelf.insert(now, frame, is_read);
        if self.keeps {
            self.to_keep.push(frame.clone());
        }
        let mut reads = Vec::new();
        for wanted in came {
            for waiter in wanted.waiters {
                let _ = waiter.send(Ok(Some(frame.clone())));
            }
            reads.extend(wanted.reads);
        }
        reads.sort_unstable();
        reads.dedup();
        reads.into_iter().for_each(|read| self.give_to_read(read, frame));
    }

    /// The origin's response to a request ended.
    pub(super) fn handle_origin_ended(&mut self, now: Duration, number: u32, result: Result<Vec<BlockId>>) {
        if !self.origin.ended(number) {
            return;
        }
        match result {
            Ok(missing) => {
                // Ids of blocks and pages are never equal.
                self.wants.absent(Kind::Data, &missing);
                self.wants.absent(Kind::Page, &missing);
                let left_out = "the origin neither sent it nor reported it as missing";
                self.origin_failure = (ErrorKind::Corrupt, left_out.to_owned());
                self.scheduler.handle_answered(now, number, &missing, None);
            }
            Err(error) => {
                self.origin_failure = (error.kind(), error.with_causes());
                let is_over = error.kind() != ErrorKind::Transient;
                let failure = if is_over { Failure::Refused } else { Failure::Gone };
                self.scheduler.handle_failed(now, number, failure);
            }
        }
    }

    /// No source had these blocks.
    pub(super) fn handle_failed_piece(&mut self, piece: PieceId, ids: &[BlockId]) {
        for (key, wanted) in self.wants.ended(piece, ids) {
            for waiter in wanted.waiters {
                let found = if wanted.absent {
                    Ok(None)
                } else {
                    let (kind, why) = &self.origin_failure;
                    Err((*kind, format!("{:?} {} cannot be fetched: {why}", key.kind, key.id)))
                };
                let _ = waiter.send(found);
            }
            for read in wanted.reads {
                self.fail_read(read, &key.id);
            }
        }
    }

    /// Sends a peer the held frames for its request. The rest is fetched if the peer asks this node as the home.
    pub(super) fn handle_served(&mut self, now: Duration, answer: Answer) {
        let Answer { asked: Asked { number, node, ask }, mut frames, mut missing } = answer;
        let request = ask.request;
        if self.serving.get(&(node, request)) != Some(&number) {
            return;
        }
        // Frames that have just arrived may not be held yet.
        for id in std::mem::take(&mut missing) {
            match self.shelf.find(Key { kind: ask.kind, id }) {
                Some(frame) if !frames.iter().any(|it| Arc::ptr_eq(it, &frame.stored)) => {
                    frames.push(frame.stored.clone());
                }
                Some(_) => {}
                None => missing.push(id),
            }
        }
        for frame in frames {
            self.exchange.give(node, request, frame);
        }
        if !ask.fetch || missing.is_empty() || !self.reads.has_room() {
            self.finish(node, request, missing);
            return;
        }
        self.counts.fetches_for_peers += 1;
        self.reads.begin(number, node, request, &missing);
        // All blocks of a request are of one group.
        let groups = self.sharing.as_ref().map(|sharing| &sharing.links.context.groups);
        let group = groups.zip(ask.ids.first()).map_or(0, |(groups, first)| groups.of(ask.kind, first));
        let (exact, patience) = (false, PIECE_TIME_MAX);
        let place = WantKey { score: ask.score, kind: ask.kind, group, exact, patience };
        if !self.wants.demand_for_peer(&mut self.scheduler, now, place, &missing, number) {
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
            self.exchange.give(node, request, frame.stored.clone());
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
        self.exchange.finish(node, request, missing);
    }
}
