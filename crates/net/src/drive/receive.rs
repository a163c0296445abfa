//! The receiver's loop.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Queue, Sender as QueueEnd, bounded};
use platter_cast::{
    Family, Receiver, ReceiverEvent, ReceiverOptions, SessionDescription, SessionId, SinkStage,
};
use platter_image::{Error, ErrorKind, IoContext, Result};

use super::troubles::{Trouble, Troubles};
use crate::batch::BatchSocket;
use crate::connection::{Connecting, Connection};
use crate::devices::discovery;
use crate::listening::Listening;
use crate::multicast_socket::group_socket;
use crate::options::{JoinPlace, ReceiveEvent, ReceiveOptions, ReceiveSummary};
use crate::scope::SenderAddress;
use crate::sink::{ChunkSink, ChunkVerdict, ReceivedChunk, SinkOutcome, SinkTimes};
use crate::wake::{Bell, Interest, wait};

/// Timeout for connecting to the sender.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// Pause before connecting again to a known sender that refused.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);
/// How long to look for another sender after one whose data is corrupt.
const OTHER_SENDER_TIME: Duration = Duration::from_secs(10);
/// How long to wait for the sender's acknowledgement of the result.
const RESULT_TIME: Duration = Duration::from_secs(5);
/// A receiver that was sent by an origin gives up after so many joins in a row over which no datagram of the group arrived: the network
/// evidently does not pass its multicast.
const UNHEARD_JOINS_MAX: u32 = 2;
/// Such a receiver also gives up after so many failed joins, each at an address that the origin had named just before: a firewall or a
/// router is between it and the sender, or the sender takes no more receivers.
const UNREACHED_MAX: u32 = 8;
/// How often progress is reported to the caller.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// The longest sleep, so that a stop request is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// The most receive calls on the group socket in one round of the loop.
const RECEIVES_AT_ONCE: usize = 8;
/// Queue slots for jobs that are not chunks: a session and the end.
const OTHER_JOBS: usize = 2;

enum SinkJob {
    Session(SessionDescription),
    Chunk { generation: u32, index: u32, bytes: Vec<u8> },
    Finish,
}

enum SinkAnswer {
    Wanted(Result<Vec<std::ops::Range<u32>>>),
    Verdict { generation: u32, index: u32, bytes: Vec<u8>, verdict: Result<ChunkVerdict> },
    Finished(Result<SinkOutcome>),
}

/// Receives an image: finds and joins the session, passes chunks to the sink, and reports the result.
///
/// # Errors
/// `Missing` when no sender was heard in time; `Refused` when the sender refuses this receiver, or a stop was
/// requested; `Transient` when an origin named the sender, and the network does not pass its cast; `Io`; errors of the sink.
pub fn receive(
    options: &ReceiveOptions,
    sink: &mut dyn ChunkSink,
    mut on_event: impl FnMut(ReceiveEvent),
) -> Result<ReceiveSummary> {
    let capacity = options.buffer_chunks + OTHER_JOBS;
    let (jobs, job_queue) = bounded::<SinkJob>(capacity);
    let (answers, answer_queue) = bounded::<SinkAnswer>(capacity);
    let driver = Driver::open(options, jobs, sink.times())?;
    let bell = driver.bell.clone();
    thread::scope(|scope| {
        let run = move || run_sink(sink, &job_queue, &answers, &bell);
        thread::Builder::new().spawn_scoped(scope, run).context(|| "starting a thread".into())?;
        // The driver owns the sending end of the job queue; dropping it here ends the sink's thread.
        let mut driver = driver;
        driver.run(&answer_queue, &mut on_event)
    })
}

fn run_sink(sink: &mut dyn ChunkSink, jobs: &Queue<SinkJob>, answers: &QueueEnd<SinkAnswer>, bell: &Bell) {
    while let Ok(job) = jobs.recv() {
        let answer = match job {
            SinkJob::Session(description) => SinkAnswer::Wanted(sink.session(&description)),
            SinkJob::Chunk { generation, index, bytes } => {
                let (answers, bell) = (answers.clone(), bell.clone());
                sink.receive(ReceivedChunk::new(index, bytes, move |bytes, verdict| {
                    // The network's thread may have ended.
                    let _ = answers.send(SinkAnswer::Verdict { generation, index, bytes, verdict });
                    bell.ring();
                }));
                continue;
            }
            SinkJob::Finish => SinkAnswer::Finished(sink.finish()),
        };
        if answers.send(answer).is_err() {
            return;
        }
        bell.ring();
    }
}

