//! Registers a boot that a node observed (`platter_vdisk::BootDetector`) as the boot set of its version, if the hoard
//! does not have it yet.
//!
//! Nodes that boot one version at the same time must not all send it: each first compares the boot with its own replica
//! of the hoard, which learns of other nodes' registrations within a second. The origin merges concurrent
//! registrations, and ignores a boot that adds nothing.

use platter_image::{BlockId, Kind, Result, Score};
use platter_records::Version;
use platter_store::Hoard;
use platter_vdisk::{BOOT_PAUSE_MS, Boot, Source};

use super::boots::{BootFacts, BootReads, boot_set_of_reads};
use super::copies::is_copy;
use super::manage::{RegisterReport, register_at};
use platter_client::OriginStore;

/// Digits of a node's mark.
const MARK_DIGITS: usize = 16;

/// A boot that a node observed.
#[derive(Clone, Debug)]
pub struct ObservedBoot {
    /// The disk that booted.
    pub score: Score,
    /// Its reads.
    pub boot: Boot,
    /// When it ended, in milliseconds since 1970 UTC.
    pub time_unix_ms: i64,
}

/// The observing node.
#[derive(Clone, Debug)]
pub struct Observer {
    /// The id of the node's cache.
    pub node: String,
    /// Such as `platter 0.1.0`.
    pub tool_version: String,
}

impl Observer {
    /// Returns the mark of this node in a boot set of that version. Only the node itself recognises it.
    pub fn mark(&self, score: Score) -> String {
        let hash = BlockId::of(Kind::Data, format!("{} {score}", self.node).as_bytes()).to_string();
        hash.get(..MARK_DIGITS).unwrap_or(&hash).to_owned()
    }
}

/// The result for an observed boot.
#[derive(Clone, Debug)]
pub enum Observation {
    /// It became the version's boot set, or part of it.
    Registered(Box<RegisterReport>),
    /// The hoard already has its blocks.
    KnownAlready,
    /// It was a copy of the disk, or of a part of it.
    Copy,
}

/// Whether the version with this score needs no more boots, as far as this node knows.
pub fn is_settled(hoard: &Hoard, score: Score) -> bool {
    let members = hoard.snapshot().members;
    members.iter().any(|member| member.record.score == score && member.record.is_settled())
}

/// Registers a boot of this version, unless it adds nothing.
///
/// # Errors
/// `Refused` when the access token may not register it; `Missing` when the version was forgotten; `Transient` when the
/// origin is down.
pub fn register_observed(
    (store, hoard): (&OriginStore, &Hoard),
    version: &Version,
    (observed, observer): (&ObservedBoot, &Observer),
    source: &dyn Source,
) -> Result<Observation> {
    if is_settled(hoard, observed.score) {
        return Ok(Observation::KnownAlready);
    }
    let Boot { ranges, requests, bytes_read, duration_ms } = observed.boot.clone();
    if is_copy(observed.score, &ranges, version.record.allocated_bytes, source)? {
        return Ok(Observation::Copy);
    }
    let reads = BootReads { score: observed.score, ranges, requests, bytes_read, duration_ms };
    let facts = BootFacts {
        marker: format!("quiet:{}", BOOT_PAUSE_MS / 1000),
        time_unix_ms: observed.time_unix_ms,
        tool_version: observer.tool_version.clone(),
        boots: 1,
        nodes: vec![observer.mark(observed.score)],
        ..BootFacts::default()
    };
    let set = boot_set_of_reads(reads, &version.name, facts, source)?;
    let members = hoard.snapshot().members;
    let present = members.iter().find(|member| member.version == version.name);
    let present = present.and_then(|member| hoard.boot_set(&member.boot_set).ok());
    if present.is_some_and(|present| present.refined(&set).is_none()) {
        return Ok(Observation::KnownAlready);
    }
    let report = register_at(store, &version.name, &set)?;
    Ok(match report.is_new {
        true => Observation::Registered(Box::new(report)),
        false => Observation::KnownAlready,
    })
}
