//! The receiver's state machine. Inputs: datagrams, messages, results of verification and time. Outputs: events, messages and
//! requests.
//!
//! Owns the phases (searching, connecting, joined) and the current session. It verifies only the directory: the driver verifies
//! chunks, and corrupt ones are fetched over the reliable channel. Must never accept anything of another session, nor
//! block.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use platter_image::{Error, Result};

use super::asking::{Asking, STALL};
use super::assembly::{Assembly, Placed};
use super::fetching::Fetching;
use super::guard::Guard;
use super::link::Link;
use super::options::{ReceiverEvent, ReceiverOptions, ReceiverStatistics};
use super::reporting::Reporting;
use super::senders::Senders;
use super::session::Session;
use super::skipped::Skipped;
use super::wants::{ChunkState, Wants};
use crate::session::{ChunkTable, SessionDescription, SessionId};
use crate::stage::{LoadMeter, SinkStage};
use crate::wire::announce::Announce;
use crate::wire::channel::Channel;
use crate::wire::data::Data;
use crate::wire::format::{Header, MessageType, Reader, low_microseconds};
use crate::wire::join::{ReceiverResult, SessionKeys};
use crate::wire::plan::Plan;
use crate::wire::protection::{DatagramKey, Freshness};
use crate::wire::report::Report;
use crate::wire::request::Request;

/// A joined sender that is silent for this long is gone: it announces itself at least twice per second. A join that is not answered for
/// this long has failed.
pub(super) const SENDER_SILENCE: Duration = Duration::from_secs(5);
/// A receiver without a connection that gets nothing for this long asks whether the sender still knows it.
pub(super) const DOUBT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Searching,
    Connecting,
    Joining,
    Joined,
}

/// The receiver's state machine.
pub struct Receiver {
    pub(super) options: ReceiverOptions,
    pub(super) phase: Phase,
    pub(super) session: Option<Session>,
    generation: u32,
    assembly: Assembly,
    asking: Asking,
    /// Number of complete chunks that the driver has not returned, including `held` ones.
    pub(super) delivered: usize,
    /// Data chunks that are complete before the recipe: their numbers and bytes.
    held: Vec<(u32, Vec<u8>)>,
    /// Corrupt chunks that are being fetched.
    pub(super) fetching: Fetching,
    /// Chunks of which symbols were dropped because no buffer was free.
    skipped: Skipped,
    /// How busy the driver's sink is, and which stage of it takes longest.
    load: LoadMeter,
    stage: SinkStage,
    pub(super) events: VecDeque<ReceiverEvent>,
    pub(super) messages: VecDeque<Vec<u8>>,
    pub(super) statistics: ReceiverStatistics,
    /// Names of other casts that were announced.
    pub(super) others: BTreeSet<String>,
    pub(super) senders: Senders,
    /// The key of announcements, if there is a join key.
    pub(super) announce_key: Option<DatagramKey>,
    /// Number of connections so far, and the nonce of the last one.
    pub(super) connections: u64,
    pub(super) nonce: [u8; 32],
    /// The encrypted connection, if there is a join key.
    pub(super) channel: Option<Channel>,
    /// The connection, once the session is joined.
    pub(super) link: Link,
    /// Holds a datagram while it is decrypted.
    pub(super) scratch: Vec<u8>,
    packet: u64,
    pub(super) reporting: Reporting,
    pub(super) heard_at: Duration,
    /// When to ask whether the sender still knows this receiver: some time after the last symbol arrived.
    pub(super) doubts_at: Duration,
    pub(super) joined_at: Option<Duration>,
    pub(super) result: Option<ReceiverResult>,
    pub(super) is_acknowledged: bool,
}