struct Driver<'a> {
    options: &'a ReceiveOptions,
    machine: Receiver,
    listening: Listening<'a>,
    troubles: Troubles,
    group: Option<(SocketAddr, BatchSocket)>,
    /// The group of the session that was joined last, and whether it is left until this machine has an address again.
    joined_group: Option<SocketAddr>,
    is_cut_off: bool,
    /// Whether a datagram of the group has arrived since the join.
    has_heard_group: bool,
    /// How many joins in a row ended without such a datagram.
    unheard_joins: u32,
    /// How often the origin had named the address when a join failed there last.
    failed_naming: u32,
    /// How many joins failed there, each after it was named again. None once a join succeeds.
    unreached: u32,
    connection: Option<Connection>,
    /// A connection that is being made, and to where.
    connecting: Option<(Connecting, JoinPlace)>,
    /// Where the last connection led.
    connected_to: Option<SocketAddr>,
    connect_at: Duration,
    bell: Bell,
    start: Instant,
    jobs: QueueEnd<SinkJob>,
    /// How long the sink's stages have worked, now and when its stage was last determined.
    times: Arc<SinkTimes>,
    times_before: [u64; 2],
    /// Whether the sink has not said yet what it wants of the last session that was passed to it; and the newest one after that, which
    /// is passed then. A sender may begin any number while the sink is busy.
    is_session_open: bool,
    next_session: Option<SessionDescription>,
    session: Option<SessionId>,
    /// The sink has said which chunks of the current session it wants.
    wants_known: bool,
    joined_at: Option<Duration>,
    joined_last: Duration,
    is_joined: bool,
    bytes: u64,
    finishing: bool,
    ending: Option<Ending>,
    acknowledged: bool,
    /// Why the last sender could not be joined.
    refusal: Option<String>,
    /// Why the last sender was left, and until when to look for another one.
    corrupt: Option<(Duration, Error)>,
}

struct Ending {
    outcome: Result<SinkOutcome>,
    at: Duration,
}

impl<'a> Driver<'a> {
    fn open(options: &'a ReceiveOptions, jobs: QueueEnd<SinkJob>, times: Arc<SinkTimes>) -> Result<Self> {
        if options.buffer_chunks == 0 {
            return Err(Error::refused("a receiver needs at least one chunk buffer"));
        }
        let (mut seed, mut nonce_seed) = ([0; 8], [0; 32]);
        getrandom::fill(&mut seed)
            .and_then(|()| getrandom::fill(&mut nonce_seed))
            .map_err(std::io::Error::from)
            .context(|| "generating random numbers".into())?;
        let bell = Bell::new()?;
        if let Some(told) = &options.told {
            told.wake(bell.clone());
        }
        let machine = Receiver::new(ReceiverOptions {
            seed: u64::from_le_bytes(seed),
            wanted: options.wanted.clone(),
            filter: options.filter.clone(),
            join_key: options.join_key.clone(),
            nonce_seed,
            hello: options.hello.clone(),
            buffer_chunks: options.buffer_chunks,
            everything: options.everything,
        });
        Ok(Self {
            options,
            machine,
            listening: Listening::new(options)?,
            troubles: Troubles::default(),
            group: None,
            joined_group: None,
            is_cut_off: false,
            has_heard_group: false,
            unheard_joins: 0,
            failed_naming: 0,
            unreached: 0,
            connection: None,
            connecting: None,
            connected_to: None,
            connect_at: Duration::ZERO,
            bell,
            start: Instant::now(),
            jobs,
            times,
            times_before: [0; 2],
            is_session_open: false,
            next_session: None,
            session: None,
            wants_known: false,
            joined_at: None,
            joined_last: Duration::ZERO,
            is_joined: false,
            bytes: 0,
            finishing: false,
            ending: None,
            acknowledged: false,
            refusal: None,
            corrupt: None,
        })
    }

