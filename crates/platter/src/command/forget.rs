//! `platter forget`.

use std::path::Path;
use std::process::ExitCode;

use platter_jobs::forget;

use super::{Outcome, place};
use crate::arguments::Forget;
use crate::output::Output;

pub(crate) fn run(store: &Path, options: &Forget, output: &Output) -> Outcome {
    let report = forget(&place(store), &options.what)?;
    output.fact(&report, || format!("forgotten: {}", report.forgotten.join(" ")));
    Ok(ExitCode::SUCCESS)
}