impl Receiver {
    /// Makes a receiver that searches for a session.
    pub fn new(options: ReceiverOptions) -> Self {
        Self {
            phase: Phase::Searching,
            session: None,
            generation: 0,
            assembly: Assembly::new(options.buffer_chunks),
            asking: Asking::new(options.seed),
            delivered: 0,
            held: Vec::new(),
            fetching: Fetching::default(),
            skipped: Skipped::default(),
            load: LoadMeter::default(),
            stage: SinkStage::default(),
            events: VecDeque::new(),
            messages: VecDeque::new(),
            statistics: ReceiverStatistics::default(),
            others: BTreeSet::new(),
            senders: Senders::default(),
            announce_key: options
                .join_key
                .as_ref()
                .map(|key| DatagramKey::of_announcements(key.of_announcements(), true)),
            connections: 0,
            nonce: [0; 32],
            channel: None,
            link: Link::new(options.seed),
            scratch: Vec::new(),
            packet: 0,
            reporting: Reporting::new(options.seed, options.buffer_chunks),
            heard_at: Duration::ZERO,
            doubts_at: Duration::MAX,
            joined_at: None,
            result: None,
            is_acknowledged: false,
            options,
        }
    }

    /// Handles a datagram from the group, or from anybody else.
    pub fn handle_datagram(&mut self, now: Duration, datagram: &[u8]) {
        let Some((header, _)) = Header::parse(datagram) else {
            self.statistics.rejected += 1;
            return;
        };
        let is_announcement = header.message == MessageType::Announce;
        match (self.phase, &mut self.session) {
            (Phase::Searching, _) if is_announcement => self.handle_announce(now, datagram),
            (Phase::Joined, Some(session)) if session.announce.session.short() == header.session => {
                let mut scratch = std::mem::take(&mut self.scratch);
                let opened = session.guard.open(&header, datagram, &mut scratch, &mut self.statistics);
                if let Some((freshness, opened)) = opened {
                    self.handle_opened(now, &header, freshness, Reader::new(opened));
                }
                self.scratch = scratch;
            }
            (Phase::Joined, Some(_)) if is_announcement => self.handle_rival(now, datagram),
            (Phase::Joined, _) => self.statistics.rejected += 1,
            _ => {}
        }
    }

    /// Handles a datagram to the address of announcements while the joined session has a group of its own: announcements there do
    /// not show that the group arrives.
    pub fn handle_discovery(&mut self, now: Duration, datagram: &[u8]) {
        let header = Header::parse(datagram).map(|(header, _)| header.session);
        let joined = self.session.as_ref().filter(|_| self.phase == Phase::Joined);
        if joined.is_none_or(|session| header != Some(session.announce.session.short())) {
            self.handle_datagram(now, datagram);
        }
    }

    fn handle_opened(&mut self, now: Duration, header: &Header, freshness: Freshness, reader: Reader<'_>) {
        let Some(session) = self.session.as_mut().filter(|_| freshness == Freshness::New) else {
            if let Some(data) = Data::parse(reader) {
                self.handle_data(now, data);
            }
            return;
        };
        self.heard_at = now;
        self.reporting.happened();
        session.saw(now, header);
        match header.message {
            MessageType::Data => {
                if let Some(data) = Data::parse(reader) {
                    self.handle_data(now, data);
                }
            }
            MessageType::Plan => {
                if let Some(plan) = Plan::parse(reader) {
                    let free = self.free();
                    if let Some(session) = &self.session {
                        // Without the directory no other chunk could be used.
                        let has_room = free > 0 && session.table.is_complete();
                        let joined = session.joined_packet;
                        self.reporting.heed(now, &plan, session.receiver, free);
                        self.asking.heed(now, &plan, &session.wants, &mut self.assembly, joined, has_room);
                    }
                }
            }
            // The room may have grown since the join.
            MessageType::Announce => {
                let announce = Announce::parse(reader);
                if let Some((announce, session)) = announce.zip(self.session.as_mut()) {
                    session.announce.timers = announce.timers;
                    self.reporting.set_timers(now, announce.timers);
                    self.asking.set_backoff(announce.timers);
                }
            }
            _ => {}
        }
    }

