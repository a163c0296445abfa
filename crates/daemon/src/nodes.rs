//! The nodes that tell the origin of themselves: who may be told of whom, and what a person sees of them.
//!
//! Owns the list, in memory only: after a restart nodes tell again within seconds. Nodes that share are told of each other
//! with the fingerprints of their certificates, and believe that; so only what a token for all images told is passed on,
//! and only to such tokens. A node belongs to the token that told of it until it was silent for [`SEEN_MAX`]. Only
//! monotonic time decides what is too long ago.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use platter_image::{BlockId, Error, Result};
use serde::{Deserialize, Serialize};

use crate::access::Principal;

/// A node that said nothing for longer counts as away.
const SEEN_MAX: Duration = Duration::from_secs(60);
/// A node that is away for longer is forgotten.
const KEPT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most nodes, and most that tokens tell of which are not for all images.
const NODES_MAX: usize = 4096;
const NODES_OF_FEW_IMAGES_MAX: usize = 256;
/// Most bytes of a name, disks of a node, and counters of a node.
const NAME_LENGTH_MAX: usize = 255;
const DISKS_MAX: usize = 256;
const COUNTERS_MAX: usize = 64;
/// Most bytes of what a node tells of itself.
pub(crate) const REPORT_LENGTH_MAX: usize = 32 << 10;

/// What a node tells of itself. What newer nodes say on top is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeReport {
    /// 32 hexadecimal digits, for as long as the node keeps its cache.
    id: String,
    name: String,
    /// Where other nodes reach it; null for one that gives nothing to others.
    #[serde(default)]
    peer_address: Option<SocketAddr>,
    /// SHA-256 of the certificate that it shows other nodes, 64 hexadecimal digits.
    #[serde(default)]
    fingerprint: Option<String>,
    #[serde(default)]
    hoard_revision: Option<u64>,
    #[serde(default)]
    counters: BTreeMap<String, u64>,
    #[serde(default)]
    disks: Vec<NodeDisk>,
}

/// A live disk of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeDisk {
    name: String,
    #[serde(default)]
    image: String,
    #[serde(default)]
    writable: bool,
    #[serde(default)]
    token_holder: Option<String>,
}

/// What a node is told of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodePeer {
    id: String,
    name: String,
    peer_address: Option<SocketAddr>,
    fingerprint: Option<String>,
    hoard_revision: Option<u64>,
    seen_unix_ms: i64,
}

/// What a person is shown of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodeFacts {
    #[serde(flatten)]
    report: NodeReport,
    seen_unix_ms: i64,
    /// Whether it was seen within a minute.
    is_there: bool,
    /// Whether others are told of it.
    shares: bool,
}

#[derive(Debug)]
struct Known {
    report: NodeReport,
    /// The token that told of it last.
    owner: String,
    reads_everything: bool,
    seen: Instant,
    seen_unix_ms: i64,
}

/// All that are known.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<BTreeMap<String, Known>>);

impl Nodes {
    /// A node told of itself. Gives the others that it may know: none to a token that is not for all images.
    ///
    /// # Errors
    /// `Refused` when the id is another token's; `Transient` when there are too many nodes.
    pub(crate) fn report(&self, who: &Principal, report: NodeReport, now: Instant) -> Result<Vec<NodePeer>> {
        let mut known = self.lock();
        let id = report.id.clone();
        let reads_everything = who.reads_everything();
        if let Some(before) = known.get(&id)
            && before.owner != who.id
            && before.is_there(now)
        {
            return Err(Error::refused(format!("node {id} is another access token's")));
        }
        if !known.contains_key(&id) {
            make_room(&mut known, reads_everything, now)?;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seen_unix_ms = since.as_millis() as i64;
        let owner = who.id.clone();
        known.insert(id.clone(), Known { report, owner, reads_everything, seen: now, seen_unix_ms });
        if !reads_everything {
            return Ok(Vec::new());
        }
        let others =
            known.values().filter(|other| other.report.id != id && other.shares() && other.is_there(now));
        Ok(others.map(Known::peer).collect())
    }

    /// All nodes, by id, for whoever may know everything.
    pub(crate) fn list(&self, now: Instant) -> Vec<NodeFacts> {
        self.lock().values().map(|known| known.facts(now)).collect()
    }

    /// How many are there.
    pub(crate) fn count(&self, now: Instant) -> usize {
        self.lock().values().filter(|known| known.is_there(now)).count()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock()
    }
}

impl Known {
    fn is_there(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen) <= SEEN_MAX
    }