    fn run(
        &mut self,
        answers: &Queue<SinkAnswer>,
        on_event: &mut dyn FnMut(ReceiveEvent),
    ) -> Result<ReceiveSummary> {
        let mut told_at = Duration::ZERO;
        let mut datagram = Vec::new();
        loop {
            let now = self.start.elapsed();
            self.look_for_addresses(now)?;
            let busy = self.receive_datagrams(now)?;
            self.finish_connecting(now)?;
            self.receive_messages(now);
            // Before the answers, so that answers for an old session are not applied to a new one.
            self.take_events(now, on_event)?;
            while let Ok(answer) = answers.try_recv() {
                self.take_answer(now, answer);
            }
            self.connect_if_due(now)?;
            while let Some(to) = self.machine.poll_transmit(now, &mut datagram) {
                // If feedback is lost, the machine repeats it.
                self.listening.send(to, &datagram);
            }
            // Those of time alone.
            self.take_events(now, on_event)?;
            self.send_messages();
            self.troubles.take().for_each(|text| on_event(ReceiveEvent::Trouble(text)));
            if now >= told_at + PROGRESS_INTERVAL {
                told_at = now;
                self.determine_stage();
                on_event(self.progress());
            }
            if self.is_over(now)? {
                on_event(self.progress());
                return self.summary(now);
            }
            if !busy {
                let deadline = self
                    .machine
                    .next_deadline()
                    .map_or(SLEEP_MAX, |at| at.saturating_sub(self.start.elapsed()));
                self.wait(deadline.min(SLEEP_MAX))?;
            }
        }
    }

    /// Determines the stage of the sink that worked most since the last call.
    fn determine_stage(&mut self) {
        let sums = self.times.sums();
        let [decoding, disk] = [0, 1].map(|stage| sums[stage] - self.times_before[stage]);
        self.times_before = sums;
        if decoding > 0 || disk > 0 {
            self.machine.set_stage(if decoding > disk { SinkStage::Decoding } else { SinkStage::Disk });
        }
    }

    /// Keeps listening where this machine has addresses. Once the address has gone from which a joined sender is asked, a new one takes
    /// its place: the sender's datagrams may still arrive, but nothing gets back to it.
    ///
    /// # Errors
    /// As [`Listening::look`].
    fn look_for_addresses(&mut self, now: Duration) -> Result<()> {
        if self.is_joined {
            if self.connected_to.is_some_and(|sender| self.listening.has_lost(now, sender)) {
                self.disconnect(now);
                (self.group, self.is_cut_off) = (None, true);
                self.listening.renew();
            }
            let Some(group) = self.joined_group.filter(|_| self.is_cut_off) else { return Ok(()) };
            self.listening.look(now)?;
            if self.listening.of(group).is_some() {
                // The address may have gone again; the next look tries again.
                self.is_cut_off = self.listen(group).is_err();
            }
            return Ok(());
        }
        self.listening.look(now)?;
        if let Some(reason) = self.listening.deafness() {
            self.troubles.tell(Trouble::NoAddress, || format!("{reason}; waiting for an address"));
        }
        Ok(())
    }

    /// Returns `true` if more datagrams may be waiting.
    fn receive_datagrams(&mut self, now: Duration) -> Result<bool> {
        let (machine, has_group) = (&mut self.machine, self.group.is_some());
        self.listening.receive(|datagram| match has_group {
            true => machine.handle_discovery(now, datagram),
            false => machine.handle_datagram(now, datagram),
        })?;
        let Some((_, socket)) = &mut self.group else { return Ok(false) };
        for _ in 0..RECEIVES_AT_ONCE {
            if socket.receive(|datagram| machine.handle_datagram(now, datagram))? == 0 {
                return Ok(false);
            }
            self.has_heard_group = true;
        }
        Ok(true)
    }

    fn receive_messages(&mut self, now: Duration) {
        let (machine, instant) = (&mut self.machine, self.start + now);
        let alive = self.connection.as_mut().is_none_or(|connection| {
            connection.read(|message| machine.handle_message(now, message)) && connection.flush(instant)
        });
        if !alive {
            self.disconnect(now);
        }
    }

    /// Ends the connection, if there is one. A joined session goes on without it.
    fn disconnect(&mut self, now: Duration) {
        (self.connection, self.connecting) = (None, None);
        self.machine.handle_disconnected(now);
        if self.machine.is_joined() {
            return;
        }
        // Both groups are joined anew: switches learn from that which machines want them, and may forget it.
        (self.group, self.is_cut_off) = (None, false);
        if std::mem::replace(&mut self.is_joined, false) {
            self.joined_last = now;
            self.listening.renew();
        }
        self.set_joined(false);
        self.connect_at = now + CONNECT_AGAIN;
    }

