//! The sender's state machine. Inputs: datagrams, messages, chunk contents and time. Outputs: batches of datagrams, messages, and
//! requests for chunk contents.
//!
//! Owns the order of sending: announcement, plan, repair, source symbols; and the start and end of the
//! session. Must never send faster than the pacer allows (announcements and the plans before the start are
//! few, and not paced), nor start a chunk for which a voting receiver is known to have no buffer, nor
//! answer a receiver that is far slower than the rest while others need something, except for what must come first.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use platter_image::{Error, Result};

use super::binding::{NotResumed, Rejected};
use super::connections::Connections;
use super::fetches::{FETCH_TICK, Fetch, Fetches};
use super::herald::Herald;
use super::member::ReceiverStatus;
use super::options::{BATCH_DATAGRAMS_MAX, Destination, SenderOptions, SenderProgress, Transmit};
use super::places::NoPlace;
use super::repair::Repairs;
use super::roster::Roster;
use super::schedule::{ACTIVE_CHUNKS, Schedule};
use super::shelf::Shelf;
use super::start::Start;
use crate::family::Family;
use crate::join_key::JoinKey;
use crate::marks::MarkChain;
use crate::pacing::{Pacer, wire_overhead_bytes};
use crate::session::{ChunkTable, SessionDescription, SessionId};
use crate::wire::announce::Announce;
use crate::wire::data::{Data, SEALED_DATA_BYTES};
use crate::wire::format::{DATAGRAM_BYTES_MAX, Header, MessageType, PACKET_NUMBER_MAX, low_microseconds};
use crate::wire::join::{JoinMessage, PIECE_BYTES_MAX, SessionKeys, Wanted};
use crate::wire::plan::{Plan, PlanEntry};
use crate::wire::protection::DatagramKey;

/// Repair symbols sent without a request after each chunk of the directory and the recipe, plus one for each
/// [`UNASKED_REPAIR_SHARE`] source symbols. Receivers cannot use any other chunk without these, and they are small.
const UNASKED_REPAIR: u16 = 3;
/// See [`UNASKED_REPAIR`].
const UNASKED_REPAIR_SHARE: u16 = 16;
/// Interval at which an idle machine must be called, to detect silent receivers.
const TICK: Duration = Duration::from_millis(250);

/// The sender's state machine.
pub struct Sender {
    pub(super) options: SenderOptions,
    pub(super) announce: Announce,
    /// The key of the session, from which every receiver gets a copy, and the keys made of it.
    session_key: [u8; 32],
    sender_key: DatagramKey,
    announce_key: DatagramKey,
    connections: Connections,
    /// Holds a datagram while it is decrypted.
    pub(super) scratch: Vec<u8>,
    pub(super) table: ChunkTable,
    pub(super) packet: u64,
    marks: MarkChain,
    last_data_packet: u64,
    pub(super) started_at: Option<Duration>,
    emptied_at: Option<Duration>,
    pub(super) start: Start,
    pub(super) pacer: Pacer,
    /// Bytes on the wire for each datagram, besides its payload.
    overhead_bytes: u64,
    pub(super) roster: Roster,
    pub(super) schedule: Schedule,
    pub(super) repairs: Repairs,
    pub(super) fetches: Fetches,
    shelf: Shelf,
    pub(super) herald: Herald,
    pub(super) progress: SenderProgress,
    advanced_at: Duration,
    /// There was nothing to send except chunks for which a receiver has no buffer.
    pub(super) is_waiting: bool,
    /// Since when it waits.
    pub(super) waiting_since: Option<Duration>,
    /// Nobody may join any more.
    is_closed: bool,
}

