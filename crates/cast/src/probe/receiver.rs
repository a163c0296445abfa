//! A receiver of a probe: joins, sends a few datagrams, counts what arrives, and reports the counts.
//!
//! Must never count a datagram without the sender's key, nor answer one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::series::{ProbeCounts, ProbeSent, ProbeSeries, SERIES, Tally, cast_packet_bytes};
use super::wire::{ProbeDatagram, ProbeMessage, SMALL_BYTES};
use crate::family::{self, Family};
use crate::join_key::JoinKey;
use crate::wire::channel::Channel;
use crate::wire::join::JoinMessage;
use crate::wire::protection::DatagramKey;

/// Datagrams that it sends, and the time between two of them.
const FEEDBACKS: u32 = 10;
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(50);

/// The options of a probe's receiver.
pub struct ProbeReceiverOptions {
    /// The secret that the sender must have, too.
    pub join_key: Option<JoinKey>,
    /// Random bytes that no other receiver uses.
    pub nonce: [u8; 32],
    /// The name of this machine.
    pub name: String,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeStep {
    /// Receive from this group.
    Listen(SocketAddr),
    /// The sender has sent all of this. Answer with [`ProbeReceiver::report`].
    Report(ProbeSent),
    /// The sender does not take this receiver.
    Refused(String),
}

/// The session of the sender.
struct Session {
    number: u32,
    receiver: u32,
    key: DatagramKey,
    family: Family,
    feedback: SocketAddr,
    sent: u32,
    send_at: Duration,
}

/// The receiver's machine.
pub struct ProbeReceiver {
    options: ProbeReceiverOptions,
    port: u16,
    channel: Option<Channel>,
    session: Option<Session>,
    tallies: [Tally; SERIES],
    packet_bytes_max: u16,
    messages: VecDeque<Vec<u8>>,
    scratch: Vec<u8>,
}

impl ProbeReceiver {
    /// Waits for an announcement or a connection.
    pub fn new(options: ProbeReceiverOptions) -> Self {
        Self {
            options,
            port: 0,
            channel: None,
            session: None,
            tallies: Default::default(),
            packet_bytes_max: 0,
            messages: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Returns the join address in an announcement. Without a join key, nothing proves it.
    pub fn announced(&self, datagram: &[u8]) -> Option<SocketAddr> {
        let mut scratch = Vec::new();
        let opened = match &self.options.join_key {
            None => datagram,
            Some(key) => {
                DatagramKey::of_announcements(key.of_announcements(), true).open(datagram, &mut scratch)?
            }
        };
        ProbeDatagram::parse(opened)?.join
    }

    /// Handles that the reliable channel is connected. The port is that of the socket for datagrams to this machine.
    pub fn handle_connected(&mut self, port: u16) {
        self.port = port;
        match &self.options.join_key {
            None => self.begin(),
            Some(_) => {
                self.messages.push_back(JoinMessage::Greeting { nonce: self.options.nonce }.to_bytes());
            }
        }
    }

    fn begin(&mut self) {
        self.say(&ProbeMessage::Begin { port: self.port, name: self.options.name.clone() });
    }

    fn say(&mut self, message: &ProbeMessage) {
        let bytes = message.to_bytes();
        self.messages.push_back(match &mut self.channel {
            Some(channel) => channel.seal(&bytes),
            None => bytes,
        });
    }

    /// Handles a message (without its length) of the reliable channel.
    pub fn handle_message(&mut self, now: Duration, message: &[u8]) -> Option<ProbeStep> {
        let opened = match &mut self.channel {
            Some(channel) => channel.open(message).map(Cow::Owned),
            None => Some(Cow::Borrowed(message)),
        };
        let Some(opened) = opened else {
            return Some(ProbeStep::Refused("it has another key file".into()));
        };
        let is_open = self.channel.is_some() || self.options.join_key.is_none();
        match (JoinMessage::parse(&opened), ProbeMessage::parse(&opened)) {
            (Some(JoinMessage::Greeting { nonce }), _) if !is_open => {
                let key = self.options.join_key.as_ref()?;
                self.channel = Some(Channel::of_receiver(&key.of_connection(&self.options.nonce, &nonce)));
                self.begin();
                None
            }
            (Some(JoinMessage::Refused { reason }), _) => Some(ProbeStep::Refused(reason)),
            (_, Some(ProbeMessage::Welcome { session, key, receiver, group, feedback }))
                if is_open && self.session.is_none() =>
            {
                if let Err(reason) = family::check(group, feedback, feedback) {
                    return Some(ProbeStep::Refused(reason));
                }
                let key = DatagramKey::of_announcements(key, self.options.join_key.is_some());
                let (number, family) = (session, Family::of(group.ip()));
                self.session =
                    Some(Session { number, receiver, key, family, feedback, sent: 0, send_at: now });
                Some(ProbeStep::Listen(group))
            }
            (_, Some(ProbeMessage::Sent(sent))) if is_open && self.session.is_some() => {
                Some(ProbeStep::Report(ProbeSent { family: self.family(), ..sent }))
            }
            _ => None,
        }
    }

    /// The family of the session's group.
    fn family(&self) -> Family {
        self.session.as_ref().map_or_else(Family::default, |session| session.family)
    }

    /// Counts a datagram.
    pub fn handle_datagram(&mut self, datagram: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if let Some(parsed) = self.open(datagram, &mut scratch) {
            self.tallies[parsed.series as usize].add(parsed.number);
            if matches!(parsed.series, ProbeSeries::Lengths | ProbeSeries::Slow | ProbeSeries::Full) {
                let bytes = (datagram.len() + self.family().header_bytes()) as u16;
                self.packet_bytes_max = self.packet_bytes_max.max(bytes);
            }
        }
        self.scratch = scratch;
    }

    /// Returns a datagram of the session's sender.
    fn open(&self, datagram: &[u8], scratch: &mut Vec<u8>) -> Option<ProbeDatagram> {
        let session = self.session.as_ref()?;
        let key = self.options.join_key.as_ref();
        let announce_key = key.map(|key| DatagramKey::of_announcements(key.of_announcements(), true));
        let parsed = ProbeDatagram::parse(datagram).filter(|it| it.session == session.number)?;
        let key = match parsed.series {
            ProbeSeries::Announcement => announce_key.as_ref().unwrap_or(&session.key),
            _ => &session.key,
        };
        key.open(datagram, scratch).and_then(ProbeDatagram::parse)
    }

    /// Returns the next datagram to the sender that is due, and its address.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(SocketAddr, Vec<u8>)> {
        let session = self.session.as_mut().filter(|it| it.sent < FEEDBACKS && now >= it.send_at)?;
        let datagram = ProbeDatagram {
            session: session.number,
            packet: u64::from(session.sent) + 1,
            series: ProbeSeries::Feedback,
            number: session.sent,
            join: None,
            receiver: session.receiver,
        };
        session.sent += 1;
        session.send_at = now + FEEDBACK_INTERVAL;
        let mut bytes = Vec::new();
        datagram.append(&mut bytes, SMALL_BYTES);
        session.key.seal(&mut bytes, 0);
        Some((session.feedback, bytes))
    }

    /// Reports the counts to the sender, and returns them.
    pub fn report(&mut self, has_querier: Option<bool>) -> ProbeCounts {
        let arrivals = std::array::from_fn(|series| self.tallies[series].arrivals);
        let packet_bytes_max = self.packet_bytes_max.min(cast_packet_bytes(self.family()));
        let counts = ProbeCounts { arrivals, packet_bytes_max, has_querier };
        self.say(&ProbeMessage::Counts(counts));
        counts
    }

    /// Returns the next message for the reliable channel (with its length).
    pub fn poll_message(&mut self) -> Option<Vec<u8>> {
        self.messages.pop_front()
    }
}
