//! The cost of the hoard: bytes of images, of boot sets (total and unique), on a node's disk and in its memory; and its
//! growth with the number of images (Squirrel, section 4.2).

use std::collections::HashMap;
use std::path::Path;

use platter_image::{BlockId, Error, ErrorKind, Result};
use platter_records::{BootSet, HoardMember, HoardSnapshot};
use platter_store::{Hoard, ReplicaFacts};
use serde::{Deserialize, Serialize};

use super::growth::Fit;
use super::sync::hoard_place;
use platter_fetch::Opened;
use platter_fetch::{OpenStore, StoreLocation};

/// Numbers of images for which the fit is extrapolated.
const EXTRAPOLATED: [usize; 4] = [100, 200, 607, 1000];

/// Figures of the hoard. Bytes are before compression, unless they are on a disk.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HoardStatus {
    /// The newest revision.
    pub revision: u64,
    /// The epoch of the revisions.
    pub epoch: String,
    /// Why the store could not be queried, if so: then all figures are those of the node's own hoard.
    pub store_away: Option<String>,
    /// Total size of the disks of all versions in the hoard; 0 if the store could not be queried.
    pub virtual_bytes: u64,
    /// Allocated bytes of these; 0 if the store could not be queried.
    pub allocated_bytes: u64,
    /// Bytes of all boot sets.
    pub boot_set_bytes: u64,
    /// The same, with every block counted once.
    pub unique_bytes: u64,
    /// Boot sets in order of registration.
    pub boot_sets: Vec<MemberFigures>,
    /// The growth of `unique_bytes`, as a power law.
    pub fit: Option<Fit>,
    /// Estimated cost of the next image by the fit; without a fit, the cost of the last one.
    pub next_bytes: u64,
    /// The fit's bytes for several numbers of images.
    pub extrapolated: Vec<(usize, u64)>,
    /// The hoard of this node, if one was given.
    pub replica: Option<ReplicaFacts>,
    /// The nodes that the origin knows, if it lists them.
    pub nodes: Vec<NodeRevision>,
}

/// Figures of a boot set.
#[derive(Clone, Debug, Serialize)]
pub struct MemberFigures {
    /// `lab/debian12@3`.
    pub version: String,
    /// Pages and blocks.
    pub blocks: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes of those that no earlier boot set has.
    pub new_bytes: u64,
    /// Bytes of this and all earlier ones.
    pub sum_bytes: u64,
    /// The same, with every block counted once.
    pub unique_bytes: u64,
    /// Reads of its boot.
    pub requests: u64,
    /// Seconds until its marker.
    pub seconds: f64,
    /// How the machine was executed; empty if unknown.
    pub accelerator: String,
    /// Number of observed boots merged in it; 0 for a manual recording.
    pub boots: u32,
    /// The nodes that observed them.
    pub nodes: Vec<String>,
}

/// A node with its revision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRevision {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its revision.
    #[serde(default)]
    pub hoard_revision: u64,
}

/// Returns the cost of a store's hoard and, with a node's directory, of the node's hoard. The latter is returned even
/// if the store cannot be queried.
///
/// # Errors
/// The store's errors; `Missing`, `Corrupt`, `Io` for the node's hoard.
pub fn hoard_status(location: &StoreLocation, cache: Option<&Path>) -> Result<HoardStatus> {
    if let Some(cache) = cache.filter(|cache| !cache.is_dir()) {
        return Err(Error::missing(format!("there is no node's directory {}", cache.display())));
    }
    let replica = cache.map(|cache| Hoard::open(&hoard_place(cache))).transpose()?;
    let asked = OpenStore::open_reader(location).and_then(|store| Ok((store.hoard()?, store)));
    let mut status = match (asked, &replica) {
        (Ok((hoard, store)), replica) => of_store(&store, hoard, replica.as_deref())?,
        (Err(error), Some(replica)) if is_away(&error) => of_replica(replica, &error)?,
        (Err(error), _) => return Err(error),
    };
    status.replica = replica.map(|replica| replica.facts());
    Ok(extrapolated(status))
}

/// Whether a store cannot be queried: it does not exist, or its origin does not answer.
fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Missing | ErrorKind::Transient)
}

fn of_store(store: &OpenStore, hoard: HoardSnapshot, replica: Option<&Hoard>) -> Result<HoardStatus> {
    let mut status = HoardStatus { revision: hoard.revision, epoch: hoard.epoch, ..HoardStatus::default() };
    let mut counted = Counted::default();
    for member in &hoard.members {
        let here = replica.and_then(|replica| replica.boot_set(&member.boot_set).ok());
        let set = match here {
            Some(set) => set,
            None => store.boot_set(&member.boot_set)?,
        };
        status.boot_sets.push(counted.add(member, &set));
        if let Some(version) = store.resolve(&member.version.to_string())?.version {
            status.virtual_bytes += version.record.disk_length;
            status.allocated_bytes = status.allocated_bytes.saturating_add(version.record.allocated_bytes);
        }
    }
    (status.boot_set_bytes, status.unique_bytes) = (counted.sum, counted.unique);
    status.nodes = nodes(store)?;
    Ok(status)
}