impl Sender {
    /// Makes a sender for an image.
    ///
    /// # Errors
    /// `Refused` when the description breaks a limit.
    pub fn new(options: SenderOptions, description: &SessionDescription) -> Result<Self> {
        description.check()?;
        if options.join_key.is_none() && !description.secret.0.is_empty() {
            return Err(Error::bug("a cast with a secret but without a join key"));
        }
        let directory = description.directory();
        let table = ChunkTable::of_description(description);
        let session = session_id(&options.seed);
        let has_join_key = options.join_key.is_some();
        let key_of_keys = blake3::derive_key("platter 2026-11-25 cast receiver keys", &options.seed);
        let roster = Roster::new(key_of_keys, has_join_key);
        let marks = MarkChain::new(blake3::derive_key("platter 2026-11-25 cast marks", &options.seed));
        let announce = Announce {
            session,
            score: description.score,
            name: description.name.clone(),
            offer: description.offer.clone(),
            secret: description.secret.clone(),
            content_chunks: description.chunk_lengths.len() as u32,
            segments: description.segments.len() as u32,
            first_segment: description.segments[0],
            segment_length: description.segment_length,
            directory_hash: *blake3::hash(&directory).as_bytes(),
            group: options.group,
            join: options.join,
            feedback: options.feedback,
            timers: roster.timers(),
            mark: marks.at(0),
        };
        announce.check_addresses().map_err(|reason| Error::refused(format!("this cast: {reason}")))?;
        let family = Family::of(options.group.ip());
        let session_key = blake3::derive_key("platter 2026-11-25 cast session key", &options.seed);
        let nonces = blake3::derive_key("platter 2026-11-25 cast greetings", &options.seed);
        let of_announcements = options.join_key.as_ref().map_or(session_key, JoinKey::of_announcements);
        let first_end = table.directory_chunks() + description.recipe_chunks(0).end;
        Ok(Self {
            pacer: Pacer::seeded(options.rate_bits_per_second, u64::from(session.short()), family),
            overhead_bytes: wire_overhead_bytes(family) as u64,
            session_key,
            sender_key: DatagramKey::of_sender(&session_key, has_join_key),
            announce_key: DatagramKey::of_announcements(of_announcements, has_join_key),
            connections: Connections::new(options.join_key.clone(), nonces),
            scratch: Vec::new(),
            roster,
            schedule: Schedule::new(table.total(), first_end),
            repairs: Repairs::default(),
            fetches: Fetches::default(),
            shelf: Shelf::new(&directory),
            herald: Herald::new(),
            progress: SenderProgress::default(),
            packet: 0,
            marks,
            last_data_packet: 0,
            started_at: None,
            emptied_at: None,
            start: Start::default(),
            advanced_at: Duration::ZERO,
            is_waiting: false,
            waiting_since: None,
            is_closed: false,
            options,
            announce,
            table,
        })
    }

    /// Returns the announcement.
    pub fn announce(&self) -> &Announce {
        &self.announce
    }

    pub(super) fn count(&mut self, rejected: Rejected) {
        match rejected {
            Rejected::Forged => self.progress.rejected += 1,
            Rejected::Repeated => self.progress.repeated += 1,
        }
    }

    /// Handles a message (without its length) of the reliable channel. `connection` is the driver's number of the connection,
    /// `from` the address of its other end. Returns false if it was refused or cannot be read.
    pub fn handle_message(&mut self, now: Duration, connection: u64, from: IpAddr, message: &[u8]) -> bool {
        let is_encrypted = self.connections.is_encrypted(connection);
        let Some(opened) = self.connections.open(connection, message) else {
            self.progress.rejected += 1;
            if !self.has_joined(connection) {
                // It cannot read this, so it learns that the keys differ.
                self.refuse(connection, "this cast has another key file");
            }
            return false;
        };
        let answer = match JoinMessage::parse(&opened) {
            Some(JoinMessage::Greeting { nonce }) if !is_encrypted => {
                self.connections.greet(connection, &nonce)
            }
            Some(_) if !self.connections.is_open(connection) => {
                self.progress.rejected += 1;
                Some(JoinMessage::Refused { reason: "this cast needs a key file (--key-file FILE)".into() })
            }
            Some(JoinMessage::Join { wanted, hello, buffer_chunks }) => {
                Some(self.handle_join(now, connection, &wanted, (hello, from), buffer_chunks))
            }
            Some(JoinMessage::Resume { datagram }) => self.handle_resume(now, connection, &datagram),
            Some(JoinMessage::Result { result }) => {
                let is_confirmed = self.roster.take_result(now, connection, result, self.announce.score);
                is_confirmed.then_some(JoinMessage::ResultOk)
            }
            Some(JoinMessage::Fetch { chunk, offset, length }) => {
                let receiver = self.roster.admitted(connection);
                let exists = self.table.length(chunk).is_some_and(|bytes| offset < bytes);
                if let Some(receiver) = receiver.filter(|_| exists) {
                    self.roster.heard(now, receiver);
                    self.fetches.ask(Fetch { connection, chunk, offset, length });
                }
                None
            }
            Some(JoinMessage::Leave) => {
                self.roster.leave(now, connection);
                None
            }
            Some(_) => None,
            None => {
                Some(JoinMessage::Refused { reason: "the message is invalid, or of another version".into() })
            }
        };
        answer.iter().for_each(|answer| self.connections.say(connection, answer));
        !matches!(answer, Some(JoinMessage::Refused { .. } | JoinMessage::Gone))
    }

