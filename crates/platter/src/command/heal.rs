//! `platter heal`.

use std::process::ExitCode;

use platter_jobs::{Error, HealReport, Holder, Result, StoreLocation, WantedBlock, heal};
use platter_live::overlay_bases;
use serde_json::{Value, json};

use super::Outcome;
use crate::arguments::{Heal, ServerArguments};
use crate::output::Output;
use crate::server::server_at;
use crate::sizes::{bytes, count};
use crate::terminal::Terminal;

/// Exit code if something stays damaged, the same as of `check`.
const DAMAGED: u8 = 4;

pub(crate) fn run(
    store: &StoreLocation,
    options: &Heal,
    server: &ServerArguments,
    output: &Output,
) -> Outcome {
    let holders = options.from.iter().map(|from| holder(from, server)).collect::<Result<Vec<_>>>()?;
    let report = heal(store, &holders, &overlay_bases, &Terminal::new(*output))?;
    output.fact(&json(&report), || text(&report));
    Ok(if report.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) })
}

/// An origin is named by its address, everything else by its path.
fn holder(from: &str, server: &ServerArguments) -> Result<Holder> {
    if from.starts_with("unix:") || from.contains("://") {
        return Ok(Holder::Store(server_at(from, server)?.into()));
    }
    let metadata = std::fs::metadata(from).map_err(|error| Error::io(format!("looking at {from}"), error))?;
    Ok(if metadata.is_dir() { Holder::Directory(from.into()) } else { Holder::Disk(from.into()) })
}

fn json(report: &HealReport) -> Value {
    json!({
        "healed": report.healed,
        "sources": report.sources.iter().map(|source| json!({
            "source": source.source,
            "blocks": source.blocks,
            "bytes": source.bytes,
            "wrong": source.wrong,
            "error": source.error,
        })).collect::<Vec<_>>(),
        "whole": report.whole.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "damaged": report.damaged.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "lost": report.lost.iter().map(|block| json!({
            "kind": format!("{:?}", block.kind).to_lowercase(),
            "block": block.id.to_string(),
            "versions": versions(block),
            "disks": disks(block),
        })).collect::<Vec<_>>(),
    })
}

fn versions(block: &WantedBlock) -> Vec<String> {
    block.versions.iter().map(ToString::to_string).collect()
}

/// The scores of disks that need a block.
fn disks(block: &WantedBlock) -> Vec<String> {
    block.scores.iter().map(ToString::to_string).collect()
}

/// What needs a block: versions, or only what live disks, readers, leases or followers hold.
fn needed_by(block: &WantedBlock) -> String {
    match block.versions.is_empty() {
        false => versions(block).join(", "),
        true if block.scores.is_empty() => "a boot set that left the hoard".into(),
        true => format!("no version, but {}, which is in use", disks(block).join(", ")),
    }
}

fn text(report: &HealReport) -> String {
    let mut lines = Vec::new();
    for block in &report.lost {
        let kind = format!("{:?}", block.kind).to_lowercase();
        lines.push(format!("LOST    {kind} {}; damages {}", block.id, needed_by(block)));
    }
    for source in &report.sources {
        if source.blocks > 0 {
            let blocks = count(source.blocks as u64, "block");
            lines.push(format!("healed  {blocks}, {}, from {}", bytes(source.bytes), source.source));
        }
        if source.wrong > 0 {
            let times = count(source.wrong as u64, "time");
            lines.push(format!("refused other contents {times}, from {}", source.source));
        }
        if let Some(error) = &source.error {
            lines.push(format!("error   {}: {error}", source.source));
        }
    }
    if !report.whole.is_empty() {
        let names: Vec<String> = report.whole.iter().map(ToString::to_string).collect();
        lines.push(format!("whole again: {}", names.join(", ")));
    }
    lines.push(match (report.healed, report.lost.len()) {
        (0, 0) => "nothing is lost, as far as is known: `platter check --read-data` reads everything".into(),
        (healed, 0) => format!("{} healed, nothing is lost", count(healed as u64, "block")),
        (healed, lost) => format!(
            "{} healed, {lost} lost: {}; name further holders with --from, or capture such a disk again",
            count(healed as u64, "block"),
            asked(report)
        ),
    });
    lines.join("\n")
}

/// Who does not have what is lost.
fn asked(report: &HealReport) -> String {
    let names: Vec<&str> = report.sources.iter().map(|source| source.source.as_str()).collect();
    match names.is_empty() {
        true => "no holder was asked".into(),
        false => format!("asked were {}", names.join(", ")),
    }
}