    /// Tells the thread that learns the sender's address whether it is needed.
    fn set_joined(&self, is_joined: bool) {
        if let Some(told) = &self.options.told {
            told.set_joined(is_joined);
        }
    }

    fn send_messages(&mut self) {
        while let Some(message) = self.machine.poll_message() {
            let alive = self.connection.as_mut().is_some_and(|connection| connection.write(&message));
            if !alive {
                self.disconnect(self.start.elapsed());
            }
        }
    }

    fn take_events(&mut self, now: Duration, on_event: &mut dyn FnMut(ReceiveEvent)) -> Result<()> {
        while let Some(event) = self.machine.poll_event() {
            match event {
                ReceiverEvent::Connect { join, session } => {
                    self.connect(now, JoinPlace::of_session(join, &session))?;
                }
                ReceiverEvent::Reconnect => {
                    if let Some((address, session)) = self.connected_to.zip(self.session) {
                        self.connect(now, JoinPlace::of_session(address, &session))?;
                    }
                }
                ReceiverEvent::Joined(announce) => {
                    if !self.listens_or_refuses(now, announce.group)? {
                        continue;
                    }
                    self.joined_group = Some(announce.group);
                    self.joined_at.get_or_insert(now);
                    (self.corrupt, self.refusal, self.unreached) = (None, None, 0);
                    self.has_heard_group = false;
                    self.is_joined = true;
                    self.set_joined(true);
                    self.wants_known &= self.session == Some(announce.session);
                    self.session = Some(announce.session);
                    on_event(ReceiveEvent::Joined {
                        name: announce.name,
                        score: announce.score,
                        offer: announce.offer,
                        group: announce.group,
                    });
                }
                ReceiverEvent::Session(description) => {
                    self.wants_known = false;
                    self.next_session = Some(description);
                    self.pass_session()?;
                }
                ReceiverEvent::Chunk { generation, index, bytes } => {
                    self.give(SinkJob::Chunk { generation, index, bytes })?;
                }
                ReceiverEvent::Ignored { name, join, reason } => {
                    on_event(ReceiveEvent::Ignored { name, join, reason });
                }
                ReceiverEvent::Refused(reason) => self.refuse(now, &Error::refused(reason))?,
                ReceiverEvent::Unusable(reason) => {
                    self.leave_sender(now, unusable(&reason));
                }
                ReceiverEvent::SenderLost => {
                    self.count_unheard_join()?;
                    self.disconnect(now);
                    on_event(ReceiveEvent::SenderLost);
                }
                ReceiverEvent::Forgotten => self.disconnect(now),
                ReceiverEvent::Acknowledged => self.acknowledged = true,
            }
        }
        Ok(())
    }

    /// Listens to the group of a sender that was joined. Returns `false` if that is not possible, and leaves the sender: it may name any
    /// group, also one that only this machine's administrator may use, or whose port is taken.
    ///
    /// # Errors
    /// As [`Self::refuse`].
    fn listens_or_refuses(&mut self, now: Duration, group: SocketAddr) -> Result<bool> {
        let Err(error) = self.listen(group) else { return Ok(true) };
        self.machine.forgo();
        self.refuse(now, &error)?;
        Ok(false)
    }

    /// Leaves a sender that cannot be joined. Another one is looked for, unless the caller named this one.
    ///
    /// # Errors
    /// `Refused`, or that of the network.
    fn refuse(&mut self, now: Duration, reason: &Error) -> Result<()> {
        let Some(join) = self.connected_to else { return Ok(()) };
        let refusal =
            format!("the sender at {} cannot be joined: {}", SenderAddress::from(join), reason.with_causes());
        // A receiver that has joined once waits for the sender to return.
        if self.options.sender.is_some() && self.joined_at.is_none() {
            return Err(Error::refused(refusal));
        }
        self.refusal = Some(refusal);
        self.disconnect(now);
        self.count_unreached(join)
    }

