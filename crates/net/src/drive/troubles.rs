//! What may keep a receiver from a cast, in words for its user. Must never tell more than a few: anybody can announce senders.

use std::net::SocketAddr;

/// The most senders that cannot be reached of which the caller is told.
const UNREACHABLE_MAX: usize = 8;

/// What may keep a receiver from a cast.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    NoAddress,
    Unreachable(SocketAddr),
    Unheard,
}

/// The troubles of a receiver in words, each told once.
#[derive(Default)]
pub(super) struct Troubles {
    told: Vec<Trouble>,
    waiting: Vec<String>,
}

impl Troubles {
    /// Remembers a trouble, and its text if it is new.
    pub(super) fn tell(&mut self, trouble: Trouble, text: impl FnOnce() -> String) {
        let is_address = |it: &&Trouble| matches!(it, Trouble::Unreachable(_));
        let addresses = self.told.iter().filter(is_address).count();
        // Anybody can announce addresses.
        let is_one_more = is_address(&&trouble) && addresses >= UNREACHABLE_MAX;
        if !is_one_more && !self.told.contains(&trouble) {
            self.told.push(trouble);
            self.waiting.push(text());
        }
    }

    /// Returns the texts that the caller was not told yet.
    pub(super) fn take(&mut self) -> impl Iterator<Item = String> + '_ {
        self.waiting.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_told_once_and_not_more_addresses_than_eight() {
        let mut troubles = Troubles::default();
        for port in [1, 1, 2, 3, 2, 4, 5, 6, 7, 8, 9, 10, 1] {
            let address = SocketAddr::from(([10, 0, 0, 1], port));
            troubles.tell(Trouble::Unreachable(address), || port.to_string());
        }
        for _ in 0..2 {
            troubles.tell(Trouble::Unheard, || "unheard".into());
            troubles.tell(Trouble::NoAddress, || "none".into());
        }
        assert_eq!(troubles.waiting, ["1", "2", "3", "4", "5", "6", "7", "8", "unheard", "none"]);
    }
}
