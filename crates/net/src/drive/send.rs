//! The sender's loop.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Queue, Sender as QueueEnd, TryRecvError, bounded};
use platter_cast::{Destination, Family, Sender, SenderOptions, SessionDescription, Transmit};
use platter_image::{Error, ErrorKind, IoContext, Result};

use crate::batch::BatchSocket;
use crate::devices::{CastPlace, discovery, place_of, places};
use crate::group::{self, Group};
use crate::joins::{Host, Joins, Need};
use crate::multicast_socket::sender_socket;
use crate::options::{ChunkSource, JoinPlace, SendEvent, SendOptions, SendSummary};
use crate::ports::Inbox;
use crate::wake::{Bell, Interest, wait};

/// Threads that read chunks; two hide the latency of one disk.
const READERS: usize = 2;
/// The most chunks requested or read but not taken yet; the machine never requests more than 8.
const READ_QUEUE: usize = 16;
/// The most batches sent before incoming data is checked.
const BATCHES_AT_ONCE: usize = 4;
/// The most datagrams handled before connections are read, each of which costs a system call.
const DATAGRAMS_AT_ONCE: usize = 256;
/// How often the status is reported to the caller.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// The same when a receiver has joined or ended: a report of many receivers takes longer than a batch.
const CHANGE_INTERVAL: Duration = Duration::from_millis(25);
/// The longest sleep, so that a stop request is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// How long connections stay open at the end, so that the last results are acknowledged.
const FAREWELL: Duration = Duration::from_millis(200);

/// How long a sender waits until the kernel has found no duplicate of a new IPv6 address: it takes a second or two.
const ADDRESS_TIME: Duration = Duration::from_secs(5);

type Supplied = (u32, Result<Arc<[u8]>>);

/// Casts an image. Returns when every receiver has ended and the linger time is over.
///
/// # Errors
/// `Refused` when the options or the description are invalid; `Missing` when no receiver joined in time;
/// `Transient` when its port fails; `Io`; errors of the chunk source. Failed receivers are not an error; the summary lists them.
pub fn send(
    options: &SendOptions,
    description: &SessionDescription,
    chunks: &dyn ChunkSource,
    mut on_event: impl FnMut(SendEvent),
) -> Result<SendSummary> {
    let mut driver = Driver::open(options, description)?;
    let announce = driver.machine.announce();
    let (join, group, session) = (announce.join, announce.group, announce.session);
    on_event(SendEvent::Ready { place: JoinPlace::of_session(join, &session), group });
    let (ask, asked) = bounded::<u32>(READ_QUEUE);
    let (supply, supplied) = bounded::<Supplied>(READ_QUEUE);
    let bell = driver.bell.clone();
    thread::scope(|scope| {
        for _ in 0..READERS {
            let (asked, supply, bell) = (asked.clone(), supply.clone(), bell.clone());
            let read = move || read_chunks(chunks, &asked, &supply, &bell);
            thread::Builder::new().spawn_scoped(scope, read).context(|| "starting a thread".into())?;
        }
        // Dropping `ask` at the end of this closure ends the readers.
        let ask = ask;
        driver.run((options, chunks), &ask, &supplied, &mut on_event)
    })?;
    driver.summary()
}

fn read_chunks(chunks: &dyn ChunkSource, asked: &Queue<u32>, supply: &QueueEnd<Supplied>, bell: &Bell) {
    while let Ok(index) = asked.recv() {
        if supply.send((index, chunks.read(index))).is_err() {
            return;
        }
        bell.ring();
    }
}

impl Host for Sender {
    fn handle_message(&mut self, now: Duration, connection: u64, from: IpAddr, message: &[u8]) -> bool {
        self.handle_message(now, connection, from, message)
    }

    fn refuse(&mut self, connection: u64, reason: &str) {
        self.refuse(connection, reason);
    }

    fn handle_disconnect(&mut self, connection: u64) {
        self.handle_disconnect(connection);
    }

    fn has_joined(&self, connection: u64) -> bool {
        self.has_joined(connection)
    }

    fn need(&self, connection: u64) -> Need {
        if self.is_asked(connection) { Need::Answer } else { Need::Nothing }
    }
}

