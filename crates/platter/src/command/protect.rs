//! `platter protect` and `platter unprotect`.

use std::process::ExitCode;

use platter_jobs::{StoreLocation, protect};
use serde_json::json;

use super::Outcome;
use crate::arguments::Protect;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Protect, is_protected: bool, output: &Output) -> Outcome {
    let changed = protect(store, &options.what, is_protected)?;
    let names: Vec<String> = changed.iter().map(ToString::to_string).collect();
    let word = if is_protected { "protected" } else { "no longer protected" };
    output.fact(&json!({ "protected": is_protected, "changed": names }), || match names.is_empty() {
        true => format!("nothing to do: it is {word}"),
        false => format!("{word}: {}", names.join(" ")),
    });
    Ok(ExitCode::SUCCESS)
}
