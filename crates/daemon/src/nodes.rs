//! The nodes that report to the origin: the list for people, and the nodes that each node learns of.
//!
//! Owns the list, in memory only: after a restart, nodes report again within seconds. A node learns only of nodes whose
//! access tokens read exactly the same images (one *sharing group*, [`sharing_group`]). Nodes of one group may exchange
//! everything in their caches, because each of them may read all of it; a node of another group never learns that they
//! exist. Nodes trust the certificate fingerprints that they receive here. A node belongs to the token that reported
//! it, until it was silent for [`SEEN_MAX`]. All durations are measured with the monotonic clock.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use platter_api::{NodeFacts, NodePeer, NodeReport};
use platter_image::{BlockId, Error, Result};
use platter_records::StoreId;
use platter_transport::to_hex;

use crate::access::{Patterns, Principal};

/// A node without a report for longer counts as away.
const SEEN_MAX: Duration = Duration::from_secs(60);
/// A node without reports for longer is removed.
const KEPT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most nodes in all, and of each restricted token: none can take the places of the others.
const NODES_MAX: usize = 4096;
const NODES_OF_TOKEN_MAX: usize = 256;
/// Most bytes of a name, and most disks and counters of a node.
const NAME_LENGTH_MAX: usize = 255;
const DISKS_MAX: usize = 256;
const COUNTERS_MAX: usize = 64;
/// Most bytes of a node's report.
pub(crate) const REPORT_LENGTH_MAX: usize = 32 << 10;

#[derive(Debug)]
struct Known {
    report: NodeReport,
    /// The token of its last report.
    owner: String,
    /// The images that its token may read, in canonical form: equal for the nodes of one sharing group.
    reads: Patterns,
    seen: Instant,
    seen_unix_ms: i64,
}

/// All known nodes, by id.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<BTreeMap<String, Known>>);

impl Nodes {
    /// Takes a node's report. Returns the other nodes of its sharing group.
    ///
    /// # Errors
    /// `Refused` when the id is another token's; `Transient` when there are too many nodes.
    pub(crate) fn report(&self, who: &Principal, report: NodeReport, now: Instant) -> Result<Vec<NodePeer>> {
        let mut known = self.0.lock();
        let id = report.id.clone();
        let reads = who.patterns.canonical();
        if let Some(before) = known.get(&id)
            && before.owner != who.id
            && before.is_there(now)
        {
            return Err(Error::refused(format!("node {id} is another access token's")));
        }
        if !known.contains_key(&id) {
            make_room(&mut known, &who.id, reads.match_everything(), now)?;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seen_unix_ms = since.as_millis() as i64;
        let owner = who.id.clone();
        let of_group = |other: &&Known| other.report.id != id && other.reads == reads;
        let others = known.values().filter(of_group).filter(|other| other.shares() && other.is_there(now));
        let others = others.map(Known::peer).collect();
        known.insert(id, Known { report, owner, reads, seen: now, seen_unix_ms });
        Ok(others)
    }

    /// Returns all nodes, ordered by id. Only for principals that may see all images.
    pub(crate) fn list(&self, now: Instant) -> Vec<NodeFacts> {
        self.0.lock().values().map(|known| known.facts(now)).collect()
    }

    /// Returns the number of nodes that are not away.
    pub(crate) fn count(&self, now: Instant) -> usize {
        self.0.lock().values().filter(|known| known.is_there(now)).count()
    }
}

impl Known {
    fn is_there(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen) <= SEEN_MAX
    }