    fn handle_data(&mut self, now: Duration, data: Data<'_>) {
        let free = self.free();
        let Some(session) = &mut self.session else { return };
        let slot = match session.wants.state(data.chunk) {
            ChunkState::Filling(slot) => slot as usize,
            ChunkState::Wanted => {
                let Some(length) = session.table.length(data.chunk) else { return };
                // Until the recipe is complete, one buffer is reserved for it: all others may hold data that waits for it.
                let others = usize::from(session.must_wait(data.chunk));
                if free <= others || self.skipped.is_mostly_gone(data.chunk, data.symbol) {
                    self.skipped.add(data.chunk);
                    self.statistics.no_room += 1;
                    return;
                }
                self.skipped.remove(data.chunk);
                let slot = self.assembly.open(data.chunk, length, now, now + STALL);
                session.wants.set(data.chunk, ChunkState::Filling(slot as u32));
                slot
            }
            ChunkState::Unwanted => return,
            ChunkState::Fetching | ChunkState::Delivered | ChunkState::Done => {
                self.statistics.duplicates += 1;
                return;
            }
        };
        match self.assembly.place(slot, now, data.symbol, data.bytes) {
            Placed::Redundant => self.statistics.duplicates += 1,
            Placed::New => {
                self.statistics.symbols += 1;
                self.doubts_at = now + DOUBT;
            }
            Placed::Complete => {
                self.statistics.symbols += 1;
                self.doubts_at = now + DOUBT;
                self.complete(now, slot, data.chunk);
            }
        }
    }

    fn complete(&mut self, now: Duration, slot: usize, chunk: u32) {
        let (bytes, moved, repaired) = self.assembly.close(slot);
        let Some(session) = &mut self.session else { return };
        if let Some(moved) = moved {
            session.wants.set(moved, ChunkState::Filling(slot as u32));
        }
        let Some(bytes) = bytes else {
            session.wants.set(chunk, ChunkState::Wanted);
            self.asking.ask_for_chunk(now, chunk);
            return;
        };
        self.statistics.repaired += repaired;
        self.deliver(now, chunk, bytes);
    }

    /// Handles a complete chunk: keeps it if it belongs to the directory or must wait for the recipe, else passes it to the
    /// driver.
    pub(super) fn deliver(&mut self, now: Duration, chunk: u32, bytes: Vec<u8>) {
        let Some(session) = &mut self.session else { return };
        session.wants.set(chunk, ChunkState::Delivered);
        let directory_chunks = session.table.directory_chunks();
        if chunk < directory_chunks {
            session.directory[chunk as usize] = Some(bytes);
            session.wants.set(chunk, ChunkState::Done);
            self.complete_directory(now);
            return;
        }
        self.delivered += 1;
        let index = chunk - directory_chunks;
        if session.must_wait(chunk) {
            self.held.push((index, bytes));
            return;
        }
        let generation = self.generation;
        self.events.push_back(ReceiverEvent::Chunk { generation, index, bytes });
    }

    /// Once the directory is complete, verifies it and passes the description to the driver.
    fn complete_directory(&mut self, now: Duration) {
        let Some(session) = &mut self.session else { return };
        if session.directory.iter().any(Option::is_none) {
            return;
        }
        let directory: Vec<u8> = session.directory.iter_mut().filter_map(Option::take).flatten().collect();
        let is_right = *blake3::hash(&directory).as_bytes() == session.announce.directory_hash;
        let add = || session.table.add_directory(&directory, session.announce.first_segment).ok();
        if let Some(segments) = is_right.then(add).flatten() {
            let description = SessionDescription {
                score: session.announce.score,
                name: session.announce.name.clone(),
                offer: session.announce.offer.clone(),
                secret: session.announce.secret.clone(),
                segment_length: session.announce.segment_length,
                segments,
                chunk_lengths: session.table.content_lengths().to_vec(),
            };
            self.events.push_back(ReceiverEvent::Session(description));
            return;
        }
        for chunk in 0..session.table.directory_chunks() {
            session.wants.set(chunk, ChunkState::Fetching);
            if !self.fetching.add_wrong(chunk) {
                let reason = "the table of chunks does not match its announcement".to_owned();
                self.events.push_back(ReceiverEvent::Unusable(reason));
                return;
            }
        }
        self.fetch(now);
    }

