//! `platter disks`.

use std::process::ExitCode;

use platter_jobs::{DiskList, ListedDisk, LivePlace, StoreLocation, disks};
use serde_json::json;

use super::Outcome;
use crate::arguments::Disks;
use crate::output::{Output, table};
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Disks, output: &Output) -> Outcome {
    let DiskList { disks, away } = disks(&LivePlace::open(store, options.far.overlays.as_deref())?)?;
    if let Some(why) = away {
        output.note(&format!("{why}: who holds which edit token is not known now"));
    }
    if output.is_json() {
        disks.iter().for_each(|disk| output.fact(disk, String::new));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![
        ["DISK", "SIZE", "WRITTEN", "HOLDER", "TOKEN", "PROCESS", "SERVED AT"].map(String::from).to_vec(),
    ];
    rows.extend(disks.iter().map(row));
    output.fact(&json!(null), || table(&rows));
    Ok(ExitCode::SUCCESS)
}

fn row(listed: &ListedDisk) -> Vec<String> {
    let disk = &listed.status;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    vec![
        disk.disk.clone(),
        bytes(disk.disk_bytes),
        match disk.written_bytes {
            _ if !disk.writable => "read only".into(),
            written => or_none(written.map(bytes)),
        },
        or_none(disk.holder.clone()),
        or_none(disk.token.map(|token| format!("{token}{}", if listed.lost { " lost" } else { "" }))),
        or_none(disk.process.map(|process| process.to_string())),
        or_none(Some(disk.exports.join(" ")).filter(|exports| !exports.is_empty())),
    ]
}
