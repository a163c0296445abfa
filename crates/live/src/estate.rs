//! Messages between a process and its successor during a handover: what must stay the same, what moves, and the steps.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use platter_image::{Error, Result};
use serde::{Deserialize, Serialize};

use super::tree::NodesState;

/// The services of a process that its successor must take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// The addresses and mount points of its servers ([`super::address::ServersRequest::places`]).
    pub(super) places: BTreeSet<String>,
    /// A hash of the origin's address, trust and access token; `None` for a local store.
    pub(super) origin: Option<String>,
    /// The origin has answered, and accepted the options.
    pub(super) is_checked: bool,
    /// The address for peers, if it shares.
    pub(super) peers: Option<SocketAddr>,
    /// Another process listens at that address: the running node, or one that continues to use it.
    pub(super) is_peers_address_used: bool,
}

impl Claim {
    /// Checks whether that successor can serve what the process of this claim serves.
    ///
    /// # Errors
    /// `Refused`.
    pub(super) fn check(&self, successor: &Self) -> Result<()> {
        let listed = |places: &BTreeSet<String>| places.iter().cloned().collect::<Vec<_>>().join(", ");
        if self.places != successor.places {
            return Err(Error::refused(format!(
                "the running node serves {}, and this one is to serve {}: use the same addresses",
                listed(&self.places),
                listed(&successor.places)
            )));
        }
        if let Some(address) = successor.peers
            && successor.is_peers_address_used
            && successor.peers != self.peers
        {
            return Err(Error::refused(format!(
                "{address} is in use, but not by the running node: name another address for peers"
            )));
        }
        if !successor.is_checked && self.origin != successor.origin {
            return Err(Error::refused(
                "the origin cannot be reached, and the running node uses another origin, certificate or access token: \
                 use the same, or try again when the origin answers",
            ));
        }
        Ok(())
    }
}

/// A message of the successor: one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// Send the parcels.
    Take,
    /// All parcels have arrived: end.
    End,
}

/// The first message to the successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Estate {
    /// The servers with their numbers of parcels, in the order of sending.
    pub(super) servers: Vec<(String, usize)>,
    /// The node numbers of the tree.
    pub(super) nodes: Option<NodesState>,
    /// The process that ends once the successor has everything.
    pub(super) process: u32,
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;

    use super::*;

    #[test]
    fn a_successor_serves_the_same_places_and_an_origin_that_it_has_asked_or_the_same() {
        let claim = |place: &str, origin: &str, is_checked| Claim {
            places: BTreeSet::from([place.to_owned()]),
            origin: Some(origin.to_owned()),
            is_checked,
            peers: None,
            is_peers_address_used: false,
        };
        let running = claim("a", "one", true);
        assert!(running.check(&claim("a", "one", true)).is_ok());
        assert!(running.check(&claim("a", "one", false)).is_ok());
        assert!(running.check(&claim("a", "other", true)).is_ok());
        for refused in [claim("a", "other", false), claim("b", "one", true)] {
            assert_eq!(running.check(&refused).unwrap_err().kind(), ErrorKind::Refused);
        }
    }

    #[test]
    fn an_address_for_peers_is_free_or_that_of_the_running_node() {
        let claim = |peers: Option<&str>, is_peers_address_used| Claim {
            places: BTreeSet::new(),
            origin: None,
            is_checked: true,
            peers: peers.map(|address| address.parse().unwrap()),
            is_peers_address_used,
        };
        let running = claim(Some("127.0.0.1:1"), false);
        for accepted in
            [claim(None, false), claim(Some("127.0.0.1:1"), true), claim(Some("127.0.0.1:2"), false)]
        {
            assert!(running.check(&accepted).is_ok(), "{accepted:?}");
        }
        let refused = claim(Some("127.0.0.1:2"), true);
        assert_eq!(running.check(&refused).unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(claim(None, false).check(&refused).unwrap_err().kind(), ErrorKind::Refused);
    }
}
