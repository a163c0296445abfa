//! `platter discard`.

use std::process::ExitCode;

use platter_jobs::{LivePlace, StoreLocation, discard};
use serde_json::json;

use super::Outcome;
use crate::arguments::Discard;
use crate::output::Output;
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Discard, output: &Output) -> Outcome {
    let place = LivePlace::open(store, options.far.overlays.as_deref())?;
    let written = discard(&place, &options.disk, options.token)?;
    output.fact(&json!({ "discarded": options.disk, "written_bytes": written }), || {
        format!("discarded {} of changes to {}", bytes(written), options.disk)
    });
    Ok(ExitCode::SUCCESS)
}
