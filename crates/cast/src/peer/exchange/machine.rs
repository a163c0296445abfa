//! The state machine of the exchange. Inputs: messages, frames, what this node holds, and time. Outputs: messages and events.
//!
//! Owns the streams, this node's filter, and the order of sending: small messages first, then
//! frames, with askers taking turns. Must never hold more for a peer than its limits allow, whatever the peer sends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use platter_image::{BlockId, Error, Result};

use super::event::{ExchangeEvent, ExchangeOptions, ExchangeStatistics};
use super::sending::frame_bytes;
use super::serving::{ASKS_PER_PEER_MAX, SERVING_PER_PEER_MAX, Share};
use super::stream::{FilterReader, Stream};
use crate::peer::filter::{FilterVersion, Holdings};
use crate::peer::schedule::Ask;
use crate::peer::wire::{AskMessage, Hello, NodeId, PeerMessage};

/// Maximum number of streams.
pub const STREAMS_MAX: usize = 4096;
/// Maximum number of peers that subscribe to our filter. Further subscriptions are ignored.
const SUBSCRIBERS_MAX: usize = 64;
/// Maximum number of questions with the driver, not counting fetches.
const SERVING_MAX: usize = 32;
/// Bytes of frames that wait to be sent, above which no further question is started.
const OUT_BYTES_MAX: u64 = 32 << 20;
/// Maximum number of unanswered questions of all peers. Further ones are refused with BUSY.
const ASKS_MAX: usize = 4096;
/// The time in BUSY after which to ask again.
const BUSY_RETRY: Duration = Duration::from_millis(200);
/// Maximum number of small messages that wait for one peer. A peer that does not read them is dropped.
const CONTROL_MAX: usize = 1024;

/// The state machine of the exchange.
#[derive(Debug)]
pub struct Exchange {
    pub(super) options: ExchangeOptions,
    pub(super) holdings: Holdings,
    pub(super) streams: BTreeMap<NodeId, Stream>,
    /// Streams with small messages to send.
    pub(super) talking: BTreeSet<NodeId>,
    /// Streams with frames to send, in turn.
    pub(super) sending: VecDeque<NodeId>,
    /// Streams with questions for the driver, in turn.
    pub(super) asking: VecDeque<NodeId>,
    /// Subscribers that are not up to date, in turn.
    pub(super) telling: VecDeque<NodeId>,
    pub(super) subscribers: BTreeSet<NodeId>,
    pub(super) told: FilterVersion,
    pub(super) told_at: Duration,
    pub(super) share: Share,
    pub(super) asks: usize,
    pub(super) serving: usize,
    pub(super) fetching: BTreeSet<(NodeId, u32)>,
    pub(super) out_bytes: u64,
    pub(super) events: VecDeque<ExchangeEvent>,
    pub(super) statistics: ExchangeStatistics,
}

impl Exchange {
    /// Makes the machine of a node that holds nothing and has no streams.
    pub fn new(options: ExchangeOptions) -> Self {
        let holdings = Holdings::new(options.salt);
        Self {
            told: holdings.version(),
            holdings,
            streams: BTreeMap::new(),
            talking: BTreeSet::new(),
            sending: VecDeque::new(),
            asking: VecDeque::new(),
            telling: VecDeque::new(),
            subscribers: BTreeSet::new(),
            told_at: Duration::ZERO,
            share: Share::new(options.share_bits_per_second),
            asks: 0,
            serving: 0,
            fetching: BTreeSet::new(),
            out_bytes: 0,
            events: VecDeque::new(),
            statistics: ExchangeStatistics::default(),
            options,
        }
    }

    /// Adds a verified block to those that this node holds.
    pub fn hold(&mut self, id: &BlockId) {
        self.holdings.insert(id);
    }

    /// Replaces the blocks that this node holds. Subscribers get a new filter.
    pub fn hold_only(&mut self, ids: &[BlockId]) {
        self.holdings.replace(ids);
    }

    /// Removes a block from those that this node holds.
    pub fn drop_held(&mut self, id: &BlockId) {
        self.holdings.remove(id);
    }

    /// Returns the blocks that this node holds.
    pub fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Records that the node's own disks use disk or network now: peers yield.
    pub fn own_traffic(&mut self, now: Duration) {
        self.share.own_traffic(now);
    }