    /// Whether other nodes may be told of it, and believe what it shows them.
    fn shares(&self) -> bool {
        self.reads_everything && self.report.fingerprint.is_some()
    }

    fn peer(&self) -> NodePeer {
        let NodeReport { id, name, peer_address, fingerprint, hoard_revision, .. } = self.report.clone();
        NodePeer { id, name, peer_address, fingerprint, hoard_revision, seen_unix_ms: self.seen_unix_ms }
    }

    fn facts(&self, now: Instant) -> NodeFacts {
        NodeFacts {
            report: self.report.clone(),
            seen_unix_ms: self.seen_unix_ms,
            is_there: self.is_there(now),
            shares: self.shares(),
        }
    }
}

/// Room for one more: nodes that are away for long go, and if that is not enough, the one that is away for longest.
fn make_room(known: &mut BTreeMap<String, Known>, reads_everything: bool, now: Instant) -> Result<()> {
    known.retain(|_, node| now.saturating_duration_since(node.seen) <= KEPT_MAX);
    let few = known.values().filter(|node| !node.reads_everything).count();
    let is_full = known.len() >= NODES_MAX || (!reads_everything && few >= NODES_OF_FEW_IMAGES_MAX);
    if !is_full {
        return Ok(());
    }
    // Who may tell of few only takes the place of such a one.
    let leaves = |node: &Known| !node.is_there(now) && (reads_everything || !node.reads_everything);
    let oldest = known.iter().filter(|(_, node)| leaves(node)).min_by_key(|(_, node)| node.seen);
    let oldest = oldest.map(|(id, _)| id.clone());
    let oldest = oldest.ok_or_else(|| Error::transient("there are too many nodes: try again later"))?;
    known.remove(&oldest);
    Ok(())
}

impl NodeReport {
    /// The same, if it can be and is not too much.
    ///
    /// # Errors
    /// `Refused`.
    pub(crate) fn checked(self) -> Result<Self> {
        check(&self)?;
        Ok(self)
    }
}

