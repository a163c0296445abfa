//! The keys of a joined session, and which of its datagrams arrived.
//!
//! Must never pass on a datagram whose tag is wrong, nor the same one twice.

use super::options::ReceiverStatistics;
use crate::join_key::JoinKey;
use crate::wire::format::{HEADER_BYTES, Header, MessageType};
use crate::wire::join::SessionKeys;
use crate::wire::protection::{DatagramKey, Freshness, ReplayWindow};

/// Words of the replay window: 8,388,608 datagrams, twice as many as can be ahead of the number that the sender has named. Only
/// the parts that are used take memory.
const WINDOW_WORDS: usize = 1 << 17;

/// What protects a session.
pub(super) struct Guard {
    session_key: [u8; 32],
    sender_key: DatagramKey,
    announce_key: DatagramKey,
    own_key: DatagramKey,
    window: ReplayWindow,
}

impl Guard {
    /// Makes the guard of a session whose sender has reached this packet number.
    pub(super) fn new(keys: &SessionKeys, join_key: Option<&JoinKey>, packet: u64) -> Self {
        let of_announcements = join_key.map_or(keys.sender, JoinKey::of_announcements);
        Self {
            session_key: keys.sender,
            sender_key: DatagramKey::of_sender(&keys.sender, join_key.is_some()),
            announce_key: DatagramKey::of_announcements(of_announcements, join_key.is_some()),
            own_key: DatagramKey::of_receiver(&keys.receiver, join_key.is_some()),
            window: ReplayWindow::starting_at(WINDOW_WORDS, packet),
        }
    }

    /// Returns whether these are the keys of this session.
    pub(super) fn is_of(&self, keys: &SessionKeys) -> bool {
        self.session_key == keys.sender
    }

    /// Handles that the same session was joined again.
    pub(super) fn rejoined(&mut self, keys: &SessionKeys, join_key: Option<&JoinKey>, packet: u64) {
        self.own_key = DatagramKey::of_receiver(&keys.receiver, join_key.is_some());
        self.reached(packet);
    }

    /// Handles that the sender has reached this packet number.
    pub(super) fn reached(&mut self, packet: u64) {
        self.window.reached(packet);
    }

    /// Verifies a datagram of the sender, and counts it if it is rejected. Returns the bytes after its header. An old one may only
    /// be used for what does not depend on time.
    pub(super) fn open<'a>(
        &mut self,
        header: &Header,
        datagram: &'a [u8],
        scratch: &'a mut Vec<u8>,
        statistics: &mut ReceiverStatistics,
    ) -> Option<(Freshness, &'a [u8])> {
        let is_announcement = header.message == MessageType::Announce;
        let freshness = self.window.freshness(header.packet);
        match freshness {
            Freshness::New => {}
            // A symbol is right whenever it arrives.
            Freshness::Old if header.message == MessageType::Data => {}
            Freshness::Old | Freshness::Repeated => {
                // An announcement is sent to two groups.
                statistics.repeated += u64::from(!is_announcement);
                return None;
            }
            Freshness::Impossible => {
                statistics.rejected += 1;
                return None;
            }
        }
        let key = if is_announcement { &self.announce_key } else { &self.sender_key };
        let opened = key.open(datagram, scratch).and_then(|opened| opened.get(HEADER_BYTES..));
        match opened {
            Some(_) if freshness == Freshness::New => self.window.mark(header.packet),
            Some(_) => {}
            None => statistics.rejected += 1,
        }
        Some((freshness, opened?))
    }

    /// Protects a datagram of this receiver.
    pub(super) fn seal(&self, datagram: &mut Vec<u8>) {
        self.own_key.seal(datagram, 0);
    }
}
