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

use platter_image::{Error, Result, Score};

use super::asking::{Asking, STALL};
use super::assembly::{Assembly, Placed};
use super::fetching::{Fetching, Question};
use super::senders::{CastFilter, Senders};
use super::wants::{ChunkState, Wants};
use crate::session::{ChunkTable, SessionDescription, SessionId};
use crate::wire::announce::Announce;
use crate::wire::data::Data;
use crate::wire::format::{Header, MessageType, Reader, low_microseconds};
use crate::wire::join::{JoinMessage, ReceiverResult, Wanted};
use crate::wire::plan::Plan;
use crate::wire::report::Report;
use crate::wire::request::Request;

/// Interval between reports without news. A sender reacts to two seconds of silence.
const REPORT_INTERVAL_MAX: Duration = Duration::from_millis(200);
/// Minimum interval between reports, whatever the sender announces.
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// A joined sender that is silent for this long is gone: it announces itself twice per second.
const SENDER_SILENCE: Duration = Duration::from_secs(5);

/// Maximum number of names of unwanted casts that are remembered.
const OTHERS_MAX: usize = 8;

/// Options of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Spreads the timers of receivers; any number that differs between them.
    pub seed: u64,
    /// The session to join.
    pub wanted: Wanted,
    /// Which of the sessions that match may be joined.
    pub filter: CastFilter,
    /// The name that it gives itself.
    pub hello: String,
    /// Maximum number of chunks that it may hold at once, including those that the driver has not returned. A corrupt one that is
    /// being fetched may exceed this by one.
    pub buffer_chunks: usize,
    /// Request every chunk of the first session's first segment from the start, without waiting until the driver knows from the
    /// recipe what it wants; this saves two round trips. In any case, the driver gets data chunks only after it has accepted all
    /// wanted recipe chunks of that segment.
    pub everything: bool,
}

/// An event for the driver.
#[derive(Debug)]
pub enum ReceiverEvent {
    /// A session was found: connect the reliable channel to this address.
    Connect(SocketAddr),
    /// The session was joined: receive from its multicast group.
    Joined(Box<Announce>),
    /// The chunk table is known: call [`Receiver::want`]. Occurs again after the sender was restarted.
    Session(SessionDescription),
    /// A chunk is complete: return it with [`Receiver::chunk_accepted`], [`Receiver::chunk_bad`] or
    /// [`Receiver::chunk_contradicts`], with the same generation.
    Chunk {
        /// The number of its session, counted from 1.
        generation: u32,
        /// Content chunk number.
        index: u32,
        /// Its bytes, unverified.
        bytes: Vec<u8>,
    },
    /// A sender is ignored. Each one is reported once, up to a limit.
    Ignored {
        /// The name under which it casts.
        name: String,
        /// Where it expects joins.
        join: SocketAddr,
        /// Why it is ignored.
        reason: String,
    },
    /// The sender refused the join: close the reliable channel and call [`Receiver::handle_disconnected`].
    Refused(String),
    /// The data of the joined sender cannot be used.
    Unusable(String),
    /// The sender is gone: close the reliable channel and call [`Receiver::handle_disconnected`].
    SenderLost,
    /// The sender has confirmed the result.
    Acknowledged,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStatistics {
    /// New symbols received.
    pub symbols: u64,
    /// Source symbols restored from repair symbols.
    pub repaired: u64,
    /// Symbols that were received again or no longer wanted.
    pub duplicates: u64,
    /// Chunks that were corrupt and fetched over the reliable channel.
    pub fetched: u64,
    /// Symbols dropped because no buffer was free.
    pub no_room: u64,
    /// Senders that were ignored.
    pub ignored_senders: u32,
    /// Content chunks wanted so far.
    pub wanted: u32,
    /// Content chunks accepted by the driver.
    pub done: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Searching,
    Connecting,
    Joining,
    Joined,
}

/// The current session, or the last one.
struct Session {
    announce: Announce,
    receiver: u32,
    token: u64,
    joined_packet: u64,
    seen_packet: u64,
    seen_sent_us: u32,
    seen_at: Duration,
    received: u64,
    table: ChunkTable,
    wants: Wants,
    directory: Vec<Option<Vec<u8>>>,
}

impl Session {
    /// Returns whether a chunk is data that nobody can use yet, because the recipe is incomplete.
    fn must_wait(&self, chunk: u32) -> bool {
        chunk >= self.recipe().end && self.wants_recipe()
    }

    /// Returns whether a part of the recipe is wanted and not yet accepted.
    fn wants_recipe(&self) -> bool {
        let open = |chunk| !matches!(self.wants.state(chunk), ChunkState::Unwanted | ChunkState::Done);
        self.recipe().any(open)
    }

