//! `platter rename`.

use std::process::ExitCode;

use platter_jobs::{StoreLocation, rename};

use super::Outcome;
use crate::arguments::Rename;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Rename, output: &Output) -> Outcome {
    let report = rename(store, &options.from, &options.to)?;
    output.fact(&report, || {
        let lines =
            report.renamed.iter().map(|version| format!("renamed {} to {}", version.from, version.to));
        lines.collect::<Vec<_>>().join("\n")
    });
    Ok(ExitCode::SUCCESS)
}