struct Driver {
    machine: Sender,
    /// Sends. What arrives is in the inbox.
    socket: BatchSocket,
    inbox: Inbox,
    joins: Joins,
    bell: Bell,
    start: Instant,
    transmit: Transmit,
    /// Offset in `transmit` up to which it was sent; `None` if all was sent.
    unsent: Option<usize>,
    group: SocketAddr,
    discovery: SocketAddr,
}

impl Driver {
    fn open(options: &SendOptions, description: &SessionDescription) -> Result<Self> {
        let seed = random_seed()?;
        let Addresses { place, group, discovery } = addresses(options, &seed)?;
        let port = options.ports.at(&place, options.join_port)?;
        let socket = BatchSocket::new(sender_socket(&place)?)?;
        let machine_options = SenderOptions {
            seed,
            join_key: options.join_key.clone(),
            rate_bits_per_second: options.rate_bits_per_second,
            group,
            join: port.join,
            feedback: port.feedback,
            wait_receivers: options.wait_receivers,
            wait: options.wait,
            linger: options.linger,
            give_up: options.give_up,
            is_unlisted: options.is_unlisted,
        };
        let machine = Sender::new(machine_options, description)?;
        let (start, bell) = (Instant::now(), Bell::new()?);
        let inbox = port.register(machine.announce().session.short(), &bell)?;
        Ok(Self {
            machine,
            socket,
            joins: Joins::over(inbox.connections.clone(), start, options.connections_max),
            inbox,
            bell,
            start,
            transmit: Transmit::new(),
            unsent: None,
            group: place.scoped(group),
            discovery: place.scoped(discovery),
        })
    }

    fn run(
        &mut self,
        (options, chunks): (&SendOptions, &dyn ChunkSource),
        ask: &QueueEnd<u32>,
        supplied: &Queue<Supplied>,
        on_event: &mut dyn FnMut(SendEvent),
    ) -> Result<()> {
        let (mut told_at, mut has_changed) = (Duration::ZERO, false);
        loop {
            let now = self.start.elapsed();
            self.take_feedback(now)?;
            self.take_chunks(supplied)?;
            self.machine.set_rate(options.control.rate(options.rate_bits_per_second));
            while let Some(index) = self.machine.poll_chunk_needed() {
                ask.try_send(index).map_err(|_| Error::bug("the queue of chunks to read is full"))?;
            }
            let more = self.send_batches(now)?;
            self.send_messages();
            has_changed |= self.machine.take_changed();
            let interval = if has_changed { CHANGE_INTERVAL } else { STATUS_INTERVAL };
            if now >= told_at + interval {
                (told_at, has_changed) = (now, false);
                on_event(self.status());
                if !self.machine.progress().started {
                    chunks.check()?;
                }
            }
            let is_over = self.machine.is_finished(now) && options.control.end();
            if is_over || options.stop.load(Ordering::Relaxed) {
                if has_changed {
                    on_event(self.status());
                }
                return self.farewell();
            }
            let sleep = if more || self.inbox.has_more() {
                Duration::ZERO
            } else {
                self.machine.next_deadline(now).saturating_sub(self.start.elapsed())
            };
            if sleep > Duration::ZERO || self.unsent.is_some() {
                self.wait(sleep.min(SLEEP_MAX))?;
            }
        }
    }

    fn status(&self) -> SendEvent {
        SendEvent::Status { receivers: self.machine.receivers(), progress: self.machine.progress() }
    }

    fn take_feedback(&mut self, now: Duration) -> Result<()> {
        let machine = &mut self.machine;
        self.inbox.receive(DATAGRAMS_AT_ONCE, |datagram| machine.handle_datagram(now, datagram))?;
        self.joins.receive(now, machine);
        Ok(())
    }

