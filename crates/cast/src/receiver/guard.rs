//! The keys of a joined session, and which of its datagrams arrived.
//!
//! Must never pass on a datagram whose tag is wrong, nor the same one twice.

use super::options::ReceiverStatistics;
use crate::join_key::JoinKey;
use crate::marks::Mark;
use crate::wire::announce::Announce;
use crate::wire::format::{HEADER_BYTES, Header, MessageType, Reader};
use crate::wire::join::SessionKeys;
use crate::wire::protection::{DatagramKey, Freshness, ReplayWindow};

/// Words of the replay window: 8,388,608 datagrams, twice as many as can be ahead of the number that the sender is known to have reached. Only
/// the parts that are used take memory.
const WINDOW_WORDS: usize = 1 << 17;

/// What protects a session.
pub(super) struct Guard {
    session_key: [u8; 32],
    sender_key: DatagramKey,
    announce_key: DatagramKey,
    own_key: DatagramKey,
    window: ReplayWindow,
    /// The last packet that was sent before the session was joined. Whoever has recorded earlier ones may repeat them.
    joined_packet: u64,
    /// The last mark of the sender that is known.
    mark: Mark,
}

impl Guard {
    /// Makes the guard of a session whose sender has reached this packet number and passed this mark.
    pub(super) fn new(keys: &SessionKeys, join_key: Option<&JoinKey>, packet: u64, mark: Mark) -> Self {
        let of_announcements = join_key.map_or(keys.sender, JoinKey::of_announcements);
        let mut guard = Self {
            session_key: keys.sender,
            sender_key: DatagramKey::of_sender(&keys.sender, join_key.is_some()),
            announce_key: DatagramKey::of_announcements(of_announcements, join_key.is_some()),
            own_key: DatagramKey::of_receiver(&keys.receiver, join_key.is_some()),
            window: ReplayWindow::starting_at(WINDOW_WORDS, packet),
            joined_packet: packet,
            mark,
        };
        guard.reached(packet);
        guard
    }

    /// Returns whether these are the keys of this session.
    pub(super) fn is_of(&self, keys: &SessionKeys) -> bool {
        self.session_key == keys.sender
    }

    /// Handles that the same session was joined again.
    pub(super) fn rejoined(
        &mut self,
        keys: &SessionKeys,
        join_key: Option<&JoinKey>,
        packet: u64,
        mark: Mark,
    ) {
        self.own_key = DatagramKey::of_receiver(&keys.receiver, join_key.is_some());
        (self.mark, self.joined_packet) = (mark, packet);
        self.reached(packet);
    }

    /// Handles that the sender has reached this packet number.
    fn reached(&mut self, packet: u64) {
        self.window.reached(packet);
        if self.mark.is_last() {
            self.window.judge_by_highest();
        }
    }

