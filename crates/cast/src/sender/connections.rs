//! What is said over the connections of the reliable channel.
//!
//! Owns the encryption of each of them, if there is a join key, and what waits to be sent. Must never say anything in clear over an
//! encrypted connection.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use crate::join_key::JoinKey;
use crate::wire::channel::Channel;
use crate::wire::join::JoinMessage;

/// The connections of a sender, by the driver's numbers.
pub(super) struct Connections {
    join_key: Option<JoinKey>,
    /// From which the nonces are derived, and the number of those so far.
    nonces: [u8; 32],
    greetings: u64,
    /// The encrypted connections, if there is a join key.
    channels: HashMap<u64, Channel>,
    messages: VecDeque<(u64, Vec<u8>)>,
    closing: VecDeque<u64>,
}

impl Connections {
    /// Starts without connections. `nonces` is never used again with the same join key.
    pub(super) fn new(join_key: Option<JoinKey>, nonces: [u8; 32]) -> Self {
        Self {
            join_key,
            nonces,
            greetings: 0,
            channels: HashMap::new(),
            messages: VecDeque::new(),
            closing: VecDeque::new(),
        }
    }

    /// Returns whether a message over this connection is protected as it must be.
    pub(super) fn is_open(&self, connection: u64) -> bool {
        self.join_key.is_none() || self.is_encrypted(connection)
    }

    pub(super) fn is_encrypted(&self, connection: u64) -> bool {
        self.channels.contains_key(&connection)
    }

    /// Returns a message, decrypted. `None` if it is not the other side's next one.
    pub(super) fn open<'a>(&mut self, connection: u64, message: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        match self.channels.get_mut(&connection) {
            Some(channel) => channel.open(message).map(Cow::Owned),
            None => Some(Cow::Borrowed(message)),
        }
    }

    /// Answers a receiver that has a join key. What follows on this connection is encrypted. Returns a refusal if there is no key here.
    pub(super) fn greet(&mut self, connection: u64, receiver_nonce: &[u8; 32]) -> Option<JoinMessage> {
        let Some(join_key) = &self.join_key else {
            let reason = "this cast has no key file, so it is not encrypted: join it without --key-file";
            return Some(JoinMessage::Refused { reason: reason.into() });
        };
        self.greetings += 1;
        let nonce = *blake3::keyed_hash(&self.nonces, &self.greetings.to_le_bytes()).as_bytes();
        let keys = join_key.of_connection(receiver_nonce, &nonce);
        self.messages.push_back((connection, JoinMessage::Greeting { nonce }.to_bytes()));
        self.channels.insert(connection, Channel::of_sender(&keys));
        None
    }

    /// Says something over a connection.
    pub(super) fn say(&mut self, connection: u64, message: &JoinMessage) {
        let bytes = message.to_bytes();
        let bytes = match self.channels.get_mut(&connection) {
            Some(channel) => channel.seal(&bytes),
            None => bytes,
        };
        self.messages.push_back((connection, bytes));
    }

    /// Has the driver close a connection.
    pub(super) fn close(&mut self, connection: u64) {
        self.closing.push_back(connection);
    }

    /// Handles that a connection has ended.
    pub(super) fn forget(&mut self, connection: u64) {
        self.channels.remove(&connection);
    }

    pub(super) fn poll_message(&mut self) -> Option<(u64, Vec<u8>)> {
        self.messages.pop_front()
    }

    pub(super) fn poll_close(&mut self) -> Option<u64> {
        self.closing.pop_front()
    }
}
