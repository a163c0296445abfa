//! What a receiver says over the reliable channel, and what it hears there.
//!
//! A joined receiver goes on without a connection, and connects again when it has something to say that datagrams cannot: a request for a
//! corrupt chunk, or its result. It also does when nothing has arrived for long, because the sender may have given its place to another.

use std::borrow::Cow;
use std::time::Duration;

use platter_image::Score;

use super::fetching::Question;
use super::machine::{DOUBT, Phase, Receiver, SENDER_SILENCE};
use super::options::ReceiverEvent;
use super::wants::Wants;
use crate::session::SessionSecret;
use crate::wire::channel::Channel;
use crate::wire::format::MessageType;
use crate::wire::join::{JoinMessage, ReceiverResult};
use crate::wire::resume::Resume;

impl Receiver {
    /// Requests the next bytes of the chunk that is being fetched.
    pub(super) fn fetch(&mut self, now: Duration) {
        let Some(session) = self.session.as_ref().filter(|_| self.can_speak()) else { return };
        // Other chunks may fill all buffers, so only those that the sink has count.
        let has_room = self.delivered < self.options.buffer_chunks;
        let question = self.fetching.next_question(now, has_room, |chunk| session.table.length(chunk));
        if let Some(question) = question {
            let Question { chunk, offset, length } = question;
            self.say(&JoinMessage::Fetch { chunk, offset, length });
        }
    }

    fn handle_piece(&mut self, now: Duration, chunk: u32, offset: u32, bytes: &[u8]) {
        self.heard_at = now;
        self.link.answered();
        if let Some((chunk, bytes)) = self.fetching.take(chunk, offset, bytes) {
            self.statistics.fetched += 1;
            self.deliver(now, chunk, bytes);
        }
        self.fetch(now);
    }

    /// Handles that the reliable channel is connected.
    pub fn handle_connected(&mut self, now: Duration) {
        self.channel = None;
        if self.phase == Phase::Joined {
            self.link.connected(now);
        } else {
            self.phase = Phase::Joining;
            self.heard_at = now;
        }
        if self.options.join_key.is_none() {
            self.introduce(now);
            return;
        }
        self.connections += 1;
        self.nonce =
            *blake3::keyed_hash(&self.options.nonce_seed, &self.connections.to_le_bytes()).as_bytes();
        self.say(&JoinMessage::Greeting { nonce: self.nonce });
    }

    /// Handles the answer to our greeting: from here on, both sides encrypt.
    fn handle_greeting(&mut self, now: Duration, sender_nonce: &[u8; 32]) {
        let Some(join_key) = &self.options.join_key else { return };
        self.channel = Some(Channel::of_receiver(&join_key.of_connection(&self.nonce, sender_nonce)));
        self.introduce(now);
    }

    /// Says who this is: a receiver that goes on, or one that asks to join.
    fn introduce(&mut self, now: Duration) {
        if self.phase == Phase::Joined {
            self.resume(now);
        } else {
            self.ask_to_join();
        }
    }

    /// Goes on over a new connection, and says what there is to say.
    fn resume(&mut self, now: Duration) {
        let Some(header) = self.next_header(now, MessageType::Resume) else { return };
        let Some(session) = &self.session else { return };
        let mut datagram = Vec::new();
        Resume { receiver: session.receiver }.write(&header, &mut datagram);
        session.guard.seal(&mut datagram);
        self.say(&JoinMessage::Resume { datagram });
        self.link.resumed();
        self.doubts_at = now + DOUBT;
        self.fetch(now);
        self.send_result();
    }

    fn ask_to_join(&mut self) {
        let buffer_chunks = u32::try_from(self.free()).unwrap_or(u32::MAX).max(1);
        let (wanted, hello) = (self.options.wanted.clone(), self.options.hello.clone());
        self.say(&JoinMessage::Join { wanted, hello, buffer_chunks });
    }

    /// Returns whether messages of a joined receiver can be sent.
    fn can_speak(&self) -> bool {
        self.phase == Phase::Joined && self.link.is_open()
    }

    /// Sends a message over the reliable channel.
    fn say(&mut self, message: &JoinMessage) {
        let bytes = message.to_bytes();
        self.messages.push_back(match &mut self.channel {
            Some(channel) => channel.seal(&bytes),
            None => bytes,
        });
    }

    /// Handles that the reliable channel ended or could not be connected. A joined receiver goes on without it, another one searches
    /// again.
    pub fn handle_disconnected(&mut self, now: Duration) {
        self.channel = None;
        self.messages.clear();
        self.fetching.forget_question();
        if self.phase == Phase::Joined {
            self.link.ended(now);
            return;
        }
        self.senders.fail(now);
        self.phase = Phase::Searching;
    }