    /// Takes the mark in an announcement, whatever its packet number: the value proves itself.
    fn learn_mark(&mut self, opened: &[u8]) {
        let later = Announce::parse(Reader::new(opened)).map(|announce| announce.mark);
        if later.is_some_and(|later| self.mark.advance(&later)) {
            self.reached(self.mark.packet());
        }
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
        if is_announcement && let Some(opened) = self.announce_key.open(datagram, scratch) {
            self.learn_mark(opened.get(HEADER_BYTES..).unwrap_or_default());
        }
        let is_earlier = header.packet <= self.joined_packet;
        let freshness = if is_earlier { Freshness::Old } else { self.window.freshness(header.packet) };
        match freshness {
            Freshness::New => {}
            // A symbol is right whenever it arrives, and whoever used its number before.
            Freshness::Old | Freshness::Repeated if header.message == MessageType::Data => {}
            Freshness::Old | Freshness::Repeated => {
                // An announcement is sent to two groups.
                statistics.repeated += u64::from(!is_announcement && !is_earlier);
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
            Some(_) => statistics.repeated += u64::from(freshness == Freshness::Repeated),
            None => statistics.rejected += 1,
        }
        Some((freshness, opened?))
    }

    /// Protects a datagram of this receiver.
    pub(super) fn seal(&self, datagram: &mut Vec<u8>) {
        self.own_key.seal(datagram, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::{MARK_PACKETS, MARKS_MAX, MARKS_SKIPPED_MAX, MarkChain};
    use crate::wire::announce::tests::sample;

    const KEYS: SessionKeys = SessionKeys { receiver: [1; 32], sender: [2; 32] };

    /// An announcement of the sender, or of whoever has the session key.
    fn announcement(packet: u64, mark: Mark) -> (Header, Vec<u8>) {
        let header = Header { message: MessageType::Announce, session: 1, packet, sent_us: 0 };
        let mut datagram = Vec::new();
        Announce { mark, ..sample() }.write(&header, &mut datagram);
        DatagramKey::of_announcements(KEYS.sender, false).seal(&mut datagram, 0);
        (header, datagram)
    }

    fn opens(guard: &mut Guard, packet: u64, mark: Mark) -> bool {
        let (header, datagram) = announcement(packet, mark);
        guard.open(&header, &datagram, &mut Vec::new(), &mut ReceiverStatistics::default()).is_some()
    }

    #[test]
    fn only_the_sender_can_move_its_numbers_ahead() {
        let chain = MarkChain::new([3; 32]);
        let at = |index: u32| chain.at(u64::from(index) * MARK_PACKETS);
        let mut guard = Guard::new(&KEYS, None, 9, at(0));
        let forged = Mark { value: [5; 32], ..at(8) };
        assert!(!opens(&mut guard, 8 * MARK_PACKETS, forged), "whoever has the key");
        assert!(!opens(&mut guard, 8 * MARK_PACKETS, at(0)));
        assert!(!opens(&mut guard, 9, at(0)), "it was sent before the join");
        assert!(opens(&mut guard, 10, at(0)), "the sender is not outdated");
        // Seven announcements with marks were lost.
        assert!(opens(&mut guard, 8 * MARK_PACKETS, at(8)));
        assert!(!opens(&mut guard, 8 * MARK_PACKETS, at(8)), "each number counts once");
        assert!(!opens(&mut guard, 13 * MARK_PACKETS, at(8)), "the mark of the sender, and a forged number");
        // The number was taken by a forger, and the mark counts all the same.
        assert!(opens(&mut guard, 9 * MARK_PACKETS, at(8)));
        assert!(!opens(&mut guard, 9 * MARK_PACKETS, at(9)));
        assert!(opens(&mut guard, 13 * MARK_PACKETS, at(9)));
        let far = 10 + MARKS_SKIPPED_MAX;
        assert!(!opens(&mut guard, u64::from(far) * MARK_PACKETS, at(far)), "it has to join again");
        guard.rejoined(&KEYS, None, u64::from(far) * MARK_PACKETS, at(far));
        assert!(opens(&mut guard, u64::from(far) * MARK_PACKETS + 1, at(far)));
    }

    #[test]
    fn a_symbol_is_taken_whoever_used_its_number_before() {
        let mut guard = Guard::new(&KEYS, None, 9, MarkChain::new([3; 32]).at(0));
        let mut open = |message, length| {
            let header = Header { message, session: 1, packet: 10, sent_us: 0 };
            let mut start = [0; HEADER_BYTES];
            header.write(&mut start);
            let mut datagram = start.to_vec();
            datagram.resize(length, 0);
            DatagramKey::of_sender(&KEYS.sender, false).seal(&mut datagram, 0);
            let mut statistics = ReceiverStatistics::default();
            let mut scratch = Vec::new();
            let opened = guard.open(&header, &datagram, &mut scratch, &mut statistics);
            opened.map(|(freshness, _)| freshness)
        };
        assert_eq!(open(MessageType::Plan, 18), Some(Freshness::New), "forged");
        assert_eq!(open(MessageType::Plan, 40), None);
        assert_eq!(open(MessageType::Data, 100), Some(Freshness::Repeated));
    }

    #[test]
    fn after_the_last_mark_numbers_go_on() {
        let chain = MarkChain::new([3; 32]);
        let end = u64::from(MARKS_MAX) * MARK_PACKETS;
        let mut guard = Guard::new(&KEYS, None, end - 5, chain.at(end - 5));
        assert!(opens(&mut guard, end, chain.at(end)));
        for step in 1..20 {
            let packet = end + step * 4 * MARK_PACKETS;
            assert!(!opens(&mut guard, packet + 1, chain.at(packet)));
            assert!(opens(&mut guard, packet, chain.at(packet)));
        }
        let mut late = Guard::new(&KEYS, None, 2 * end, chain.at(2 * end));
        (1..20).for_each(|step| assert!(opens(&mut late, 2 * end + step * 4 * MARK_PACKETS, chain.at(end))));
    }
}
