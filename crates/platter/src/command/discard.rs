//! `platter discard`.

use std::path::Path;
use std::process::ExitCode;

use platter_jobs::discard;
use serde_json::json;

use super::{Outcome, place};
use crate::arguments::Discard;
use crate::output::Output;
use crate::sizes::bytes;

pub(crate) fn run(store: &Path, options: &Discard, output: &Output) -> Outcome {
    let written = discard(&place(store), &options.disk, options.token)?;
    output.fact(&json!({ "discarded": options.disk, "written_bytes": written }), || {
        format!("{} written to {} thrown away", bytes(written), options.disk)
    });
    Ok(ExitCode::SUCCESS)
}
