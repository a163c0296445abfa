//! What a receiver does with announcements: which sender it joins, and which ones it ignores.
//!
//! Anybody can announce anything, so whatever is remembered of it is bounded.

use std::time::Duration;

use super::machine::{Phase, Receiver};
use super::options::ReceiverEvent;
use crate::wire::announce::Announce;
use crate::wire::format::FLAG_JOIN_KEY;
use crate::wire::protection::flags_of;

/// Maximum number of names of unwanted casts that are remembered.
const OTHERS_MAX: usize = 8;
/// If the joined sender is silent for this long while another one announces itself at its address, it was probably restarted: a receiver
/// without a connection asks. One that is heard is not doubted, whatever others announce.
const RESTART_SILENCE: Duration = Duration::from_secs(1);

impl Receiver {
    /// Handles an announcement while no sender is joined.
    pub(super) fn handle_announce(&mut self, now: Duration, datagram: &[u8]) {
        let Some(announce) = Announce::of_datagram(datagram) else {
            self.statistics.rejected += 1;
            return;
        };
        if !self.options.wanted.matches(&announce.score, &announce.name) {
            if self.others.len() < OTHERS_MAX {
                self.others.insert(announce.name);
            }
        } else if self.senders.avoids(now, announce.join) {
            // Not even its signature is looked at.
        } else if let Err(reason) = self.check(datagram, &announce) {
            self.ignore(announce, reason);
        } else {
            self.phase = Phase::Connecting;
            self.senders.begin(now, announce.join);
            self.events.push_back(ReceiverEvent::Connect { join: announce.join, session: announce.session });
        }
    }

    /// Checks whether a wanted session may be joined.
    fn check(&mut self, datagram: &[u8], announce: &Announce) -> Result<(), String> {
        self.check_key(datagram)?;
        self.options.filter.check(announce)
    }

    /// Checks whether the sender of this announcement has the same join key, or neither side has one.
    fn check_key(&mut self, datagram: &[u8]) -> Result<(), String> {
        match (&self.announce_key, flags_of(datagram) & FLAG_JOIN_KEY != 0) {
            (None, true) => Err("it needs a key file (--key-file FILE)".into()),
            (Some(_), false) => Err("it casts without a key file".into()),
            (Some(key), true) if key.open(datagram, &mut self.scratch).is_none() => {
                Err("it has another key file".into())
            }
            _ => Ok(()),
        }
    }

    /// Handles the announcement of another session while one is joined: another disk under the same name is suspicious, and the
    /// same disk without the join key.
    pub(super) fn handle_rival(&mut self, now: Duration, datagram: &[u8]) {
        let Some((announce, session)) = Announce::of_datagram(datagram).zip(self.session.as_ref()) else {
            return;
        };
        if announce.join == session.announce.join && now >= self.heard_at + RESTART_SILENCE {
            self.doubts_at = now;
        }
        let reason = if announce.score == session.announce.score {
            self.check_key(datagram).err()
        } else if announce.name == session.announce.name {
            Some(format!("it casts another disk, score {}", announce.score))
        } else {
            None
        };
        if let Some(reason) = reason {
            self.ignore(announce, reason);
        }
    }

    fn ignore(&mut self, announce: Announce, reason: String) {
        if self.senders.ignore(announce.session) {
            let Announce { name, join, .. } = announce;
            self.events.push_back(ReceiverEvent::Ignored { name, join, reason });
        }
    }
}
