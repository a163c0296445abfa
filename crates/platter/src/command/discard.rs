//! `platter discard`.

use std::process::ExitCode;

use platter_jobs::{StoreLocation, discard};
use serde_json::json;

use super::Outcome;
use crate::arguments::Discard;
use crate::output::Output;
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Discard, output: &Output) -> Outcome {
    let written = discard(store.local("discarding what was written")?, &options.disk, options.token)?;
    output.fact(&json!({ "discarded": options.disk, "written_bytes": written }), || {
        format!("{} written to {} thrown away", bytes(written), options.disk)
    });
    Ok(ExitCode::SUCCESS)
}
