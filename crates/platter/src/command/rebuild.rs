//! `platter rebuild`.

use std::process::ExitCode;

use platter_jobs::{RebuildReport, Store, StoreLocation, VersionName, rebuild};
use serde_json::json;

use super::Outcome;
use crate::arguments::{Rebuild, Resurrected};
use crate::output::{EXIT_CORRUPT, Output};
use crate::sizes::count;

pub(crate) fn run(store: &StoreLocation, options: &Rebuild, output: &Output) -> Outcome {
    if !options.resurrect.is_empty() {
        return resurrect(store, &options.resurrect, output);
    }
    let report = rebuild(store.local("rebuilding a catalog")?)?;
    let names = |versions: &[_]| versions.iter().map(ToString::to_string).collect::<Vec<String>>();
    let facts = json!({
        "packs": report.packs,
        "packs_taken_over": report.packs_taken_over,
        "versions": names(&report.versions),
        "reappeared": report.reappeared.as_deref().map(names),
        "lost": names(&report.lost),
        "edit_locks_lost": report.edit_locks_lost,
        "boot_sets": report.boot_sets,
        "damaged": report.damaged,
        "notes": report.notes,
    });
    output.fact(&facts, || text(&report, *output));
    Ok(if report.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CORRUPT) })
}

/// Lists forgotten versions, or brings them back.
fn resurrect(store: &StoreLocation, what: &[Resurrected], output: &Output) -> Outcome {
    let place = store.local("bringing back forgotten versions")?;
    if what.iter().all(|it| matches!(it, Resurrected::List)) {
        let forgotten = Store::open_reader(place)?.forgotten()?;
        let names: Vec<String> = forgotten.iter().map(|version| version.name.to_string()).collect();
        let text = if names.is_empty() { "no forgotten versions".to_owned() } else { names.join("\n") };
        output.fact(&json!({ "forgotten": names }), || text);
        return Ok(ExitCode::SUCCESS);
    }
    let is_all = what.iter().any(|it| matches!(it, Resurrected::All));
    let named = what.iter().filter_map(|it| match it {
        Resurrected::Version(name) if !is_all => Some(name.clone()),
        _ => None,
    });
    let versions: Vec<VersionName> = named.collect();
    let store = Store::open_writer(place)?;
    let back = store.resurrect(&versions)?;
    let damaged = store.lacking(&back)?;
    let names: Vec<String> = back.iter().map(ToString::to_string).collect();
    output.fact(&json!({ "resurrected": names, "damaged": damaged }), || {
        let back = match names.is_empty() {
            true => "no forgotten versions".into(),
            false => format!("brought back: {}", names.join(", ")),
        };
        let damaged = damaged.iter().map(|what| format!("damaged: {what}"));
        std::iter::once(back).chain(damaged).collect::<Vec<_>>().join("\n")
    });
    Ok(if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CORRUPT) })
}

fn text(report: &RebuildReport, output: Output) -> String {
    let mut text = format!(
        "rebuilt the catalog from {}: {}",
        count((report.packs + report.packs_taken_over) as u64, "pack"),
        count(report.versions.len() as u64, "version")
    );
    for version in report.reappeared.iter().flatten() {
        text += &format!("\nreappeared: {version}");
    }
    for version in &report.lost {
        text += &format!("\nLOST: {version}");
    }
    for damaged in &report.damaged {
        text += &format!("\ndamaged: {damaged}");
    }
    if !report.damaged.is_empty() {
        text += "\n`platter check` tells more, and `platter heal` from where missing blocks can come";
    }
    for edit_lock in report.edit_locks_lost.iter().flatten() {
        text += &format!("\nlost: the edit lock of {} ({edit_lock})", edit_lock.image);
    }
    if report.edit_locks_lost.is_none() {
        text += &output.notes(&["the holders of edit locks are unknown; all locks were released"]);
    }
    if report.boot_sets > 0 {
        text += &format!("\nhoard: {}", count(report.boot_sets as u64, "boot set"));
    }
    text + &output.notes(&report.notes)
}
