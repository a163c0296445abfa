//! `platter discard-interrupted`.

use std::process::ExitCode;

use platter_jobs::{Store, StoreLocation};
use serde_json::json;

use super::Outcome;
use crate::output::Output;
use crate::sizes::{bytes, count};

pub(crate) fn run(store: &StoreLocation, output: &Output) -> Outcome {
    let discarded = Store::discard_interrupted(store.local("removing what interrupted captures left")?)?;
    let facts = json!({ "packs": discarded.packs, "bytes": discarded.bytes });
    output.fact(&facts, || {
        format!("{} removed, {}", count(discarded.packs as u64, "interrupted pack"), bytes(discarded.bytes))
    });
    Ok(ExitCode::SUCCESS)
}
