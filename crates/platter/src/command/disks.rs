//! `platter disks`.

use std::process::ExitCode;

use std::path::Path;

use platter_jobs::{ErrorKind, FillStatus, ListedDisk, Result, StoreLocation};
use platter_live::{DiskList, LivePlace, disks, disks_of_node};
use serde_json::json;

use super::Outcome;
use crate::arguments::Disks;
use crate::output::{Output, table};
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Disks, output: &Output) -> Outcome {
    let DiskList { disks, away } = match &options.node {
        Some(dir) => of_node(store, dir)?,
        None => disks(&LivePlace::open(store, options.far.overlays.as_deref())?)?,
    };
    if let Some(why) = away {
        output.note(&format!("{why}: the holders of edit locks are unknown"));
    }
    if output.is_json() {
        disks.iter().for_each(|disk| output.fact(disk, String::new));
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["DISK", "SIZE", "CHANGES", "CACHED", "LOCK", "PROCESS"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(disks.iter().map(row));
    output.fact(&json!(null), || with_details(&table(&rows), &disks));
    Ok(ExitCode::SUCCESS)
}

/// Adds below the row of each disk what is too long for a column.
fn with_details(table: &str, disks: &[ListedDisk]) -> String {
    let mut lines: Vec<String> = table.lines().take(1).map(String::from).collect();
    for (row, disk) in table.lines().skip(1).zip(disks) {
        lines.push(row.to_owned());
        lines.extend(disk.status.holder.iter().map(|holder| format!("    edited by {holder}")));
        lines.extend(disk.status.exports.iter().map(|export| format!("    at {export}")));
    }
    lines.join("\n")
}

/// Returns the disks of a node; while it does not run, those in its directory.
fn of_node(store: &StoreLocation, dir: &Path) -> Result<DiskList> {
    match disks_of_node(dir) {
        Err(error) if error.kind() == ErrorKind::Missing => disks(&LivePlace::of_node(store, dir)?),
        told => Ok(DiskList { disks: told?, away: None }),
    }
}

/// How much of a disk is in the cache.
fn filled(fill: &FillStatus) -> String {
    match &fill.trouble {
        _ if fill.filled => "fully local".into(),
        Some(trouble) => format!("waiting: {trouble}"),
        None => format!("{} %", fill.held * 100 / fill.blocks.max(1)),
    }
}

fn row(listed: &ListedDisk) -> Vec<String> {
    let disk = &listed.status;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    vec![
        disk.disk.clone(),
        bytes(disk.disk_bytes),
        match disk.written_bytes {
            _ if !disk.writable => "read-only".into(),
            written => or_none(written.map(bytes)),
        },
        match (&disk.fill, &disk.node) {
            (Some(fill), _) => filled(fill),
            (None, Some(_)) => "on demand".into(),
            (None, None) => "-".into(),
        },
        or_none(
            disk.edit_lock.map(|edit_lock| format!("{edit_lock}{}", if listed.lost { " lost" } else { "" })),
        ),
        or_none(disk.process.map(|process| process.to_string())),
    ]
}