    /// Counts a failed join, if an origin had just named this address.
    ///
    /// # Errors
    /// `Transient` when the sender evidently cannot be joined there.
    fn count_unreached(&mut self, address: SocketAddr) -> Result<()> {
        let told =
            self.options.told.as_ref().filter(|told| told.place().is_some_and(|it| it.address == address));
        let naming = told.map_or(0, |told| told.namings());
        if naming > self.failed_naming && self.joined_at.is_none() {
            (self.failed_naming, self.unreached) = (naming, self.unreached + 1);
        }
        if self.unreached < UNREACHED_MAX { Ok(()) } else { Err(self.unjoinable()) }
    }

    fn unjoinable(&mut self) -> Error {
        Error::transient(self.refusal.take().unwrap_or_default())
    }

    /// Counts a join over which no datagram of the group arrived.
    ///
    /// # Errors
    /// `Transient` when an origin has sent this receiver to its sender, and the network evidently does not pass multicast.
    fn count_unheard_join(&mut self) -> Result<()> {
        let Some((group, _)) = &self.group else { return Ok(()) };
        self.unheard_joins = if self.has_heard_group { 0 } else { self.unheard_joins + 1 };
        if self.unheard_joins < UNHEARD_JOINS_MAX {
            return Ok(());
        }
        let here =
            self.listening.of(*group).map_or_else(String::new, |sockets| sockets.place.address.to_string());
        let text = format!(
            "the sender was joined, but none of its datagrams to the group {group} arrived at {here}: the network between them does \
             not pass multicast, or drops it"
        );
        if self.options.told.is_some() {
            return Err(Error::transient(text));
        }
        self.troubles.tell(Trouble::Unheard, || {
            format!("{text} (`platter cast --probe` shows what it does); trying again")
        });
        Ok(())
    }

    fn give(&self, job: SinkJob) -> Result<()> {
        self.jobs.try_send(job).map_err(|_| Error::bug("the queue to the sink is full or closed"))
    }

    /// Passes the newest session to the sink, unless it still has an earlier one.
    fn pass_session(&mut self) -> Result<()> {
        if self.is_session_open {
            return Ok(());
        }
        let Some(description) = self.next_session.take() else { return Ok(()) };
        self.is_session_open = true;
        self.give(SinkJob::Session(description))
    }

    fn take_answer(&mut self, now: Duration, answer: SinkAnswer) {
        match answer {
            SinkAnswer::Wanted(wanted) => self.take_wanted(now, wanted),
            SinkAnswer::Verdict { generation, index, bytes, verdict } => {
                self.take_verdict(now, (generation, index, bytes), verdict);
            }
            SinkAnswer::Finished(outcome) => self.end(now, outcome),
        }
        let statistics = self.machine.statistics();
        let complete = self.wants_known && statistics.done == statistics.wanted;
        if complete && !self.finishing && self.ending.is_none() {
            self.finishing = true;
            if let Err(error) = self.give(SinkJob::Finish) {
                self.end(now, Err(error));
            }
        }
    }

    fn take_wanted(&mut self, now: Duration, wanted: Result<Vec<std::ops::Range<u32>>>) {
        self.is_session_open = false;
        let is_last = self.next_session.is_none();
        let passed = self.pass_session();
        match wanted {
            // An answer about an earlier session means nothing in a new one, of which not even the chunks may be known yet.
            Ok(ranges) if is_last => self.wants_known = self.machine.want(now, &ranges),
            Err(error) if error.kind() == ErrorKind::Corrupt && is_last && self.machine.want(now, &[]) => {
                self.leave_sender(now, unusable(&error.with_causes()));
            }
            Err(error) if error.kind() != ErrorKind::Corrupt => self.end(now, Err(error)),
            _ => {}
        }
        if let Err(error) = passed {
            self.end(now, Err(error));
        }
    }

    fn take_verdict(
        &mut self,
        now: Duration,
        (generation, index, bytes): (u32, u32, Vec<u8>),
        verdict: Result<ChunkVerdict>,
    ) {
        let length = bytes.len() as u64;
        match verdict {
            Ok(ChunkVerdict::Accepted) => {}
            Ok(ChunkVerdict::AcceptedWant(ranges)) => {
                // What a chunk of an earlier session made the sink want means nothing in a new one.
                if self.wants_known {
                    self.machine.want(now, &ranges);
                }
            }
            Ok(ChunkVerdict::Bad(_)) => {
                if let Err(error) = self.machine.chunk_bad(now, generation, index, bytes) {
                    self.leave_sender(now, error);
                }
                return;
            }
            Ok(ChunkVerdict::Contradicts(ranges)) => {
                self.machine.chunk_contradicts(now, generation, index, bytes, &ranges);
                return;
            }
            Ok(ChunkVerdict::Unusable(reason)) => {
                self.machine.chunk_accepted(generation, index, bytes);
                // The sink answers all chunks of earlier sessions before it says what it wants of this one.
                if self.wants_known {
                    self.leave_sender(now, unusable(&reason));
                }
                return;
            }
            Err(error) => {
                self.end(now, Err(error));
                return;
            }
        }
        self.bytes += length;
        self.machine.chunk_accepted(generation, index, bytes);
    }