fn check(report: &NodeReport) -> Result<()> {
    let refused = |what: String| Err(Error::refused(format!("a node's report: {what}")));
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if !is_hex(&report.id, 32) {
        return refused("its id is not 32 hexadecimal digits".to_owned());
    }
    if report
        .fingerprint
        .as_deref()
        .is_some_and(|text| BlockId::from_hex(text).is_none() || !is_hex(text, 64))
    {
        return refused("its fingerprint is not 64 hexadecimal digits".to_owned());
    }
    if let Some(address) = report.peer_address.filter(|it| it.ip().is_unspecified() || it.port() == 0) {
        return refused(format!("nobody reaches it at {address}"));
    }
    let disks = report.disks.iter();
    let holders = report.disks.iter().filter_map(|disk| disk.token_holder.as_ref());
    let names = disks.flat_map(|disk| [&disk.name, &disk.image]).chain(holders);
    let mut names = names.chain([&report.name]).chain(report.counters.keys());
    if let Some(name) = names.find(|name| name.len() > NAME_LENGTH_MAX || name.chars().any(char::is_control))
    {
        return refused(format!("{:?} is no name", name.chars().take(NAME_LENGTH_MAX).collect::<String>()));
    }
    if report.disks.len() > DISKS_MAX || report.counters.len() > COUNTERS_MAX {
        return refused(format!("more than {DISKS_MAX} disks or {COUNTERS_MAX} counters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;
    use serde_json::json;

    use super::*;
    use crate::access::{NamePattern, Patterns, Role};

    fn who(id: &str, pattern: &str) -> Principal {
        let patterns = Patterns(vec![pattern.parse::<NamePattern>().unwrap()]);
        Principal { id: id.into(), role: Role::Read, patterns }
    }

    fn node(number: usize) -> NodeReport {
        let report = json!({
            "id": format!("{number:032x}"), "name": "n", "peer_address": "10.0.0.1:7442", "fingerprint": "ab".repeat(32),
        });
        serde_json::from_value(report).unwrap()
    }

    fn told(peers: &[NodePeer]) -> Vec<usize> {
        peers.iter().map(|peer| usize::from_str_radix(&peer.id, 16).unwrap()).collect()
    }

    #[test]
    fn nodes_hear_of_those_that_were_there_within_a_minute() {
        let (nodes, all, start) = (Nodes::default(), who("t", "*"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(nodes.report(&all, node(1), at(0)).unwrap().is_empty());
        assert_eq!(told(&nodes.report(&all, node(2), at(30)).unwrap()), [1]);
        assert_eq!(told(&nodes.report(&all, node(3), at(61)).unwrap()), [2]);
        assert_eq!(told(&nodes.report(&all, node(1), at(62)).unwrap()), [2, 3]);
        assert_eq!((nodes.count(at(100)), nodes.list(at(100)).len()), (2, 3));
        nodes.report(&all, node(4), at(100) + KEPT_MAX).unwrap();
        assert_eq!(nodes.list(at(100) + KEPT_MAX).len(), 1);
    }

    /// A token for some images only: nobody hears of its nodes, and they hear of nobody.
    #[test]
    fn only_who_reads_everything_is_told_or_told_of() {
        let (nodes, now) = (Nodes::default(), Instant::now());
        let (all, lab) = (who("a", "*"), who("b", "lab/*"));
        nodes.report(&all, node(1), now).unwrap();
        assert!(nodes.report(&lab, node(2), now).unwrap().is_empty());
        assert_eq!(told(&nodes.report(&all, node(3), now).unwrap()), [1]);
        let shares: Vec<bool> = nodes.list(now).iter().map(|facts| facts.shares).collect();
        assert_eq!(shares, [true, false, true]);
        // Nor may it take the place of one of them.
        assert_eq!(nodes.report(&lab, node(1), now).unwrap_err().kind(), ErrorKind::Refused);
        assert!(nodes.report(&lab, node(1), now + SEEN_MAX * 2).is_ok());
        let without = NodeReport { fingerprint: None, ..node(4) };
        nodes.report(&all, without, now).unwrap();
        assert!(!told(&nodes.report(&all, node(3), now).unwrap()).contains(&4), "nobody could know it");
    }

    #[test]
    fn there_are_only_so_many_and_who_is_there_stays() {
        let (nodes, now) = (Nodes::default(), Instant::now());
        let (all, lab) = (who("a", "*"), who("b", "lab/*"));
        for number in 0..NODES_OF_FEW_IMAGES_MAX {
            nodes.report(&lab, node(number), now).unwrap();
        }
        assert_eq!(nodes.report(&lab, node(9999), now).unwrap_err().kind(), ErrorKind::Transient);
        for number in NODES_OF_FEW_IMAGES_MAX..NODES_MAX {
            nodes.report(&all, node(number), now).unwrap();
        }
        assert_eq!(nodes.report(&all, node(9999), now).unwrap_err().kind(), ErrorKind::Transient);
        nodes.report(&all, node(300), now + SEEN_MAX).unwrap();
        let later = now + SEEN_MAX * 2;
        let there = told(&nodes.report(&all, node(9999), later).unwrap());
        assert_eq!((nodes.list(later).len(), there), (NODES_MAX, vec![300]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let disk = |name: &str| NodeDisk {
            name: name.into(),
            image: String::new(),
            writable: false,
            token_holder: None,
        };
        let bad = [
            NodeReport { id: "1".repeat(31), ..node(1) },
            NodeReport { id: "G".repeat(32), ..node(1) },
            NodeReport { fingerprint: Some("AB".repeat(32)), ..node(1) },
            NodeReport { name: "x".repeat(NAME_LENGTH_MAX + 1), ..node(1) },
            NodeReport { name: "a\nb".into(), ..node(1) },
            NodeReport { peer_address: Some("0.0.0.0:1".parse().unwrap()), ..node(1) },
            NodeReport { peer_address: Some("10.0.0.1:0".parse().unwrap()), ..node(1) },
            NodeReport { disks: vec![disk("d"); DISKS_MAX + 1], ..node(1) },
            NodeReport { disks: vec![disk(&"d".repeat(NAME_LENGTH_MAX + 1))], ..node(1) },
            NodeReport {
                counters: (0..=COUNTERS_MAX as u64).map(|n| (n.to_string(), n)).collect(),
                ..node(1)
            },
        ];
        for report in bad {
            assert_eq!(report.checked().unwrap_err().kind(), ErrorKind::Refused);
        }
        assert!(node(1).checked().is_ok());
    }
}