    /// Tells a connection why nobody can join over it.
    pub fn refuse(&mut self, connection: u64, reason: &str) {
        self.connections.say(connection, &JoinMessage::Refused { reason: reason.to_owned() });
    }

    /// Has a receiver that joined before go on over this connection.
    fn handle_resume(&mut self, now: Duration, connection: u64, datagram: &[u8]) -> Option<JoinMessage> {
        let header = Header::parse(datagram).map(|(header, _)| header);
        let resumed = match header.filter(|header| header.message == MessageType::Resume) {
            None => Err(NotResumed::Rejected(Rejected::Forged)),
            Some(header) if header.session != self.announce.session.short() => Err(NotResumed::Gone),
            Some(header) => self.roster.resume(now, connection, &header, datagram, &mut self.scratch),
        };
        match resumed {
            Ok(before) => {
                before.iter().for_each(|before| self.connections.close(*before));
                None
            }
            Err(NotResumed::Gone) => Some(JoinMessage::Gone),
            Err(NotResumed::Rejected(rejected)) => {
                self.count(rejected);
                Some(JoinMessage::Refused { reason: "this is no receiver's connection".into() })
            }
        }
    }

    fn handle_join(
        &mut self,
        now: Duration,
        connection: u64,
        wanted: &Wanted,
        who: (String, IpAddr),
        buffer_chunks: u32,
    ) -> JoinMessage {
        if self.is_closed {
            return JoinMessage::Refused { reason: "this cast has ended".into() };
        }
        if self.options.is_unlisted
            && !matches!(wanted, Wanted::Score(score) if *score == self.announce.score)
        {
            let reason = "this sender takes only receivers that its origin sends: `platter receive --server`";
            return JoinMessage::Refused { reason: reason.into() };
        }
        if !wanted.matches(&self.announce.score, &self.announce.name) {
            let reason = format!("this sender casts {} ({})", self.announce.name, self.announce.score);
            return JoinMessage::Refused { reason };
        }
        if buffer_chunks == 0 {
            return JoinMessage::Refused { reason: "a receiver needs at least one chunk buffer".into() };
        }
        match self.roster.join(now, connection, who, buffer_chunks, self.packet) {
            Ok((receiver, key)) => {
                self.announce.timers = self.roster.timers();
                self.emptied_at = None;
                self.start.joined(now);
                let keys = SessionKeys { receiver: key, sender: self.session_key };
                JoinMessage::Welcome {
                    receiver,
                    keys,
                    packet: self.packet,
                    announce: Box::new(self.announce.clone()),
                }
            }
            Err(NoPlace::SecondJoin) => {
                JoinMessage::Refused { reason: "a receiver has joined over this connection before".into() }
            }
            Err(NoPlace::Full) => {
                JoinMessage::Refused { reason: "too many receivers joined this session".into() }
            }
            Err(NoPlace::FullForAddress) => {
                let reason = "too many receivers of your address joined this session";
                JoinMessage::Refused { reason: reason.into() }
            }
        }
    }

    /// Lets nobody join any more. Receivers that have joined are still answered.
    pub fn end_joins(&mut self) {
        self.is_closed = true;
    }

    /// Returns whether a receiver has joined or goes on over this connection.
    pub fn has_joined(&self, connection: u64) -> bool {
        self.roster.has_joined(connection)
    }

    /// Returns whether a receiver waits for an answer over this connection.
    pub fn is_asked(&self, connection: u64) -> bool {
        self.fetches.has(connection)
    }

