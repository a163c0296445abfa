//! `platter rebuild`.

use std::process::ExitCode;

use platter_jobs::{RebuildReport, StoreLocation, rebuild};
use serde_json::json;

use super::Outcome;
use crate::output::Output;
use crate::sizes::count;

pub(crate) fn run(store: &StoreLocation, output: &Output) -> Outcome {
    let report = rebuild(store.local("making a catalog anew")?)?;
    let names = |versions: &[_]| versions.iter().map(ToString::to_string).collect::<Vec<String>>();
    let facts = json!({
        "packs": report.packs,
        "packs_taken_over": report.packs_taken_over,
        "versions": names(&report.versions),
        "reappeared": report.reappeared.as_deref().map(names),
        "lost": names(&report.lost),
        "tokens_lost": report.tokens_lost,
        "boot_sets": report.boot_sets,
        "notes": report.notes,
    });
    output.fact(&facts, || text(&report));
    Ok(ExitCode::SUCCESS)
}

fn text(report: &RebuildReport) -> String {
    let mut text = format!(
        "made the catalog anew from {}: {}",
        count((report.packs + report.packs_taken_over) as u64, "pack"),
        count(report.versions.len() as u64, "version")
    );
    for version in report.reappeared.iter().flatten() {
        text += &format!("\nreappeared: {version}");
    }
    for version in &report.lost {
        text += &format!("\nLOST: {version} has no record in any pack");
    }
    for token in report.tokens_lost.iter().flatten() {
        text += &format!("\nlost: the edit token of {} ({token})", token.image);
    }
    if report.tokens_lost.is_none() {
        text += "\nnote: nobody holds an edit token now; who did before is not known";
    }
    if report.boot_sets > 0 {
        text += &format!(
            "\nin the hoard: {}; those that were taken out may be back",
            count(report.boot_sets as u64, "boot set")
        );
    }
    for note in &report.notes {
        text += &format!("\nnote: {note}");
    }
    text
}