    /// Handles a message (without its length) of the reliable channel.
    pub fn handle_message(&mut self, now: Duration, message: &[u8]) {
        let opened = match &mut self.channel {
            Some(channel) => channel.open(message).map(Cow::Owned),
            None => Some(Cow::Borrowed(message)),
        };
        let Some(opened) = opened else {
            self.statistics.rejected += 1;
            let reason = "it does not have the join key, or its messages were changed on the way";
            self.events.push_back(ReceiverEvent::Refused(reason.into()));
            return;
        };
        let is_open = self.channel.is_some() || self.options.join_key.is_none();
        match JoinMessage::parse(&opened) {
            Some(JoinMessage::Greeting { nonce }) if self.awaits_greeting() && !is_open => {
                self.handle_greeting(now, &nonce);
            }
            Some(JoinMessage::Refused { reason }) => self.events.push_back(ReceiverEvent::Refused(reason)),
            // Everything else has to be encrypted, if there is a join key.
            _ if !is_open => self.statistics.rejected += 1,
            Some(JoinMessage::Welcome { receiver, keys, packet, mut announce })
                if self.phase == Phase::Joining =>
            {
                if self.options.join_key.is_none() {
                    announce.secret = SessionSecret::default();
                }
                self.handle_welcome(now, receiver, &keys, packet, *announce);
            }
            Some(JoinMessage::Piece { chunk, offset, bytes }) if self.phase == Phase::Joined => {
                self.handle_piece(now, chunk, offset, &bytes);
            }
            Some(JoinMessage::ResultOk) => {
                self.is_acknowledged = true;
                self.link.answered();
                self.events.push_back(ReceiverEvent::Acknowledged);
            }
            Some(JoinMessage::Gone) if self.phase == Phase::Joined => {
                self.phase = Phase::Connecting;
                self.senders.forget();
                self.events.push_back(ReceiverEvent::Forgotten);
            }
            _ => {}
        }
    }

    fn awaits_greeting(&self) -> bool {
        self.phase == Phase::Joining || (self.phase == Phase::Joined && self.link.awaits_greeting())
    }

    /// Connects again if there is something to say, and ends a connection over which the sender does not greet.
    pub(super) fn tend_link(&mut self, now: Duration) {
        if self.link.is_ignored(now, SENDER_SILENCE) {
            self.events.push_back(ReceiverEvent::Refused("it does not answer".into()));
        } else if self.has_to_say(now) && self.link.connects(now) {
            self.events.push_back(ReceiverEvent::Reconnect);
        }
    }

    /// Returns when to call [`Receiver::tend_link`].
    pub(super) fn link_deadline(&self) -> Option<Duration> {
        let doubts_at = if self.is_incomplete() { self.doubts_at } else { Duration::MAX };
        let says_at = if self.has_to_say(Duration::ZERO) { Duration::ZERO } else { doubts_at };
        self.link.next_deadline(says_at, SENDER_SILENCE)
    }

    fn has_to_say(&self, now: Duration) -> bool {
        match self.result {
            Some(_) => !self.is_acknowledged,
            None => !self.fetching.is_empty() || (self.is_incomplete() && now >= self.doubts_at),
        }
    }

    fn is_incomplete(&self) -> bool {
        let is_incomplete = |wants: &Wants| wants.done < wants.wanted || wants.wanted == 0;
        self.result.is_none() && self.session.as_ref().is_some_and(|session| is_incomplete(&session.wants))
    }

    /// Ends the cast with the verified score or the reason of a failure. The result is sent to the sender, and again over each
    /// later connection, until the sender confirms it.
    pub fn finish(&mut self, now: Duration, outcome: Result<Score, String>, bytes_written: u64) {
        self.result = Some(self.result_of(now, outcome, bytes_written));
        self.send_result();
    }

    /// Ends the session, because the driver cannot receive from its group. The driver closes the reliable channel and calls
    /// [`Receiver::handle_disconnected`]. The sender is then left alone for a while, as if it had refused the join.
    pub fn forgo(&mut self) {
        self.phase = Phase::Connecting;
    }

    /// Tells the sender that this receiver ends without a result, if there is a connection.
    pub fn leave(&mut self) {
        if self.can_speak() && self.result.is_none() {
            self.say(&JoinMessage::Leave);
        }
    }

    /// Leaves the joined sender, because its data is corrupt: it may not be the sender that it claims to be. The driver sends the
    /// messages, closes the reliable channel and calls [`Receiver::handle_disconnected`]. Another sender begins a new session.
    pub fn leave_sender(&mut self, now: Duration, reason: &str) {
        let result = self.result_of(now, Err(reason.to_owned()), 0);
        if self.can_speak() {
            self.say(&JoinMessage::Result { result });
        }
        self.senders.distrust(now);
        self.session = None;
        self.phase = Phase::Connecting;
    }

    fn result_of(&self, now: Duration, outcome: Result<Score, String>, bytes_written: u64) -> ReceiverResult {
        ReceiverResult {
            outcome,
            bytes_written,
            duration_ms: now.saturating_sub(self.joined_at.unwrap_or(now)).as_millis() as u64,
            symbols: self.statistics.symbols,
            repaired: self.statistics.repaired,
            duplicates: self.statistics.duplicates,
        }
    }

    pub(super) fn send_result(&mut self) {
        if let (true, Some(result)) = (self.can_speak(), self.result.clone()) {
            self.say(&JoinMessage::Result { result });
        }
    }
}