    /// Handles the end of a connection of the reliable channel. Its receiver goes on without one while it is heard.
    pub fn handle_disconnect(&mut self, connection: u64) {
        self.fetches.forget(connection);
        self.connections.forget(connection);
        self.roster.disconnected(self.advanced_at, connection);
    }

    /// Takes the contents of a chunk that [`Sender::poll_chunk_needed`] requested.
    ///
    /// # Errors
    /// `Bug` when their length differs from the description.
    pub fn handle_chunk(&mut self, index: u32, bytes: Arc<[u8]>) -> Result<()> {
        let chunk = index
            .checked_add(self.table.directory_chunks())
            .ok_or_else(|| Error::bug(format!("chunk {index} does not exist")))?;
        self.shelf.supply(chunk, bytes, &self.table)
    }

    /// Returns the next content chunk whose contents are needed. Call until `None`.
    pub fn poll_chunk_needed(&mut self) -> Option<u32> {
        let directory_chunks = self.table.directory_chunks();
        // Whoever fetches little of many chunks must not take the time in which chunks for all are read.
        let mut scheduled = self.schedule.upcoming();
        let first: Vec<u32> = self.repairs.upcoming().chain(scheduled.by_ref().take(ACTIVE_CHUNKS)).collect();
        let wanted = first.into_iter().chain(self.fetches.upcoming()).chain(scheduled);
        self.shelf.ask(wanted).map(|chunk| chunk - directory_chunks)
    }

    /// Returns the next message for the reliable channel (with its length).
    pub fn poll_message(&mut self) -> Option<(u64, Vec<u8>)> {
        self.connections.poll_message()
    }

    /// Returns the next connection to close: its receiver goes on over another one.
    pub fn poll_close(&mut self) -> Option<u64> {
        self.connections.poll_close()
    }

    /// Fills in the next batch to send. Returns false if there is none until [`Sender::next_deadline`] or the next input.
    pub fn poll_transmit(&mut self, now: Duration, transmit: &mut Transmit) -> bool {
        self.advance(now);
        self.answer_fetches(now);
        transmit.bytes.clear();
        transmit.to = Destination::Group;
        if self.herald.take_announcement(now, self.pacer.ceiling()) {
            let header = self.next_header(now, MessageType::Announce);
            self.announce.write(&header, &mut transmit.bytes);
            self.announce_key.seal(&mut transmit.bytes, 0);
            if !self.options.is_unlisted {
                transmit.to = Destination::GroupAndDiscovery;
            }
            return self.finish_batch(transmit, 0);
        }
        if self.started_at.is_none() {
            if !self.start.takes_plan(now) {
                return false;
            }
            let has_plan = self.write_plan(now, Vec::new(), transmit);
            self.start.planned(self.packet);
            return has_plan;
        }
        if !self.pacer.may_send() {
            return false;
        }
        if let Some(entries) = self.herald.take_plan(now, false) {
            return self.write_plan(now, entries, transmit);
        }
        self.fill_data(now, transmit);
        if !transmit.bytes.is_empty() {
            return self.finish_batch(transmit, SEALED_DATA_BYTES);
        }
        match self.herald.take_plan(now, true) {
            Some(entries) => self.write_plan(now, entries, transmit),
            None => false,
        }
    }

    /// Answers requests over reliable channels, as far as the rate allows. The answers count towards the rate.
    fn answer_fetches(&mut self, now: Duration) {
        while !self.fetches.is_empty() && self.pacer.may_send() {
            let idle = self.schedule.remaining() == 0 && self.repairs.is_empty();
            let (shelf, rate) = (&self.shelf, self.pacer.rate());
            let Some(fetch) = self.fetches.next(now, rate, idle, |chunk| shelf.has(chunk)) else { return };
            let Some(bytes) = self.shelf.bytes(fetch.chunk) else { return };
            let start = (fetch.offset as usize).min(bytes.len());
            let end = (start + fetch.length as usize).min(bytes.len());
            for (number, piece) in bytes[start..end].chunks(PIECE_BYTES_MAX).enumerate() {
                let offset = fetch.offset + (number * PIECE_BYTES_MAX) as u32;
                let piece = JoinMessage::Piece { chunk: fetch.chunk, offset, bytes: piece.to_vec() };
                self.connections.say(fetch.connection, &piece);
            }
            self.pacer.spend(end - start);
            self.progress.fetched_bytes += (end - start) as u64;
        }
    }