/// Returns the figures of the node's own hoard, which does not know the sizes of its versions.
fn of_replica(replica: &Hoard, why: &Error) -> Result<HoardStatus> {
    let hoard = replica.snapshot();
    let mut status = HoardStatus {
        revision: hoard.revision,
        epoch: hoard.epoch,
        store_away: Some(why.to_string()),
        ..HoardStatus::default()
    };
    let mut counted = Counted::default();
    for member in &hoard.members {
        status.boot_sets.push(counted.add(member, &replica.boot_set(&member.boot_set)?));
    }
    (status.boot_set_bytes, status.unique_bytes) = (counted.sum, counted.unique);
    Ok(status)
}

fn extrapolated(mut status: HoardStatus) -> HoardStatus {
    let growth: Vec<u64> = status.boot_sets.iter().map(|it| it.unique_bytes).collect();
    status.fit = Fit::of(&growth);
    let count = growth.len();
    status.next_bytes = match status.fit {
        Some(fit) => fit.bytes(count + 1).saturating_sub(fit.bytes(count)),
        None => status.boot_sets.last().map_or(0, |last| last.new_bytes),
    };
    if let Some(fit) = status.fit {
        let more = EXTRAPOLATED.into_iter().filter(|images| *images > count);
        status.extrapolated = more.map(|images| (images, fit.bytes(images))).collect();
    }
    status
}

/// Running counts.
#[derive(Default)]
struct Counted {
    known: HashMap<BlockId, u64>,
    sum: u64,
    unique: u64,
}

impl Counted {
    fn add(&mut self, member: &HoardMember, set: &BootSet) -> MemberFigures {
        let before = self.unique;
        for row in set.pages.iter().chain(&set.blocks) {
            self.sum += row.length();
            // Two versions may use different lengths of one block.
            let known = self.known.entry(row.id).or_default();
            self.unique += row.length().saturating_sub(*known);
            *known = row.length().max(*known);
        }
        MemberFigures {
            version: member.version.to_string(),
            blocks: set.pages.len() + set.blocks.len(),
            bytes: set.length(),
            new_bytes: self.unique - before,
            sum_bytes: self.sum,
            unique_bytes: self.unique,
            requests: member.record.requests,
            seconds: member.record.duration_ms as f64 / 1e3,
            accelerator: member.record.accelerator.clone(),
            boots: member.record.boots,
            nodes: member.record.nodes.clone(),
        }
    }
}

/// Returns the nodes that an origin lists; none if it knows or lists none.
fn nodes(store: &OpenStore) -> Result<Vec<NodeRevision>> {
    let Opened::Remote(remote) = store.opened() else { return Ok(Vec::new()) };
    let told = match remote.origin().nodes() {
        Ok(told) => told,
        Err(error) if matches!(error.kind(), ErrorKind::Missing | ErrorKind::Refused) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let list = told.get("nodes").cloned().unwrap_or(told);
    Ok(serde_json::from_value(list).unwrap_or_default())
}

/// A status of this many images that share most blocks.
#[cfg(test)]
pub(super) fn sample(images: u64) -> HoardStatus {
    let figures = |n: u64| MemberFigures {
        version: format!("lab/{n}@1"),
        blocks: 100,
        bytes: 50_000_000,
        new_bytes: 1,
        sum_bytes: n * 50_000_000,
        unique_bytes: (5e7 * (n as f64).powf(0.5)) as u64,
        requests: 1,
        seconds: 1.0,
        accelerator: String::new(),
        boots: 0,
        nodes: Vec::new(),
    };
    let boot_sets: Vec<MemberFigures> = (1..=images).map(figures).collect();
    let last = boot_sets.last().map_or((0, 0), |last| (last.sum_bytes, last.unique_bytes));
    let status =
        HoardStatus { boot_sets, boot_set_bytes: last.0, unique_bytes: last.1, ..HoardStatus::default() };
    extrapolated(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_the_next_image_follows_the_curve() {
        let status = sample(40);
        let fit = status.fit.unwrap();
        assert!((fit.exponent - 0.5).abs() < 0.001);
        let expected = 5e7 * (41_f64.sqrt() - 40_f64.sqrt());
        assert!((status.next_bytes as f64 / expected - 1.0).abs() < 0.01, "{}", status.next_bytes);
        assert_eq!(status.extrapolated.iter().map(|it| it.0).collect::<Vec<_>>(), EXTRAPOLATED);
        assert_eq!((sample(0).next_bytes, sample(2).next_bytes), (0, 1));
    }
}
