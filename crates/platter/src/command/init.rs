//! `platter init`.

use std::path::Path;
use std::process::ExitCode;

use platter_jobs::Store;
use serde_json::json;

use super::{Outcome, place};
use crate::output::Output;

pub(crate) fn run(store: &Path, output: &Output) -> Outcome {
    Store::init(&place(store))?;
    output.fact(&json!({ "store": store.display().to_string() }), || {
        format!("made a store in {}", store.display())
    });
    Ok(ExitCode::SUCCESS)
}