    /// Whether it shares: other nodes need its fingerprint to recognize it.
    fn shares(&self) -> bool {
        self.report.fingerprint.is_some()
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

/// Makes room for one more node: removes nodes that were away for too long and, if still needed, the node that was away
/// for longest.
fn make_room(
    known: &mut BTreeMap<String, Known>,
    owner: &str,
    reads_everything: bool,
    now: Instant,
) -> Result<()> {
    known.retain(|_, node| now.saturating_duration_since(node.seen) <= KEPT_MAX);
    let own = known.values().filter(|node| node.owner == owner).count();
    let is_full = known.len() >= NODES_MAX || (!reads_everything && own >= NODES_OF_TOKEN_MAX);
    if !is_full {
        return Ok(());
    }
    // A node of a restricted token replaces only a node of that token.
    let leaves = |node: &Known| !node.is_there(now) && (reads_everything || node.owner == owner);
    let oldest = known.iter().filter(|(_, node)| leaves(node)).min_by_key(|(_, node)| node.seen);
    let oldest = oldest.map(|(id, _)| id.clone());
    let oldest = oldest.ok_or_else(|| Error::transient("there are too many nodes: try again later"))?;
    known.remove(&oldest);
    Ok(())
}

/// Returns the sharing group of all tokens that read these images of a store: 32 hexadecimal digits, equal exactly when
/// [`Patterns::canonical`] is equal. Nodes exchange it in their handshake, so nodes of different groups reject each
/// other even if they meet by accident.
pub(crate) fn sharing_group(store: StoreId, reads: &Patterns) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("platter: sharing group of nodes, version 1");
    hasher.update(&store.0);
    for pattern in reads.canonical().0 {
        let name = pattern.to_string();
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    to_hex(&hasher.finalize().as_bytes()[..16])
}

/// Checks a report's contents and limits.
///
/// # Errors
/// `Refused`.
pub(crate) fn check_report(report: &NodeReport) -> Result<()> {
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
        return refused(format!("{address} cannot be reached by other nodes"));
    }
    let disks = report.disks.iter();
    let holders = report.disks.iter().filter_map(|disk| disk.edit_lock_holder.as_ref());
    let names = disks.flat_map(|disk| [&disk.name, &disk.image]).chain(holders);
    let mut names = names.chain([&report.name]).chain(report.counters.keys());
    if let Some(name) = names.find(|name| name.len() > NAME_LENGTH_MAX || name.chars().any(char::is_control))
    {
        return refused(format!("invalid name {:?}", name.chars().take(NAME_LENGTH_MAX).collect::<String>()));
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
    use crate::access::Patterns;
    use platter_api::ReportedDisk;
    use platter_api::{NamePattern, Role};

    fn who(id: &str, pattern: &str) -> Principal {
        let patterns = Patterns(vec![pattern.parse::<NamePattern>().unwrap()]);
        Principal { id: id.into(), name: String::new(), role: Role::Read, patterns, quota_bytes: None }
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
    fn nodes_learn_of_nodes_that_reported_within_a_minute() {
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

    /// Nodes learn of each other exactly if their tokens read the same images, even if the tokens list these
    /// differently.
    #[test]
    fn a_node_learns_only_of_nodes_that_read_the_same_images() {
        let (nodes, now) = (Nodes::default(), Instant::now());
        let lists =
            [&["*"][..], &["lab/*"], &["lab/*", "lab/a"], &["lab/*", "b"], &["lab/a"], &["*", "lab/*"]];
        let group_of = |list: &[&str]| Patterns(list.iter().map(|text| text.parse().unwrap()).collect());
        let who = |list: &[&str]| Principal {
            id: list.concat(),
            name: String::new(),
            role: Role::Read,
            patterns: group_of(list),
            quota_bytes: None,
        };
        for (number, list) in lists.iter().enumerate() {
            nodes.report(&who(list), node(number), now).unwrap();
        }
        let hears: Vec<_> = lists
            .iter()
            .enumerate()
            .map(|(number, list)| told(&nodes.report(&who(list), node(number), now).unwrap()))
            .collect();
        assert_eq!(hears, [vec![5], vec![2], vec![1], vec![], vec![], vec![0]]);
        let group = |list: &&[&str]| sharing_group(StoreId([1; 16]), &group_of(list));
        let groups: Vec<_> = lists.iter().map(group).collect();
        assert!(groups[0] == groups[5] && groups[1] == groups[2] && groups[0].len() == 32);
        let unique: std::collections::BTreeSet<_> = groups.iter().collect();
        assert_eq!(unique.len(), 4);
        assert_ne!(sharing_group(StoreId([2; 16]), &group_of(&["*"])), groups[0], "another store's group");
    }

    #[test]
    fn a_node_cannot_take_the_place_of_another_tokens_node() {
        let (nodes, now) = (Nodes::default(), Instant::now());
        let (all, lab) = (who("a", "*"), who("b", "lab/*"));
        nodes.report(&all, node(1), now).unwrap();
        assert_eq!(nodes.report(&lab, node(1), now).unwrap_err().kind(), ErrorKind::Refused);
        assert!(nodes.report(&lab, node(1), now + SEEN_MAX * 2).is_ok());
        let without = NodeReport { fingerprint: None, ..node(4) };
        nodes.report(&all, without, now).unwrap();
        assert!(!told(&nodes.report(&all, node(3), now).unwrap()).contains(&4), "no node could recognise it");
    }

    #[test]
    fn the_number_of_nodes_is_limited_and_active_nodes_stay() {
        let (nodes, now) = (Nodes::default(), Instant::now());
        let (all, lab) = (who("a", "*"), who("b", "lab/*"));
        for number in 0..NODES_OF_TOKEN_MAX {
            nodes.report(&lab, node(number), now).unwrap();
        }
        assert_eq!(nodes.report(&lab, node(9999), now).unwrap_err().kind(), ErrorKind::Transient);
        assert!(
            nodes.report(&who("c", "lab/*"), node(NODES_OF_TOKEN_MAX), now).is_ok(),
            "another token has its own"
        );
        for number in NODES_OF_TOKEN_MAX + 1..NODES_MAX {
            nodes.report(&all, node(number), now).unwrap();
        }
        assert_eq!(nodes.report(&all, node(9999), now).unwrap_err().kind(), ErrorKind::Transient);
        nodes.report(&all, node(300), now + SEEN_MAX).unwrap();
        let later = now + SEEN_MAX * 2;
        let there = told(&nodes.report(&all, node(9999), later).unwrap());
        assert_eq!((nodes.list(later).len(), there), (NODES_MAX, vec![300]));
    }

    #[test]
    fn invalid_reports_are_refused() {
        let disk = |name: &str| ReportedDisk {
            name: name.into(),
            image: String::new(),
            writable: false,
            edit_lock_holder: None,
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
            assert_eq!(check_report(&report).unwrap_err().kind(), ErrorKind::Refused);
        }
        assert!(check_report(&node(1)).is_ok());
    }
}