    fn fill_data(&mut self, now: Duration, transmit: &mut Transmit) {
        for _ in 0..BATCH_DATAGRAMS_MAX {
            if !self.pacer.may_send()
                || !(self.append_repair(now, transmit) || self.append_source(now, transmit))
            {
                return;
            }
            self.pacer.spend(SEALED_DATA_BYTES);
            self.herald.data_sent(now);
            self.last_data_packet = self.packet;
        }
    }

    fn append_repair(&mut self, now: Duration, transmit: &mut Transmit) -> bool {
        let shelf = &self.shelf;
        let Some(next) = self.repairs.next(now, self.packet + 1, |chunk| shelf.has(chunk)) else {
            return false;
        };
        let header = self.next_header(now, MessageType::Data);
        let Some(bytes) = self.shelf.symbol(next.chunk, next.symbol) else { return false };
        let start = transmit.bytes.len();
        Data::append(&header, next.chunk, next.symbol, bytes, &mut transmit.bytes);
        self.sender_key.seal(&mut transmit.bytes, start);
        self.progress.repair_symbols += 1;
        if next.last {
            self.tell(next.chunk);
        }
        true
    }

    fn append_source(&mut self, now: Duration, transmit: &mut Transmit) -> bool {
        let mut is_waiting = false;
        while let Some(chunk) = self.schedule.candidate() {
            // Without the directory a receiver cannot use content chunks, so the directory is sent completely first, with its
            // repair.
            let directory = 0..self.table.directory_chunks();
            let on_its_way = |first| self.schedule.is_active(first) || self.repairs.is_open(first);
            let too_early = !directory.contains(&chunk) && directory.clone().any(on_its_way);
            if too_early {
                break;
            }
            if self.roster.room() == 0 {
                is_waiting = true;
                break;
            }
            let Some(bytes) = self.shelf.bytes(chunk) else { break };
            self.schedule.begin(chunk, bytes, self.packet + 1);
            self.repairs.restart(chunk);
            self.herald.forget(chunk);
            self.roster.chunk_begins(self.packet + 1);
        }
        let header = self.next_header(now, MessageType::Data);
        let Some(next) = self.schedule.next() else {
            self.packet -= 1;
            self.is_waiting = is_waiting;
            return false;
        };
        self.is_waiting = false;
        let start = transmit.bytes.len();
        Data::append(&header, next.chunk, next.symbol, next.bytes, &mut transmit.bytes);
        self.sender_key.seal(&mut transmit.bytes, start);
        let (chunk, symbol, last) = (next.chunk, next.symbol, next.last);
        self.progress.source_symbols += 1;
        if last {
            if self.schedule.goes_first(chunk) {
                let unasked = UNASKED_REPAIR + symbol / UNASKED_REPAIR_SHARE;
                self.repairs.unasked(now, chunk, unasked, self.packet);
            }
            self.tell(chunk);
        }
        true
    }

    /// Puts the progress of a chunk into the next plan.
    pub(super) fn tell(&mut self, chunk: u32) {
        let (repair_sent, repair_planned) = self.repairs.state(chunk);
        self.herald.tell(PlanEntry { chunk, end_packet: self.packet + 1, repair_sent, repair_planned });
    }

    fn write_plan(&mut self, now: Duration, entries: Vec<PlanEntry>, transmit: &mut Transmit) -> bool {
        // Before the start, receivers must not take silence for an invitation to request again.
        let least = u32::from(self.started_at.is_none());
        let pending = (self.schedule.remaining() + u32::from(!self.repairs.is_empty())).max(least);
        let (least_free, spokesmen) = (self.roster.least_free(), self.roster.named());
        let plan = Plan { pending, last_data_packet: self.last_data_packet, entries, least_free, spokesmen };
        let header = self.next_header(now, MessageType::Plan);
        plan.write(&header, &mut transmit.bytes);
        self.sender_key.seal(&mut transmit.bytes, 0);
        self.pacer.spend(transmit.bytes.len());
        self.finish_batch(transmit, 0)
    }

    fn next_header(&mut self, now: Duration, message: MessageType) -> Header {
        self.packet = (self.packet + 1).min(PACKET_NUMBER_MAX);
        let session = self.announce.session.short();
        Header { message, session, packet: self.packet, sent_us: low_microseconds(now) }
    }