    /// Leaves a sender whose data is corrupt. Another machine may have answered in the right sender's place; if there is no other
    /// sender, the error ends receiving.
    fn leave_sender(&mut self, now: Duration, error: Error) {
        let is_named = self.options.sender.is_some() || self.options.told.is_some();
        if is_named || self.ending.is_some() {
            self.end(now, Err(error));
            return;
        }
        self.machine.leave_sender(now, &error.to_string());
        self.send_messages();
        self.disconnect(now);
        (self.wants_known, self.next_session) = (false, None);
        self.session = None;
        self.corrupt = Some((now + OTHER_SENDER_TIME, error));
    }

    /// Sets the outcome and tells it to the sender.
    fn end(&mut self, now: Duration, outcome: Result<SinkOutcome>) {
        if self.ending.is_some() {
            return;
        }
        let told = outcome.as_ref().map(|outcome| outcome.score).map_err(Error::with_causes);
        let bytes_written = outcome.as_ref().map_or(0, |outcome| outcome.bytes_written);
        self.machine.finish(now, told, bytes_written);
        self.ending = Some(Ending { outcome, at: now });
    }

    /// Connects to the sender whose address is known without an announcement.
    ///
    /// # Errors
    /// As [`Driver::not_connected`].
    fn connect_if_due(&mut self, now: Duration) -> Result<()> {
        let Some(place) = self.options.known_place() else { return Ok(()) };
        if self.machine.is_joined() || self.connection.is_some() || now < self.connect_at {
            return Ok(());
        }
        // It may have become known a moment ago, and be reached over another interface.
        self.listening.look(now)?;
        // Without an address of that family, one is looked for.
        if self.listening.of(place.address).is_none() {
            return Ok(());
        }
        self.connect(now, place)
    }

    /// Begins to connect to a sender, if there is no connection.
    ///
    /// # Errors
    /// As [`Driver::not_connected`].
    fn connect(&mut self, now: Duration, place: JoinPlace) -> Result<()> {
        if self.connection.is_some() || self.connecting.is_some() {
            return Ok(());
        }
        let address = place.address;
        let scoped = self.listening.scoped(address).ok_or_else(|| self.listening.lacks(address));
        match scoped.and_then(|scoped| Connecting::begin(scoped, CONNECT_TIME)) {
            Ok(connecting) => {
                self.connecting = Some((connecting, place));
                Ok(())
            }
            Err(error) => self.not_connected(now, address, &error),
        }
    }

    /// Uses the connection that was being made, if it is there.
    ///
    /// # Errors
    /// As [`Driver::not_connected`].
    fn finish_connecting(&mut self, now: Duration) -> Result<()> {
        let polled = self.connecting.as_ref().and_then(|(connecting, _)| connecting.poll());
        let Some(polled) = polled else { return Ok(()) };
        let Some((connecting, place)) = self.connecting.take() else { return Ok(()) };
        let address = place.address;
        match polled.and_then(|()| Connection::to_sender(connecting.stream, place.opening())) {
            Ok(connection) => {
                (self.connection, self.connected_to) = (Some(connection), Some(address));
                self.machine.handle_connected(now);
                Ok(())
            }
            Err(error) => self.not_connected(now, address, &error),
        }
    }

    /// Handles that a sender cannot be reached. A joined one is evidently there, and is tried again when it must be.
    ///
    /// # Errors
    /// `Transient` when an origin has named the address, and the sender evidently cannot be reached there.
    fn not_connected(&mut self, now: Duration, address: SocketAddr, error: &Error) -> Result<()> {
        if !self.machine.is_joined() {
            let text = format!(
                "the sender cannot be reached at {} (TCP): {}",
                SenderAddress::from(address),
                error.with_causes()
            );
            self.troubles.tell(Trouble::Unreachable(address), || format!("{text}; trying again"));
            self.refusal = Some(text);
        }
        self.disconnect(now);
        self.count_unreached(address)
    }

