//! `platter show`.

use std::process::ExitCode;

use platter_jobs::{
    EditLock, FilesystemRecord, OpenStore, StoreLocation, UnreadableRecord, Version, VersionRecord,
};
use serde::Serialize;
use serde_json::json;

use super::Outcome;
use super::images::time;
use crate::arguments::Which;
use crate::output::{Output, table};
use crate::sizes::{bytes, count};

pub(crate) fn run(store: &StoreLocation, options: &Which, output: &Output) -> Outcome {
    let store = OpenStore::open_reader(store)?;
    let resolved = store.resolve(options.version.as_str())?;
    match &resolved.version {
        Some(version) => {
            let held = store.edit_lock(&version.name.image)?;
            let protected = store.protected()?.contains(&version.name);
            let facts = Facts { record: &version.record, current_edit_lock: held.as_ref(), protected };
            output.fact(&facts, || text(version, held.as_ref(), protected));
        }
        None => output.fact(&json!({ "score": resolved.score.to_string() }), || {
            format!("score {}: a disk without a version name", resolved.score)
        }),
    }
    Ok(ExitCode::SUCCESS)
}

/// A version's record, the edit lock of its image, and whether it is protected.
#[derive(Serialize)]
pub(super) struct Facts<'a> {
    #[serde(flatten)]
    pub(super) record: &'a VersionRecord,
    pub(super) current_edit_lock: Option<&'a EditLock>,
    pub(super) protected: bool,
}

/// The space in use, and the space that was left out.
fn in_use(record: &VersionRecord) -> String {
    let used = bytes(record.allocated_bytes);
    match record.skipped_gap_bytes {
        0 => used,
        skipped => format!("{used}; {} outside of partitions left out", bytes(skipped)),
    }
}

/// The state of the disk; the origin cannot check the state that a remote writer reports.
fn state(record: &VersionRecord) -> String {
    let state = format!("{:?}", record.consistency).to_lowercase();
    if record.claimed {
        format!("{state} (state, source and filesystems as reported by the uploader)")
    } else {
        state
    }
}

fn text(version: &Version, held: Option<&EditLock>, is_protected: bool) -> String {
    let record = &version.record;
    let mut rows: Vec<(&str, String)> = vec![
        ("version", version.name.to_string()),
        ("score", record.score.to_string()),
        ("time", time(record.time_unix_ms)),
        ("source", record.source.clone()),
        (
            "parent",
            record.parent.map_or("none".into(), |parent| format!("{}@{}", record.image, parent.number)),
        ),
        (
            "disk",
            format!(
                "{} ({} bytes, {}-byte sectors)",
                bytes(record.disk_length),
                record.disk_length,
                record.sector_size
            ),
        ),
        ("in use", in_use(record)),
        (
            "added",
            format!(
                "{} of new blocks and recipe pages, stored in {}",
                bytes(record.new_raw_bytes),
                bytes(record.new_stored_bytes)
            ),
        ),
        ("state", state(record)),
        ("made by", record.tool_version.clone()),
    ];
    rows.extend(record.cloned_from.iter().map(|origin| ("clone of", origin.to_string())));
    rows.extend(record.edit_lock.map(|number| ("lock", format!("edit lock {number}"))));
    rows.extend(held.map(|edit_lock| ("editing", edit_lock.to_string())));
    if !record.signatures.is_empty() {
        let signatures = count(record.signatures.len() as u64, "signature");
        rows.push(("signed", format!("{signatures}; `platter verify` says by whom")));
    }
    rows.extend(record.labels.iter().map(|(key, value)| ("label", format!("{key}={value}"))));
    if is_protected {
        rows.push(("kept", "protected: `platter unprotect` ends that".into()));
    }
    if !record.notes.is_empty() {
        rows.push(("note", record.notes.clone()));
    }
    let lost = |range: &UnreadableRecord| {
        ("lost", format!("{} bytes at {} could not be read  {}", range.length, range.offset, range.file))
    };
    rows.extend(record.unreadable.iter().map(lost));
    rows.extend(record.unreadable_omitted.map(|more| {
        ("lost", format!("{} bytes in {} more places could not be read", more.bytes, more.ranges))
    }));
    let mut text: String = rows.iter().map(|(key, value)| format!("{key:<8} {value}\n")).collect();
    if !record.filesystems.is_empty() {
        let head = ["PARTITION", "KIND", "OFFSET", "LENGTH", "IN USE", "LABEL", "UUID"];
        let mut rows = vec![head.map(String::from).to_vec()];
        rows.extend(record.filesystems.iter().map(filesystem_row));
        text += &table(&rows);
    }
    text
}

fn filesystem_row(filesystem: &FilesystemRecord) -> Vec<String> {
    vec![
        if filesystem.partition == 0 { "-".into() } else { filesystem.partition.to_string() },
        filesystem.kind.clone(),
        filesystem.offset.to_string(),
        bytes(filesystem.length),
        bytes(filesystem.allocated),
        filesystem.label.clone(),
        filesystem.uuid.clone(),
    ]
}