    fn take_chunks(&mut self, supplied: &Queue<Supplied>) -> Result<()> {
        loop {
            match supplied.try_recv() {
                Ok((index, bytes)) => {
                    let bytes =
                        bytes.map_err(|error| error.within(format!("reading chunk {index} to send it")))?;
                    self.machine.handle_chunk(index, bytes)?;
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::bug("the threads that read chunks have ended"));
                }
            }
        }
    }

    /// Sends what is due. Returns `true` if there is more to send now.
    fn send_batches(&mut self, now: Duration) -> Result<bool> {
        for _ in 0..BATCHES_AT_ONCE {
            if self.unsent.is_none() {
                if !self.machine.poll_transmit(now, &mut self.transmit) {
                    return Ok(false);
                }
                self.unsent = Some(0);
            }
            let from = self.unsent.unwrap_or(0);
            let reached =
                self.socket.send(self.group, &self.transmit.bytes, self.transmit.segment_bytes, from)?;
            if reached < self.transmit.bytes.len() {
                self.unsent = Some(reached);
                return Ok(false);
            }
            self.unsent = None;
            if self.transmit.to == Destination::GroupAndDiscovery && self.discovery != self.group {
                self.socket.send(self.discovery, &self.transmit.bytes, self.transmit.segment_bytes, 0)?;
            }
        }
        Ok(true)
    }

    fn send_messages(&mut self) {
        while let Some((connection, message)) = self.machine.poll_message() {
            self.joins.send(&mut self.machine, connection, &message);
        }
        while let Some(connection) = self.machine.poll_close() {
            self.joins.close(&mut self.machine, connection);
        }
    }

    fn wait(&self, time: Duration) -> Result<()> {
        let socket = Interest {
            descriptor: self.socket.socket.as_fd(),
            to_read: false,
            to_write: self.unsent.is_some(),
        };
        let interests: Vec<_> = std::iter::once(socket).chain(self.joins.interests()).collect();
        let time = if self.unsent.is_some() { time.max(Duration::from_millis(1)) } else { time };
        wait(&self.bell, &interests, time)
    }

    /// Lets the last answers be sent.
    fn farewell(&mut self) -> Result<()> {
        self.machine.end_joins();
        let until = self.start.elapsed() + FAREWELL;
        while !self.joins.is_empty() && self.start.elapsed() < until {
            let now = self.start.elapsed();
            self.take_feedback(now)?;
            self.send_messages();
            if !self.inbox.has_more() {
                self.wait(Duration::from_millis(10))?;
            }
        }
        Ok(())
    }

    fn summary(&self) -> Result<SendSummary> {
        let receivers = self.machine.receivers();
        if receivers.is_empty() {
            let waited = self.start.elapsed().as_secs();
            return Err(Error::missing(format!("no receiver joined within {waited} s")));
        }
        let duration = self.machine.times().map_or(Duration::ZERO, |(start, end)| end.saturating_sub(start));
        Ok(SendSummary { receivers, progress: self.machine.progress(), duration })
    }
}

pub(crate) fn random_seed() -> Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)
        .map_err(std::io::Error::from)
        .context(|| "generating a random session id".into())?;
    Ok(seed)
}

/// Where a sender is, and where it sends to.
pub(crate) struct Addresses {
    pub(crate) place: CastPlace,
    pub(crate) group: SocketAddr,
    pub(crate) discovery: SocketAddr,
}

/// Decides family, place and group of a cast.
///
/// # Errors
/// `Refused` when there is no such interface, or no address of that family.
pub(crate) fn addresses(options: &SendOptions, seed: &[u8; 32]) -> Result<Addresses> {
    let chosen = options.group.map(Group::address);
    if let Some(group) = chosen {
        group::check(group)?;
    }
    let family = chosen.map(Family::of).or(options.family);
    if family != options.family.or(family) {
        return Err(Error::refused("the group is of another family than the cast"));
    }
    let interface = options.interface.as_deref();
    let since = Instant::now();
    let place = loop {
        let found = match family {
            Some(family) => place_of(family, interface),
            None => places(interface).map(|mut places| places.remove(0)),
        };
        match found {
            // The kernel is not sure of its address yet.
            Err(error) if error.kind() == ErrorKind::Transient && since.elapsed() < ADDRESS_TIME => {
                thread::sleep(SLEEP_MAX);
            }
            found => break found?,
        }
    };
    let group = match chosen {
        Some(group) => SocketAddr::new(group, options.port),
        None => group::of_seed(place.family(), seed, options.port),
    };
    Ok(Addresses { discovery: discovery(place.family(), options.port), group, place })
}