    pub(super) fn handle_welcome(
        &mut self,
        now: Duration,
        receiver: u32,
        keys: &SessionKeys,
        packet: u64,
        announce: Announce,
    ) {
        if !self.options.wanted.matches(&announce.score, &announce.name) {
            let reason = format!("it casts {} instead", announce.name);
            self.events.push_back(ReceiverEvent::Refused(reason));
            return;
        }
        if let Err(reason) = self.options.filter.check(&announce) {
            self.events.push_back(ReceiverEvent::Refused(reason));
            return;
        }
        self.phase = Phase::Joined;
        self.link.opened();
        self.senders.succeed();
        // Each join has a new id and so a new key, of which the sender expects numbers from 1.
        (self.heard_at, self.doubts_at, self.packet) = (now, now + DOUBT, 0);
        self.joined_at.get_or_insert(now);
        self.events.push_back(ReceiverEvent::Joined(Box::new(announce.clone())));
        self.reporting.begin(now, announce.timers);
        self.asking.begin();
        self.asking.set_backoff(announce.timers);
        let is_same = |known: &Session| known.announce.session == announce.session && known.guard.is_of(keys);
        let same = self.session.as_ref().is_some_and(is_same);
        let join_key = self.options.join_key.as_ref();
        match self.session.as_mut().filter(|_| same) {
            Some(session) => {
                (session.receiver, session.received) = (receiver, 0);
                (session.joined_packet, session.seen_packet) = (packet, packet);
                session.guard.rejoined(keys, join_key, packet, announce.mark);
            }
            None => {
                let guard = Guard::new(keys, join_key, packet, announce.mark);
                self.begin_session(now, (receiver, guard), packet, announce);
            }
        }
        self.asking.ask_for_chunks(now);
        // Nothing can be used without the directory, so its chunks are requested until something of each arrives.
        let directory_chunks = self.session.as_ref().map_or(0, |session| session.table.directory_chunks());
        for chunk in 0..directory_chunks {
            self.asking.ask_for_chunk(now, chunk);
        }
        self.fetch(now);
        self.reporting.happened();
        self.send_result();
    }

    fn begin_session(
        &mut self,
        now: Duration,
        (receiver, guard): (u32, Guard),
        packet: u64,
        announce: Announce,
    ) {
        let table = ChunkTable::of_directory(announce.segments, announce.content_chunks);
        let mut wants = Wants::new(table.total(), table.directory_chunks());
        self.generation += 1;
        self.assembly.clear();
        self.fetching.clear();
        self.skipped = Skipped::default();
        self.delivered -= self.held.drain(..).count();
        if self.options.everything && self.generation == 1 {
            let first = table.directory_chunks();
            wants.want(first..first.saturating_add(announce.first_segment.chunks));
        }
        // Chunks that the driver still holds are counted when it returns them.
        let directory = vec![None; table.directory_chunks() as usize];
        self.session = Some(Session {
            announce,
            receiver,
            guard,
            joined_packet: packet,
            seen_packet: packet,
            seen_sent_us: 0,
            seen_at: now,
            behind: 0,
            received: 0,
            table,
            wants,
            directory,
        });
    }

    /// Adds content chunks to those that the driver wants. Returns `false` if the session's chunks are not known yet: the ranges are those of
    /// an earlier one.
    pub fn want(&mut self, now: Duration, ranges: &[Range<u32>]) -> bool {
        let Some(session) = self.session.as_mut().filter(|session| session.table.is_complete()) else {
            return false;
        };
        let first = session.table.directory_chunks();
        for range in ranges {
            session.wants.want(range.start.saturating_add(first)..range.end.saturating_add(first));
        }
        self.asking.ask_for_chunks(now);
        self.reporting.happened();
        true
    }