    fn finish_batch(&mut self, transmit: &mut Transmit, segment_bytes: usize) -> bool {
        debug_assert!(segment_bytes <= DATAGRAM_BYTES_MAX);
        transmit.segment_bytes = if segment_bytes == 0 { transmit.bytes.len() } else { segment_bytes };
        self.progress.datagrams += transmit.datagrams().count() as u64;
        self.progress.bytes += transmit.bytes.len() as u64;
        true
    }

    fn advance(&mut self, now: Duration) {
        if self.started_at.is_some() && self.pacer.reads_now(now) {
            let reading = self.roster.read_path(now, self.packet);
            if self.pacer.read(now, reading) {
                self.roster.restart_samples();
            }
        }
        self.pacer.advance(now);
        let has_ended = self.roster.take_ended();
        if now < self.advanced_at + TICK / 10 && self.started_at.is_some() && !has_ended {
            return;
        }
        let time = now.saturating_sub(self.advanced_at).min(TICK);
        self.advanced_at = now;
        let work = self.work(now);
        if self.roster.advance(now, time, work) {
            // Slow receivers learn at once that their requests are answered now.
            self.herald.wake(now);
        }
        if self.roster.take_named_changed() {
            self.herald.hurry(now);
        }
        self.marks.update(&mut self.announce.mark, self.packet);
        let present = self.roster.present();
        self.announce.timers = self.roster.timers();
        if present > 0 {
            self.emptied_at = None;
        }
        if self.started_at.is_none() {
            let are_enough = present >= self.options.wait_receivers as usize || now >= self.options.wait;
            self.start.set_ready(now, present > 0 && are_enough);
            if self.start.is_due(now, self.roster.all_hear()) {
                self.started_at = Some(now);
                self.pacer.start(now);
                self.roster.start(now);
            }
        }
        if present == 0 && self.started_at.is_some() && self.emptied_at.is_none() {
            self.emptied_at = Some(now);
            self.schedule.clear();
            self.repairs.clear();
        }
    }

    /// Returns when to call [`Sender::poll_transmit`] again if nothing happens before.
    pub fn next_deadline(&self, now: Duration) -> Duration {
        let mut deadline = self.herald.next_deadline(self.started_at.is_some()).min(now + TICK);
        if self.started_at.is_none() {
            let wait = Some(self.options.wait).filter(|wait| *wait > now);
            deadline = deadline.min(self.start.next_deadline().or(wait).unwrap_or(deadline));
        }
        let end = self.end_at().filter(|end| *end > now);
        deadline = deadline.min(end.unwrap_or(deadline));
        if self.started_at.is_some() && !self.pacer.may_send() {
            return self.pacer.ready_at();
        }
        if self.is_waiting {
            deadline = deadline.min(now + TICK / 10);
        }
        if !self.fetches.is_empty() {
            deadline = deadline.min(now + FETCH_TICK);
        }
        match self.repairs.next_due() {
            Some(due) if due > now => deadline.min(due),
            _ => deadline,
        }
    }

    /// Returns whether the session is over: all receivers have finished and nobody else joined.
    pub fn is_finished(&self, now: Duration) -> bool {
        self.end_at().is_some_and(|end| now >= end)
    }

    /// When the session is over if nobody joins before.
    fn end_at(&self) -> Option<Duration> {
        match self.emptied_at {
            Some(emptied) => Some(emptied.saturating_add(self.options.linger)),
            None if self.started_at.is_none() && self.roster.present() == 0 => self.options.give_up,
            None => None,
        }
    }

    /// Returns all receivers that ever joined. A receiver that was restarted counts once.
    pub fn receivers(&self) -> Vec<ReceiverStatus> {
        self.roster.statuses()
    }

    /// Returns whether a receiver's state has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        self.roster.take_changed()
    }

    /// Changes the maximum rate on the wire, in bits per second.
    pub fn set_rate(&mut self, bits_per_second: u64) {
        self.pacer.set_ceiling(bits_per_second);
    }

    /// Returns the counters.
    pub fn progress(&self) -> SenderProgress {
        SenderProgress {
            started: self.started_at.is_some(),
            rate_bits_per_second: self.pacer.rate(),
            chunks_remaining: self.schedule.remaining(),
            wire_bytes: self.progress.bytes + self.progress.datagrams * self.overhead_bytes,
            ..self.progress
        }
    }

    /// Returns when the sending of data started, and when a receiver was last heard.
    pub fn times(&self) -> Option<(Duration, Duration)> {
        Some((self.started_at?, self.roster.last_heard()?))
    }
}

