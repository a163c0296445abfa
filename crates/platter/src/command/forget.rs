//! `platter forget`.

use std::process::ExitCode;

use platter_jobs::{StoreLocation, forget};

use super::Outcome;
use crate::arguments::Forget;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Forget, output: &Output) -> Outcome {
    let report = forget(store, &options.what)?;
    output.fact(&report, || format!("forgotten: {}", report.forgotten.join(" ")));
    Ok(ExitCode::SUCCESS)
}