    /// Returns a chunk that the driver has accepted. Its buffer is reused.
    pub fn chunk_accepted(&mut self, generation: u32, index: u32, buffer: Vec<u8>) {
        let Some(chunk) = self.take_back(generation, index, buffer) else { return };
        let Some(session) = &mut self.session else { return };
        session.wants.set(chunk, ChunkState::Done);
        if !session.wants_recipe() {
            let generation = self.generation;
            let held = self.held.drain(..);
            self.events.extend(held.map(|(index, bytes)| ReceiverEvent::Chunk { generation, index, bytes }));
        }
    }

    /// Returns a chunk that the driver found corrupt. It is fetched over the reliable channel.
    ///
    /// # Errors
    /// `Corrupt` when it was corrupt there several times, too.
    pub fn chunk_bad(&mut self, now: Duration, generation: u32, index: u32, buffer: Vec<u8>) -> Result<()> {
        let Some(chunk) = self.take_back(generation, index, buffer) else { return Ok(()) };
        if !self.fetching.add_wrong(chunk) {
            return Err(Error::corrupt(format!(
                "chunk {index} is corrupt, even over the connection to the sender: the sender's data is damaged"
            )));
        }
        if let Some(session) = &mut self.session {
            session.wants.set(chunk, ChunkState::Fetching);
        }
        self.fetch(now);
        Ok(())
    }

    /// Returns a chunk that the driver has accepted and that proves some earlier chunks in `ranges` corrupt. All of these
    /// are fetched over the reliable channel.
    pub fn chunk_contradicts(
        &mut self,
        now: Duration,
        generation: u32,
        index: u32,
        buffer: Vec<u8>,
        ranges: &[Range<u32>],
    ) {
        let Some(chunk) = self.take_back(generation, index, buffer) else { return };
        let Some(session) = &mut self.session else { return };
        session.wants.set(chunk, ChunkState::Done);
        let first = session.table.directory_chunks();
        for chunk in ranges.iter().flat_map(Clone::clone).filter_map(|index| index.checked_add(first)) {
            if session.wants.state(chunk) == ChunkState::Done {
                session.wants.set(chunk, ChunkState::Fetching);
                self.fetching.add(chunk);
            }
        }
        self.fetch(now);
    }

    /// Takes a buffer back. Returns the chunk's wire number if it belongs to this session and was delivered.
    fn take_back(&mut self, generation: u32, index: u32, buffer: Vec<u8>) -> Option<u32> {
        self.delivered = self.delivered.saturating_sub(1);
        self.assembly.recycle(buffer);
        self.reporting.freed();
        let session = self.session.as_ref().filter(|_| generation == self.generation)?;
        let chunk = index.checked_add(session.table.directory_chunks())?;
        (session.wants.state(chunk) == ChunkState::Delivered).then_some(chunk)
    }