fn session_id(seed: &[u8; 32]) -> SessionId {
    let hash = blake3::derive_key("platter 2026-11-21 cast session", seed);
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    SessionId(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::{CastFilter, Receiver, ReceiverOptions};
    use crate::session::{Segment, SessionSecret};
    use platter_image::{BlockId, Score};

    const NOW: Duration = Duration::from_millis(5);

    fn pair() -> (Sender, Receiver) {
        let options = SenderOptions {
            seed: [1; 32],
            join_key: None,
            rate_bits_per_second: 100_000_000,
            group: "239.255.1.1:7580".parse().unwrap(),
            join: "10.0.0.1:7580".parse().unwrap(),
            feedback: "10.0.0.1:9000".parse().unwrap(),
            wait_receivers: 9,
            wait: Duration::from_secs(9000),
            linger: Duration::ZERO,
            give_up: None,
            is_unlisted: false,
        };
        let description = SessionDescription {
            secret: SessionSecret::default(),
            score: Score(BlockId([7; 32])),
            name: "a".into(),
            offer: Vec::new(),
            segment_length: 1 << 36,
            segments: vec![Segment { chunks: 1, recipe_chunks: 1 }],
            chunk_lengths: vec![3000],
        };
        let mut sender = Sender::new(options, &description).unwrap();
        let mut receiver = Receiver::new(ReceiverOptions {
            seed: 1,
            wanted: Wanted::Any,
            filter: CastFilter::default(),
            join_key: None,
            nonce_seed: [1; 32],
            hello: "pc".into(),
            buffer_chunks: 4,
            everything: true,
        });
        receiver.handle_connected(NOW);
        sender.handle_message(NOW, 1, [10, 0, 0, 9].into(), &receiver.poll_message().unwrap()[4..]);
        receiver.handle_message(NOW, &sender.poll_message().unwrap().1[4..]);
        sender.handle_disconnect(1);
        receiver.handle_disconnected(NOW);
        (sender, receiver)
    }

    /// Gives the receiver the sender's next announcement. Returns how many datagrams it has rejected.
    fn announce(sender: &mut Sender, receiver: &mut Receiver, now: Duration) -> u64 {
        let mut transmit = Transmit::new();
        while sender.poll_transmit(now, &mut transmit) {
            receiver.handle_datagram(now, &transmit.bytes);
        }
        receiver.statistics().rejected
    }

    #[test]
    fn nobody_joins_a_cast_that_has_ended() {
        let (mut sender, _) = pair();
        let join = JoinMessage::Join { wanted: Wanted::Any, hello: "late".into(), buffer_chunks: 4 };
        sender.end_joins();
        assert!(!sender.handle_message(NOW, 2, [10, 0, 0, 8].into(), &join.to_bytes()[4..]));
        let answer = JoinMessage::parse(&sender.poll_message().unwrap().1[4..]);
        assert_eq!(answer, Some(JoinMessage::Refused { reason: "this cast has ended".into() }));
        assert_eq!(sender.receivers().len(), 1);
    }

    /// They prove how far the sender has come, as far as it goes and beyond the last mark.
    #[test]
    fn announcements_keep_a_receiver_without_a_connection_up_to_date() {
        let (mut sender, mut receiver) = pair();
        let mut now = NOW;
        for (step, count) in [(2 << 20, 30), (60 << 20, 1091), (3 << 20, 9)] {
            for _ in 0..count {
                sender.packet += step;
                now += Duration::from_millis(100);
                // The number is taken over when the sender wakes.
                sender.advance(now);
                assert_eq!(announce(&mut sender, &mut receiver, now), 0, "{}", sender.packet);
            }
        }
        assert!(sender.announce.mark.is_last());
        sender.packet += 70 << 20;
        assert_eq!(announce(&mut sender, &mut receiver, now + NOW * 20), 1, "it has to join again");
    }
}
