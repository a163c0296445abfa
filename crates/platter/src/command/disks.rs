//! `platter disks`.

use std::process::ExitCode;

use std::path::Path;

use platter_jobs::{
    DiskList, DiskStatus, FillStatus, ListedDisk, LivePlace, StoreLocation, disks, disks_of_node,
};
use serde_json::json;

use super::Outcome;
use crate::arguments::Disks;
use crate::output::{Output, table};
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Disks, output: &Output) -> Outcome {
    if let Some(dir) = &options.node {
        return of_node(dir, output);
    }
    let DiskList { disks, away } = disks(&LivePlace::open(store, options.far.overlays.as_deref())?)?;
    if let Some(why) = away {
        output.note(&format!("{why}: the holders of edit locks are unknown"));
    }
    if output.is_json() {
        disks.iter().for_each(|disk| output.fact(disk, String::new));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![
        ["DISK", "SIZE", "CHANGES", "HOLDER", "LOCK", "PROCESS", "SERVED AT"].map(String::from).to_vec(),
    ];
    rows.extend(disks.iter().map(row));
    output.fact(&json!(null), || table(&rows));
    Ok(ExitCode::SUCCESS)
}

fn of_node(dir: &Path, output: &Output) -> Outcome {
    let disks = disks_of_node(dir)?;
    if output.is_json() {
        disks.iter().for_each(|disk| output.fact(disk, String::new));
        return Ok(ExitCode::SUCCESS);
    }
    let row = |disk: &DiskStatus| {
        let filled = disk.fill.as_ref().map_or_else(|| "on demand".to_owned(), filled);
        vec![disk.disk.clone(), bytes(disk.disk_bytes), filled, disk.exports.join(" ")]
    };
    let mut rows = vec![["DISK", "SIZE", "CACHED", "SERVED AT"].map(String::from).to_vec()];
    rows.extend(disks.iter().map(row));
    output.fact(&json!(null), || table(&rows));
    Ok(ExitCode::SUCCESS)
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
        or_none(disk.holder.clone()),
        or_none(disk.token.map(|token| format!("{token}{}", if listed.lost { " lost" } else { "" }))),
        or_none(disk.process.map(|process| process.to_string())),
        or_none(Some(disk.exports.join(" ")).filter(|exports| !exports.is_empty())),
    ]
}