    fn listen(&mut self, group: SocketAddr) -> Result<()> {
        let family = Family::of(group.ip());
        let is_known = self.group.as_ref().is_some_and(|(known, _)| *known == group);
        if is_known || group == discovery(family, self.options.port) {
            return Ok(());
        }
        let sockets = self.listening.of(group).ok_or_else(|| self.listening.lacks(group))?;
        self.group = Some((group, BatchSocket::new(group_socket(&sockets.place, group)?)?));
        Ok(())
    }

    fn is_over(&mut self, now: Duration) -> Result<bool> {
        if let Some(ending) = &self.ending {
            return Ok(self.acknowledged || now >= ending.at + RESULT_TIME);
        }
        if self.options.stop.load(Ordering::Relaxed) {
            self.machine.leave();
            self.send_messages();
            return Err(Error::refused("receiving was stopped early"));
        }
        if self.connection.is_none()
            && self.connecting.is_none()
            && let Some((_, error)) = self.corrupt.take_if(|(until, _)| now >= *until)
        {
            return Err(error);
        }
        if !self.is_joined {
            self.check_addresses(now)?;
        }
        // A connection alone is no success: anybody can accept one and say nothing.
        if !self.is_joined
            && let Some(give_up) = self.options.give_up
            && now >= self.joined_last + give_up
        {
            if self.unreached > 0 {
                return Err(self.unjoinable());
            }
            let others: Vec<&str> = self.machine.others().collect();
            let mut heard = self.refusal.take().map_or_else(String::new, |refusal| format!("; {refusal}"));
            if !others.is_empty() {
                heard += &format!("; casts found: {}", others.join(", "));
            }
            return Err(Error::missing(format!(
                "no sender of this image was heard within {} s{heard}",
                give_up.as_secs()
            )));
        }
        Ok(false)
    }

    /// Ends if no address of this machine can be used for long: any, or one of the sender's family.
    ///
    /// # Errors
    /// Why there is none; `Transient` when an origin has named the sender, and can be asked for the disk instead.
    fn check_addresses(&mut self, now: Duration) -> Result<()> {
        let checked = self.listening.check(now, self.options.known_sender());
        checked.map_err(|error| match self.options.told {
            Some(_) => Error::transient(error.with_causes()),
            None => error,
        })
    }

    fn progress(&self) -> ReceiveEvent {
        let statistics = self.machine.statistics();
        ReceiveEvent::Progress { chunks: statistics.done, wanted: statistics.wanted, bytes: self.bytes }
    }

    fn summary(&mut self, now: Duration) -> Result<ReceiveSummary> {
        let ending = self.ending.take().ok_or_else(|| Error::bug("the receiver ended without an outcome"))?;
        let statistics = self.machine.statistics();
        Ok(ReceiveSummary {
            outcome: ending.outcome?,
            symbols: statistics.symbols,
            repaired: statistics.repaired,
            duplicates: statistics.duplicates,
            fetched_chunks: statistics.fetched,
            rejected: statistics.rejected,
            repeated: statistics.repeated,
            duration: now.saturating_sub(self.joined_at.unwrap_or(now)),
            acknowledged: self.acknowledged,
        })
    }

    fn wait(&self, time: Duration) -> Result<()> {
        let interest = |descriptor, to_write| Interest { descriptor, to_read: true, to_write };
        let mut interests: Vec<Interest<'_>> = self.listening.interests().collect();
        if let Some((_, socket)) = &self.group {
            interests.push(interest(socket.socket.as_fd(), false));
        }
        if let Some((connecting, _)) = &self.connecting {
            let (descriptor, to_read) = (connecting.stream.as_fd(), false);
            interests.push(Interest { descriptor, to_read, to_write: true });
        }
        if let Some(connection) = &self.connection {
            interests.push(interest(connection.stream.as_fd(), connection.wants_to_write()));
        }
        wait(&self.bell, &interests, time)
    }
}

fn unusable(reason: &str) -> Error {
    Error::corrupt(format!("the sender's data cannot be used: {reason}"))
}

#[cfg(test)]
mod tests;