    /// Handles that there is a stream to that node, whichever side opened it. Of two streams between the same nodes, the driver
    /// keeps the one that the node with the smaller id opened. Returns false at the limit of [`STREAMS_MAX`]: then close it.
    #[must_use]
    pub fn handle_connected(&mut self, node: NodeId) -> bool {
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&node) {
            return false;
        }
        let stream = self.streams.entry(node).or_default();
        if !stream.is_connected {
            stream.is_connected = true;
            stream.control.push_front(PeerMessage::Hello(self.options.hello));
            self.talking.insert(node);
        }
        true
    }

    /// Handles that the stream to that node ended or could not be opened. Our questions to it get no answer: call
    /// [`crate::peer::Scheduler::peer_gone`].
    pub fn handle_disconnected(&mut self, node: NodeId) {
        let Some(stream) = self.streams.remove(&node) else { return };
        for request in stream.asker.serving.iter().copied() {
            self.leave(node, request);
            self.events.push_back(ExchangeEvent::Cancelled(node, request));
        }
        self.asks -= stream.asker.open();
        self.out_bytes -= stream.asker.out.iter().map(frame_bytes).sum::<u64>();
        self.talking.remove(&node);
        self.subscribers.remove(&node);
        for turns in [&mut self.sending, &mut self.asking, &mut self.telling] {
            turns.retain(|other| *other != node);
        }
    }

    /// Handles that the connection to that node is full, or no longer full. While it is full, no messages are returned for it,
    /// and none of its questions is started.
    pub fn handle_full(&mut self, node: NodeId, is_full: bool) {
        let Some(stream) = self.streams.get_mut(&node) else { return };
        stream.is_full = is_full;
        if is_full {
            return;
        }
        // The node was skipped meanwhile.
        let (sends, is_told) = (!stream.asker.out.is_empty(), stream.reader.is_some());
        if sends {
            self.will_send(node);
        }
        if is_told && !self.telling.contains(&node) {
            self.telling.push_back(node);
        }
    }

    /// Starts or ends our subscription to that node's filter.
    pub fn subscribe(&mut self, node: NodeId, on: bool) {
        if let Some(stream) = self.open(node) {
            stream.is_heard = on;
        }
        self.say(node, PeerMessage::Subscribe(on));
    }

    /// Sends a question to a peer.
    pub fn ask(&mut self, node: NodeId, ask: &Ask) {
        if let Some(stream) = self.open(node) {
            stream.ask(ask.request, ask.ids.clone());
        }
        let Ask { request, score, kind, fetch, ids, .. } = ask.clone();
        self.say(node, PeerMessage::Ask(AskMessage { request, score, kind, fetch, ids }));
    }

    /// Cancels a question whose answer is no longer needed.
    pub fn cancel(&mut self, node: NodeId, request: u32) {
        if self.streams.get_mut(&node).is_some_and(|stream| stream.cancel(request)) {
            self.say(node, PeerMessage::Cancel { request });
        }
    }

    /// Adds a frame to the answer of a peer's question. Returns false if the question was cancelled.
    pub fn give(&mut self, node: NodeId, request: u32, frame: Arc<[u8]>) -> bool {
        let Some(asker) = self.serving_asker(node, request) else { return false };
        let bytes = frame.len() as u64;
        asker.give(request, frame);
        self.out_bytes += bytes;
        self.will_send(node);
        true
    }

    /// Completes the answer of a peer's question. `missing` are the ids that this node does not hold.
    pub fn finish(&mut self, node: NodeId, request: u32, missing: Vec<BlockId>) {
        let version = self.holdings.version();
        let Some(asker) = self.serving_asker(node, request) else { return };
        asker.serving.remove(&request);
        asker.out.push_back(PeerMessage::End { request, version, missing });
        self.asks -= 1;
        self.leave(node, request);
        self.will_send(node);
    }

    /// Handles a message.
    ///
    /// # Errors
    /// `Corrupt`: the peer violates the protocol. `Refused`: it belongs to another sharing group. End the stream in both cases.
    pub fn handle_message(&mut self, node: NodeId, message: PeerMessage) -> Result<()> {
        let stream = self.streams.get_mut(&node).filter(|stream| stream.is_connected);
        let stream = stream.ok_or_else(|| Error::bug("a message from a peer without a stream"))?;
        if stream.is_joined == matches!(message, PeerMessage::Hello(_)) {
            return Err(Error::corrupt("a peer must send HELLO first, and only once"));
        }
        match message {
            PeerMessage::Hello(hello) => return self.handle_hello(node, &hello),
            PeerMessage::Subscribe(on) => self.handle_subscribe(node, on),
            // These may be in transit after the subscription ended. Without a subscription they must not take memory.
            PeerMessage::Filter(_) | PeerMessage::Changes(_) if !stream.is_heard => {}
            PeerMessage::Filter(piece) => self.events.push_back(ExchangeEvent::Filter(node, piece)),
            PeerMessage::Changes(changes) => self.events.push_back(ExchangeEvent::Changes(node, changes)),
            PeerMessage::Ask(ask) => return self.handle_ask(node, ask),
            PeerMessage::Cancel { request } => self.handle_cancel(node, request),
            PeerMessage::Frame { request, frame } => {
                if stream.heed_frame(request)? {
                    self.events.push_back(ExchangeEvent::Frame(node, request, frame));
                } else {
                    self.statistics.unwanted_frames += 1;
                }
            }
            PeerMessage::End { request, version, missing } => {
                if stream.heed_end(request, &missing)? {
                    self.events.push_back(ExchangeEvent::Answered(node, request, missing, version));
                }
            }
            PeerMessage::Busy { request, retry_after } => {
                if stream.heed_busy(request)? {
                    self.events.push_back(ExchangeEvent::Busy(node, request, retry_after));
                }
            }
        }
        Ok(())
    }

    /// Returns the next message to send, and to which node. Call again at [`Exchange::poll_timeout`].
    pub fn poll_message(&mut self, now: Duration) -> Option<(NodeId, PeerMessage)> {
        if let Some(message) = self.poll_control() {
            return Some(message);
        }
        self.begin_telling(now);
        if !self.share.may_send(now) {
            return None;
        }
        let (node, message) = self.poll_filter().or_else(|| self.poll_frame())?;
        let bytes = match &message {
            PeerMessage::Frame { frame, .. } => {
                self.statistics.frames_sent += 1;
                self.statistics.frame_bytes_sent += frame.len() as u64;
                frame.len()
            }
            PeerMessage::Filter(_) | PeerMessage::Changes(_) => {
                let bytes = message.head().len();
                self.statistics.filter_bytes_sent += bytes as u64;
                bytes
            }
            _ => 0,
        };
        self.share.spend(bytes);
        Some((node, message))
    }

    /// Returns the next event for the driver.
    pub fn poll_event(&mut self) -> Option<ExchangeEvent> {
        self.events.pop_front().or_else(|| self.begin_serving())
    }

    /// Returns when to call [`Exchange::poll_message`] again if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let sends = !self.sending.is_empty() || !self.telling.is_empty();
        let tells = !self.subscribers.is_empty() && self.told != self.holdings.version();
        let sends_at = sends.then(|| self.share.ready_at());
        let tells_at = tells.then(|| self.tells_at());
        [sends_at, tells_at].into_iter().flatten().min()
    }

    /// Returns the counters.
    pub fn statistics(&self) -> ExchangeStatistics {
        self.statistics
    }

    /// Returns the number of streams with frames to send.
    #[cfg(test)]
    pub(super) fn streams_sending(&self) -> usize {
        self.sending.len()
    }

    /// Returns whether no question has left any state.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let counts = [self.asks, self.serving, self.fetching.len(), self.sending.len(), self.asking.len()];
        counts.iter().all(|count| *count == 0) && self.out_bytes == 0 && self.telling.is_empty()
    }

    fn handle_hello(&mut self, node: NodeId, hello: &Hello) -> Result<()> {
        let own = &self.options.hello;
        if (hello.group, hello.domain) != (own.group, own.domain) || hello.node != node {
            return Err(Error::refused(
                "the peer belongs to another sharing group, or is not the expected node",
            ));
        }
        if let Some(stream) = self.streams.get_mut(&node) {
            stream.is_joined = true;
        }
        self.events.push_back(ExchangeEvent::Joined(node));
        Ok(())
    }

    fn handle_subscribe(&mut self, node: NodeId, on: bool) {
        let accepted = on && (self.subscribers.len() < SUBSCRIBERS_MAX || self.subscribers.contains(&node));
        if let Some(stream) = self.streams.get_mut(&node) {
            if accepted && stream.reader.is_none() {
                stream.reader = Some(FilterReader::default());
                self.subscribers.insert(node);
                self.telling.push_back(node);
            } else if !on {
                stream.reader = None;
                self.subscribers.remove(&node);
                self.telling.retain(|other| *other != node);
            }
        }
    }

    fn handle_ask(&mut self, node: NodeId, ask: AskMessage) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&node) else { return Ok(()) };
        let request = ask.request;
        if stream.asker.has(request) {
            return Err(Error::corrupt(format!("a peer used request number {request} twice")));
        }
        let is_busy = stream.asker.open() >= ASKS_PER_PEER_MAX || self.asks >= ASKS_MAX;
        // A peer that does not read its answers must not make us hold ever more of them.
        if stream.control.len() >= CONTROL_MAX || stream.asker.out.len() >= CONTROL_MAX * 16 {
            return Err(Error::corrupt("a peer asks questions but does not read the answers"));
        }
        if is_busy {
            self.statistics.busy += 1;
            self.say(node, PeerMessage::Busy { request, retry_after: BUSY_RETRY });
            return Ok(());
        }
        if stream.asker.waiting.is_empty() {
            self.asking.push_back(node);
        }
        stream.asker.waiting.push_back(ask);
        self.asks += 1;
        Ok(())
    }

    fn handle_cancel(&mut self, node: NodeId, request: u32) {
        let Some(stream) = self.streams.get_mut(&node) else { return };
        let open = stream.asker.open();
        let Some((was_serving, bytes)) = stream.asker.cancel(request) else { return };
        self.out_bytes -= bytes;
        let closed = open - stream.asker.open();
        self.asks -= closed;
        if stream.asker.waiting.is_empty() {
            self.asking.retain(|other| *other != node);
        }
        if was_serving {
            self.leave(node, request);
            self.events.push_back(ExchangeEvent::Cancelled(node, request));
        }
        // If the question was finished, its END already follows the frames.
        if closed > 0 {
            let version = self.holdings.version();
            if let Some(stream) = self.streams.get_mut(&node) {
                stream.asker.out.push_back(PeerMessage::End { request, version, missing: Vec::new() });
            }
            self.will_send(node);
        }
    }

    /// Returns the asker of a question that the driver is serving.
    fn serving_asker(&mut self, node: NodeId, request: u32) -> Option<&mut super::serving::Asker> {
        let asker = &mut self.streams.get_mut(&node)?.asker;
        asker.serving.contains(&request).then_some(asker)
    }

    /// Records that the driver no longer serves that question.
    fn leave(&mut self, node: NodeId, request: u32) {
        if !self.fetching.remove(&(node, request)) {
            self.serving -= 1;
        }
    }

    /// Starts the next question for the driver; askers take turns.
    fn begin_serving(&mut self) -> Option<ExchangeEvent> {
        if self.serving >= SERVING_MAX || self.out_bytes >= OUT_BYTES_MAX {
            return None;
        }
        let at = self.asking.iter().position(|node| self.may_serve(node))?;
        let node = self.asking.remove(at)?;
        let asker = &mut self.streams.get_mut(&node)?.asker;
        // `asking` contains exactly the streams with waiting questions.
        let ask = asker.waiting.pop_front()?;
        asker.serving.insert(ask.request);
        if !asker.waiting.is_empty() {
            self.asking.push_back(node);
        }
        if ask.fetch {
            self.fetching.insert((node, ask.request));
        } else {
            self.serving += 1;
        }
        Some(ExchangeEvent::Asked(node, ask))
    }

    /// Returns whether a question of that peer may be started.
    fn may_serve(&self, node: &NodeId) -> bool {
        let serving = self.streams.get(node).map_or(0, |stream| stream.asker.serving.len());
        let fetching = self.fetching.range((*node, 0)..=(*node, u32::MAX)).count();
        !self.is_full(node) && serving - fetching < SERVING_PER_PEER_MAX
    }

    /// Returns whether its connection is full.
    pub(super) fn is_full(&self, node: &NodeId) -> bool {
        self.streams.get(node).is_some_and(|stream| stream.is_full)
    }

    /// Returns the stream to that node. If there is none, tells the driver to connect.
    fn open(&mut self, node: NodeId) -> Option<&mut Stream> {
        if !self.streams.contains_key(&node) {
            self.events.push_back(ExchangeEvent::Connect(node));
            self.streams.insert(node, Stream::default());
        }
        self.streams.get_mut(&node)
    }

    fn say(&mut self, node: NodeId, message: PeerMessage) {
        if let Some(stream) = self.streams.get_mut(&node) {
            stream.control.push_back(message);
            if stream.is_connected {
                self.talking.insert(node);
            }
        }
    }

    fn will_send(&mut self, node: NodeId) {
        if !self.sending.contains(&node) {
            self.sending.push_back(node);
        }
    }
}
