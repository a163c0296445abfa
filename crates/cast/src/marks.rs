//! Marks: proofs that the sender has reached a packet number, for receivers that only hear the group.
//!
//! Whoever has the session key can forge a datagram with any number, and a number far ahead of the sender's would make its own
//! datagrams look old. So the sender has a chain of values, each of which is the BLAKE3 hash of the next one. A receiver learns one of them
//! when it joins, over the reliable channel. After every [`MARK_PACKETS`] packets the sender discloses the next value in its
//! announcements. Nobody else can find it, and every receiver that knows an earlier one can verify it.
//!
//! Owns the chain and its verification. Must never believe a value that does not lead to the one that is known, nor hash more than
//! [`MARKS_SKIPPED_MAX`] times for a datagram.

/// Packets between two marks: a quarter of what a number may be ahead of the last one that was named.
pub(crate) const MARK_PACKETS: u64 = 1 << 20;
/// The last mark. With repairs and repetitions, 2³⁶ packets are 16 times those of the largest cast.
pub(crate) const MARKS_MAX: u32 = (1 << 16) - 1;
/// Marks that a receiver may have missed. At 10 Gbit/s they are 75 seconds of which it heard no announcement; after five it looks for a
/// sender anew.
pub(crate) const MARKS_SKIPPED_MAX: u32 = 64;
/// Every so many values of the chain are kept. The others are hashed from the next one that is.
const KEPT_EVERY: u32 = 256;

/// A value of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its number. The sender has sent at least this many times 2²⁰ packets.
    pub(crate) index: u32,
    pub(crate) value: [u8; 32],
}

impl Mark {
    /// Returns the packet number that the sender has reached.
    pub(crate) fn packet(&self) -> u64 {
        u64::from(self.index) * MARK_PACKETS
    }

    /// Returns whether no later mark exists.
    pub(crate) fn is_last(&self) -> bool {
        self.index >= MARKS_MAX
    }

    /// Takes a later mark in place of this one. Returns false if it is not a later one of the same chain.
    #[must_use]
    pub(crate) fn advance(&mut self, later: &Self) -> bool {
        let steps = later.index.saturating_sub(self.index);
        let is_near = (1..=MARKS_SKIPPED_MAX).contains(&steps) && later.index <= MARKS_MAX;
        let follows = is_near && hashed(later.value, steps) == self.value;
        if follows {
            *self = *later;
        }
        follows
    }
}

/// The chain of a sender.
pub(crate) struct MarkChain {
    /// The last value of each [`KEPT_EVERY`].
    kept: Vec<[u8; 32]>,
}

impl MarkChain {
    /// Makes the chain whose last value is this secret one.
    pub(crate) fn new(last: [u8; 32]) -> Self {
        let mut kept = vec![last];
        let mut value = last;
        for _ in 1..(MARKS_MAX + 1) / KEPT_EVERY {
            value = hashed(value, KEPT_EVERY);
            kept.push(value);
        }
        kept.reverse();
        Self { kept }
    }

    /// Replaces a mark by that of a sender that has reached this packet number.
    pub(crate) fn update(&self, mark: &mut Mark, packet: u64) {
        if packet >= mark.packet() + MARK_PACKETS && !mark.is_last() {
            *mark = self.at(packet);
        }
    }

    /// Returns the mark of a sender that has reached this packet number.
    pub(crate) fn at(&self, packet: u64) -> Mark {
        let index = (packet / MARK_PACKETS).min(u64::from(MARKS_MAX)) as u32;
        let kept = index / KEPT_EVERY;
        let steps = (kept + 1) * KEPT_EVERY - 1 - index;
        Mark { index, value: hashed(self.kept[kept as usize], steps) }
    }
}

/// Hashes a value so many times.
fn hashed(value: [u8; 32], times: u32) -> [u8; 32] {
    (0..times).fold(value, |value, _| *blake3::hash(&value).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_follows_from_the_one_before() {
        let chain = MarkChain::new([7; 32]);
        assert_eq!(chain.kept.len(), 256, "8 KiB");
        let mut mark = chain.at(0);
        assert_eq!((mark.index, chain.at(MARK_PACKETS - 1)), (0, mark));
        for index in 1..600 {
            assert!(mark.advance(&chain.at(index * MARK_PACKETS)), "{index}");
            assert_eq!(mark.packet(), index * MARK_PACKETS);
        }
        let mut late = chain.at(u64::from(MARKS_MAX - 1) * MARK_PACKETS);
        assert!(!late.is_last() && late.advance(&chain.at(u64::MAX)) && late.is_last());
        assert_eq!(late.value, [7; 32], "the secret");
    }

    #[test]
    fn skipped_marks_are_bridged_up_to_a_limit() {
        let chain = MarkChain::new([7; 32]);
        let at = |index: u32| chain.at(u64::from(index) * MARK_PACKETS);
        let mut mark = at(250);
        assert!(mark.advance(&at(250 + MARKS_SKIPPED_MAX)));
        let before = mark;
        assert!(
            !mark.advance(&at(mark.index + MARKS_SKIPPED_MAX + 1)),
            "more hashes than a datagram may cost"
        );
        assert!(!mark.advance(&at(mark.index)), "the same");
        assert!(!mark.advance(&at(mark.index - 1)), "an earlier one");
        assert_eq!(mark, before);
    }

    #[test]
    fn a_forged_mark_is_not_believed() {
        let chain = MarkChain::new([7; 32]);
        let (mut mark, real) = (chain.at(0), chain.at(3 * MARK_PACKETS));
        for forged in [
            Mark { index: 1, value: real.value },
            Mark { index: 4, ..real },
            Mark { index: 2, ..real },
            Mark { index: 1, value: mark.value },
            Mark { value: MarkChain::new([8; 32]).at(3 * MARK_PACKETS).value, ..real },
            Mark { index: u32::MAX, ..real },
        ] {
            assert!(!mark.advance(&forged), "{forged:?}");
        }
        assert_eq!(mark, chain.at(0));
        assert!(mark.advance(&real));
    }
}
