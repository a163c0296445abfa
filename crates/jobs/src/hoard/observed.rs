//! Registers a boot that a node observed (`platter_vdisk::BootDetector`) as the boot set of its version, where the hoard does
//! not have that yet.
//!
//! Nodes that boot one version at once must not all send it: each compares with its own replica of the hoard first, which
//! hears of another node's registration within a second. Those that are faster are merged at the origin, which takes no
//! boot that adds nothing.

use platter_image::{Result, Score};
use platter_records::Version;
use platter_store::Hoard;
use platter_vdisk::{BOOT_PAUSE_MS, Boot, Source};

use super::boots::{BootFacts, BootReads, boot_set_of_reads};
use super::manage::{RegisterReport, register_at};
use platter_client::OriginStore;

/// A boot that reads more than so many eighths of what the version holds is taken for a copy of the disk.
const EIGHTHS_MAX: u64 = 6;

/// A boot that a node observed.
#[derive(Clone, Debug)]
pub struct ObservedBoot {
    /// The disk that booted.
    pub score: Score,
    /// What it read.
    pub boot: Boot,
    /// When it ended, in milliseconds since 1970 UTC.
    pub time_unix_ms: i64,
}

/// Who observed it.
#[derive(Clone, Debug)]
pub struct Observer {
    /// What people call the node.
    pub node: String,
    /// Such as `platter 0.1.0`.
    pub tool_version: String,
}

/// What became of an observed boot.
#[derive(Clone, Debug)]
pub enum Observation {
    /// It is the version's boot set now, or part of it.
    Registered(Box<RegisterReport>),
    /// The hoard has what it read.
    KnownAlready,
    /// It read most of the version's data.
    Copy,
}

/// Whether the version of that score needs no more boots, as far as this node knows.
pub fn is_settled(hoard: &Hoard, score: Score) -> bool {
    let members = hoard.snapshot().members;
    members.iter().any(|member| member.record.score == score && member.record.is_settled())
}

/// Registers a boot of that version, unless that changes nothing.
///
/// # Errors
/// `Refused` when the access token may not register it; `Missing` when the version is gone; `Transient` when the origin is
/// away.
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
    let reads = BootReads { score: observed.score, ranges, requests, bytes_read, duration_ms };
    let facts = BootFacts {
        marker: format!("quiet:{}", BOOT_PAUSE_MS / 1000),
        time_unix_ms: observed.time_unix_ms,
        tool_version: observer.tool_version.clone(),
        boots: 1,
        nodes: vec![observer.node.clone()],
        ..BootFacts::default()
    };
    let set = boot_set_of_reads(reads, &version.name, facts, source)?;
    if set.length() > version.record.allocated_bytes / 8 * EIGHTHS_MAX {
        return Ok(Observation::Copy);
    }
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
