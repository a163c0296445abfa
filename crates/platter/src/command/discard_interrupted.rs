//! `platter discard-interrupted`.

use std::process::ExitCode;

use platter_jobs::{Store, StoreLocation};
use serde_json::json;

use super::Outcome;
use crate::output::Output;
use crate::sizes::{bytes, count};

pub(crate) fn run(store: &StoreLocation, output: &Output) -> Outcome {
    let discarded =
        Store::discard_interrupted(store.local("deleting the leftovers of interrupted captures")?)?;
    let facts = json!({
        "packs": discarded.packs,
        "unfinished_uploads": discarded.parked,
        "bytes": discarded.bytes,
        "kept": discarded.kept,
    });
    output.fact(&facts, || {
        let packs = |number: usize| count(number as u64, "interrupted pack");
        let parked = count(discarded.parked as u64, "pack");
        let removed = format!(
            "deleted {} and {parked} of unfinished uploads, {}",
            packs(discarded.packs),
            bytes(discarded.bytes)
        );
        match discarded.kept {
            0 => removed,
            kept => format!(
                "{removed}; kept {}: a version in them lacks only its commit, which the next capture does",
                packs(kept)
            ),
        }
    });
    Ok(ExitCode::SUCCESS)
}