    /// Returns the chunks of the first segment's recipe. Later segments are requested one at a time, recipe before data.
    fn recipe(&self) -> Range<u32> {
        let first = self.table.directory_chunks();
        first..first.saturating_add(self.announce.first_segment.recipe_chunks)
    }
}

/// The receiver's state machine.
pub struct Receiver {
    options: ReceiverOptions,
    phase: Phase,
    session: Option<Session>,
    generation: u32,
    assembly: Assembly,
    asking: Asking,
    /// Number of complete chunks that the driver has not returned, including `held` ones.
    delivered: usize,
    /// Data chunks that are complete before the recipe: their numbers and bytes.
    held: Vec<(u32, Vec<u8>)>,
    /// Corrupt chunks that are being fetched.
    fetching: Fetching,
    events: VecDeque<ReceiverEvent>,
    messages: VecDeque<Vec<u8>>,
    statistics: ReceiverStatistics,
    /// Names of other casts that were announced.
    others: BTreeSet<String>,
    senders: Senders,
    /// The sender that is being joined, if an announcement named it.
    joining: Option<SocketAddr>,
    packet: u64,
    reported_at: Duration,
    news: bool,
    heard_at: Duration,
    joined_at: Option<Duration>,
    result: Option<ReceiverResult>,
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
            events: VecDeque::new(),
            messages: VecDeque::new(),
            statistics: ReceiverStatistics::default(),
            others: BTreeSet::new(),
            senders: Senders::default(),
            joining: None,
            packet: 0,
            reported_at: Duration::ZERO,
            news: false,
            heard_at: Duration::ZERO,
            joined_at: None,
            result: None,
            options,
        }
    }

    /// Handles a datagram from the group, or from anybody else.
    pub fn handle_datagram(&mut self, now: Duration, datagram: &[u8]) {
        let Some((header, reader)) = Header::parse(datagram) else { return };
        if header.message == MessageType::Announce && self.phase == Phase::Searching {
            self.handle_announce(now, reader);
            return;
        }
        if self.phase != Phase::Joined {
            return;
        }
        let Some(session) = self.session.as_mut().filter(|it| it.announce.session.short() == header.session)
        else {
            if header.message == MessageType::Announce {
                self.handle_rival(reader);
            }
            return;
        };
        self.heard_at = now;
        self.news = true;
        session.received += 1;
        if header.packet > session.seen_packet {
            session.seen_packet = header.packet;
            session.seen_sent_us = header.sent_us;
            session.seen_at = now;
        }
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
                        self.asking.heed(now, &plan, &session.wants, &mut self.assembly, joined, has_room);
                    }
                }
            }
            _ => {}
        }
    }

    fn handle_announce(&mut self, now: Duration, reader: Reader<'_>) {
        let Some(announce) = Announce::parse(reader) else { return };
        if !self.options.wanted.matches(&announce.score, &announce.name) {
            if self.others.len() < OTHERS_MAX {
                self.others.insert(announce.name);
            }
        } else if let Err(reason) = self.options.filter.check(&announce) {
            self.ignore(announce, reason);
        } else if !self.senders.avoids(now, announce.join) {
            self.phase = Phase::Connecting;
            self.joining = Some(announce.join);
            self.events.push_back(ReceiverEvent::Connect(announce.join));
        }
    }

    /// Handles the announcement of another session while one is joined: another disk under the same name is suspicious.
    fn handle_rival(&mut self, reader: Reader<'_>) {
        let Some((announce, session)) = Announce::parse(reader).zip(self.session.as_ref()) else { return };
        if announce.name == session.announce.name && announce.score != session.announce.score {
            let reason = format!("it casts another disk, score {}", announce.score);
            self.ignore(announce, reason);
        }
    }

    fn ignore(&mut self, announce: Announce, reason: String) {
        if self.senders.ignore(announce.session) {
            let Announce { name, join, .. } = announce;
            self.events.push_back(ReceiverEvent::Ignored { name, join, reason });
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
                if free <= others {
                    self.statistics.no_room += 1;
                    return;
                }
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
            Placed::New => self.statistics.symbols += 1,
            Placed::Complete => {
                self.statistics.symbols += 1;
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
    fn deliver(&mut self, now: Duration, chunk: u32, bytes: Vec<u8>) {
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
        let right = *blake3::hash(&directory).as_bytes() == session.announce.directory_hash;
        let segments = session.table.add_directory(&directory).ok().filter(|_| right);
        if let Some(segments) = segments.filter(|it| it[0] == session.announce.first_segment) {
            let description = SessionDescription {
                score: session.announce.score,
                name: session.announce.name.clone(),
                offer: session.announce.offer.clone(),
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

    /// Requests the next bytes of the chunk that is being fetched.
    fn fetch(&mut self, now: Duration) {
        let Some(session) = self.session.as_ref().filter(|_| self.phase == Phase::Joined) else { return };
        let question = self.fetching.next_question(now, |chunk| session.table.length(chunk));
        if let Some(question) = question {
            let (receiver, token) = (session.receiver, session.token);
            let Question { chunk, offset, length } = question;
            self.messages.push_back(JoinMessage::Fetch { receiver, token, chunk, offset, length }.to_bytes());
        }
    }

    fn handle_piece(&mut self, now: Duration, chunk: u32, offset: u32, bytes: &[u8]) {
        self.heard_at = now;
        if let Some((chunk, bytes)) = self.fetching.take(chunk, offset, bytes) {
            self.statistics.fetched += 1;
            self.deliver(now, chunk, bytes);
        }
        self.fetch(now);
    }

    /// Handles that the reliable channel is connected.
    pub fn handle_connected(&mut self, now: Duration) {
        self.phase = Phase::Joining;
        self.heard_at = now;
        let buffer_chunks = u32::try_from(self.free()).unwrap_or(u32::MAX).max(1);
        let join = JoinMessage::Join {
            wanted: self.options.wanted.clone(),
            hello: self.options.hello.clone(),
            buffer_chunks,
        };
        self.messages.push_back(join.to_bytes());
    }

    /// Handles that the reliable channel ended or could not be connected: searches again.
    pub fn handle_disconnected(&mut self, now: Duration) {
        if let Some(address) = self.joining.take() {
            self.senders.avoid(now, address);
        }
        self.phase = Phase::Searching;
        self.messages.clear();
    }

    /// Handles a message (without its length) of the reliable channel.
    pub fn handle_message(&mut self, now: Duration, message: &[u8]) {
        match JoinMessage::parse(message) {
            Some(JoinMessage::Welcome { receiver, token, packet, announce })
                if self.phase == Phase::Joining =>
            {
                self.handle_welcome(now, receiver, token, packet, announce);
            }
            Some(JoinMessage::Refused { reason }) => self.events.push_back(ReceiverEvent::Refused(reason)),
            Some(JoinMessage::Piece { chunk, offset, bytes }) if self.phase == Phase::Joined => {
                self.handle_piece(now, chunk, offset, &bytes);
            }
            Some(JoinMessage::ResultOk) => self.events.push_back(ReceiverEvent::Acknowledged),
            _ => {}
        }
    }

    fn handle_welcome(&mut self, now: Duration, receiver: u32, token: u64, packet: u64, announce: Announce) {
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
        self.joining = None;
        self.heard_at = now;
        self.joined_at.get_or_insert(now);
        self.events.push_back(ReceiverEvent::Joined(Box::new(announce.clone())));
        self.asking.begin(announce.timers.backoff_us_max);
        let same = self.session.as_ref().is_some_and(|known| known.announce.session == announce.session);
        match self.session.as_mut().filter(|_| same) {
            Some(session) => {
                (session.receiver, session.token, session.received) = (receiver, token, 0);
                (session.joined_packet, session.seen_packet) = (packet, packet.max(session.seen_packet));
            }
            None => self.begin_session(now, receiver, token, packet, announce),
        }
        self.asking.ask_for_chunks(now);
        // Nothing can be used without the directory, so its chunks are requested until something of each arrives.
        let directory_chunks = self.session.as_ref().map_or(0, |session| session.table.directory_chunks());
        for chunk in 0..directory_chunks {
            self.asking.ask_for_chunk(now, chunk);
        }
        self.fetching.forget_question();
        self.fetch(now);
        self.news = true;
        self.send_result();
    }

    fn begin_session(&mut self, now: Duration, receiver: u32, token: u64, packet: u64, announce: Announce) {
        let table = ChunkTable::of_directory(announce.segments, announce.content_chunks);
        let mut wants = Wants::new(table.total(), table.directory_chunks());
        self.generation += 1;
        self.assembly.clear();
        self.fetching.clear();
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
            token,
            joined_packet: packet,
            seen_packet: packet,
            seen_sent_us: 0,
            seen_at: now,
            received: 0,
            table,
            wants,
            directory,
        });
    }

    /// Adds content chunks to those that the driver wants.
    pub fn want(&mut self, now: Duration, ranges: &[Range<u32>]) {
        let Some(session) = self.session.as_mut().filter(|session| session.table.is_complete()) else {
            return;
        };
        let first = session.table.directory_chunks();
        for range in ranges {
            session.wants.want(range.start.saturating_add(first)..range.end.saturating_add(first));
        }
        self.asking.ask_for_chunks(now);
        self.news = true;
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
        self.news = true;
        let session = self.session.as_ref().filter(|_| generation == self.generation)?;
        let chunk = index.checked_add(session.table.directory_chunks())?;
        (session.wants.state(chunk) == ChunkState::Delivered).then_some(chunk)
    }

    /// Ends the cast with the verified score or the reason of a failure. The result is sent to the sender, and again after each
    /// rejoin, until the sender confirms it.
    pub fn finish(&mut self, now: Duration, outcome: Result<Score, String>, bytes_written: u64) {
        let duration = now.saturating_sub(self.joined_at.unwrap_or(now));
        self.result = Some(ReceiverResult {
            outcome,
            bytes_written,
            duration_ms: duration.as_millis() as u64,
            symbols: self.statistics.symbols,
            repaired: self.statistics.repaired,
            duplicates: self.statistics.duplicates,
        });
        self.send_result();
    }

    fn send_result(&mut self) {
        if let (Phase::Joined, Some(session), Some(result)) = (self.phase, &self.session, &self.result) {
            let (receiver, token) = (session.receiver, session.token);
            self.messages
                .push_back(JoinMessage::Result { receiver, token, result: result.clone() }.to_bytes());
        }
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
        if self.phase != Phase::Joined {
            return None;
        }
        if now >= self.heard_at + SENDER_SILENCE {
            self.phase = Phase::Connecting;
            if let Some(session) = &mut self.session {
                session.wants.drop_filling();
                self.assembly.clear();
            }
            self.events.push_back(ReceiverEvent::SenderLost);
            return None;
        }
        self.fetch(now);
        let report_due = now >= self.report_at();
        let session = self.session.as_ref()?;
        let to = session.announce.feedback;
        let items = match self.result {
            None => self.asking.take_items(now, &session.wants, &mut self.assembly),
            Some(_) => Vec::new(),
        };
        if !items.is_empty() {
            let header = self.next_header(now, MessageType::Request)?;
            let session = self.session.as_ref()?;
            let (receiver, token, seen_packet) = (session.receiver, session.token, session.seen_packet);
            Request { receiver, token, seen_packet, items }.write(&header, datagram);
            return Some(to);
        }
        if !report_due {
            return None;
        }
        self.reported_at = now;
        self.news = false;
        let header = self.next_header(now, MessageType::Report)?;
        self.report(now)?.write(&header, datagram);
        Some(to)
    }

    fn report(&self, now: Duration) -> Option<Report> {
        let session = self.session.as_ref()?;
        Some(Report {
            receiver: session.receiver,
            token: session.token,
            seen_packet: session.seen_packet,
            echo_us: session.seen_sent_us,
            echo_delay_us: low_microseconds(now.saturating_sub(session.seen_at)),
            received: session.received,
            free_chunks: self.free() as u32,
            done_chunks: session.wants.done,
            wanted_chunks: session.wants.wanted,
            repaired: self.statistics.repaired as u32,
        })
    }

    fn next_header(&mut self, now: Duration, message: MessageType) -> Option<Header> {
        self.packet += 1;
        let session = self.session.as_ref()?.announce.session.short();
        Some(Header { message, session, packet: self.packet, sent_us: low_microseconds(now) })
    }

    fn report_at(&self) -> Duration {
        let told = self.session.as_ref().map_or(0, |session| session.announce.timers.report_us_min);
        let least = Duration::from_micros(u64::from(told)).clamp(REPORT_INTERVAL_MIN, REPORT_INTERVAL_MAX);
        self.reported_at + if self.news { least } else { REPORT_INTERVAL_MAX }
    }

    /// Returns when to call [`Receiver::poll_transmit`] again if nothing happens before. `None`: only announcements are
    /// expected.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.phase != Phase::Joined {
            return None;
        }
        let mut deadline = self.report_at().min(self.heard_at + SENDER_SILENCE);
        if let Some(request) = self.asking.next_deadline(&self.assembly).filter(|_| self.result.is_none()) {
            deadline = deadline.min(request);
        }
        if let Some(again) = self.fetching.next_deadline().filter(|_| self.result.is_none()) {
            deadline = deadline.min(again);
        }
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

    /// Returns the current session, or the last one.
    pub fn session(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.announce.session)
    }

    /// Returns the number of free chunk buffers.
    fn free(&self) -> usize {
        let held = self.assembly.len() + self.delivered + self.fetching.held();
        self.options.buffer_chunks.saturating_sub(held)
    }
}
