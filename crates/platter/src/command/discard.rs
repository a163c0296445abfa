//! `platter discard`.

use std::path::Path;
use std::process::ExitCode;

use platter_jobs::discard;
use serde_json::json;

use super::{Outcome, place};
use crate::arguments::Image;
use crate::output::Output;
use crate::sizes::bytes;

pub(crate) fn run(store: &Path, options: &Image, output: &Output) -> Outcome {
    let written = discard(&place(store), &options.name)?;
    output.fact(&json!({ "discarded": options.name, "written_bytes": written }), || {
        format!("{} written to {} thrown away", bytes(written), options.name)
    });
    Ok(ExitCode::SUCCESS)
}