    /// Sets the stage of the sink that takes longest.
    pub fn set_stage(&mut self, stage: SinkStage) {
        self.stage = stage;
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// Returns the next message for the reliable channel (with its length).
    pub fn poll_message(&mut self) -> Option<Vec<u8>> {
        self.messages.pop_front()
    }

    /// Replaces `datagram` by the next one to send and returns its destination. `None`: nothing until
    /// [`Receiver::next_deadline`].
    pub fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr> {
        let is_silent = now >= self.heard_at + SENDER_SILENCE;
        if self.phase == Phase::Joining && is_silent {
            self.phase = Phase::Connecting;
            self.events.push_back(ReceiverEvent::Refused("it does not answer".into()));
        }
        self.load.measure(now, self.delivered > self.held.len());
        if self.phase != Phase::Joined {
            return None;
        }
        if is_silent {
            self.phase = Phase::Connecting;
            self.senders.forget();
            if let Some(session) = &mut self.session {
                session.wants.drop_filling();
                self.assembly.clear();
            }
            self.events.push_back(ReceiverEvent::SenderLost);
            return None;
        }
        self.tend_link(now);
        self.fetch(now);
        let report_due = now >= self.reporting.next_deadline();
        let session = self.session.as_ref()?;
        let to = session.announce.feedback;
        let items = match self.result {
            None => self.asking.take_items(now, &session.wants, &mut self.assembly),
            Some(_) => Vec::new(),
        };
        if !items.is_empty() {
            let header = self.next_header(now, MessageType::Request)?;
            let session = self.session.as_ref()?;
            let (receiver, seen_packet) = (session.receiver, session.seen_packet);
            Request { receiver, seen_packet, items }.write(&header, datagram);
            session.guard.seal(datagram);
            return Some(to);
        }
        if !report_due {
            return None;
        }
        self.reporting.reported(now);
        let header = self.next_header(now, MessageType::Report)?;
        self.report(now)?.write(&header, datagram);
        self.session.as_ref()?.guard.seal(datagram);
        Some(to)
    }

    fn report(&self, now: Duration) -> Option<Report> {
        let session = self.session.as_ref()?;
        Some(Report {
            receiver: session.receiver,
            seen_packet: session.seen_packet,
            echo_us: session.seen_sent_us,
            echo_delay_us: low_microseconds(now.saturating_sub(session.seen_at)),
            received: session.received,
            free_chunks: self.free() as u32,
            done_chunks: session.wants.done,
            wanted_chunks: session.wants.wanted,
            repaired: self.statistics.repaired as u32,
            waiting_chunks: self.delivered as u32,
            busy_percent: self.load.percent(),
            stage: self.stage,
        })
    }

    pub(super) fn next_header(&mut self, now: Duration, message: MessageType) -> Option<Header> {
        self.packet += 1;
        let session = self.session.as_ref()?.announce.session.short();
        Some(Header { message, session, packet: self.packet, sent_us: low_microseconds(now) })
    }

    /// Returns when to call [`Receiver::poll_transmit`] again if nothing happens before. `None`: only announcements are
    /// expected.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Joined => {}
            Phase::Joining => return Some(self.heard_at + SENDER_SILENCE),
            Phase::Searching | Phase::Connecting => return None,
        }
        let mut deadline = self.reporting.next_deadline().min(self.heard_at + SENDER_SILENCE);
        if let Some(request) = self.asking.next_deadline(&self.assembly).filter(|_| self.result.is_none()) {
            deadline = deadline.min(request);
        }
        if let Some(again) = self.fetching.next_deadline().filter(|_| self.result.is_none()) {
            deadline = deadline.min(again);
        }
        deadline = deadline.min(self.link_deadline().unwrap_or(deadline));
        Some(deadline)
    }

    /// Returns the names of other casts that were announced. Anybody can announce any name.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.others.iter().map(String::as_str)
    }

    /// Returns the counters.
    pub fn statistics(&self) -> ReceiverStatistics {
        let (wanted, done) = self.session.as_ref().map_or((0, 0), |it| (it.wants.wanted, it.wants.done));
        let ignored_senders = self.senders.ignored() as u32;
        ReceiverStatistics { wanted, done, ignored_senders, ..self.statistics }
    }

    /// Returns whether a session is joined. It stays joined without a connection, while the sender is heard.
    pub fn is_joined(&self) -> bool {
        self.phase == Phase::Joined
    }

    /// Returns the current session, or the last one.
    pub fn session(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.announce.session)
    }

    /// Returns the number of free chunk buffers.
    pub(super) fn free(&self) -> usize {
        let held = self.assembly.len() + self.delivered + self.fetching.held();
        self.options.buffer_chunks.saturating_sub(held)
    }
}
