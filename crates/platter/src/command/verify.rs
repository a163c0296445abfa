//! `platter verify`.

use std::process::ExitCode;

use platter_jobs::{StoreLocation, TrustedKeys, verify};

use super::Outcome;
use super::key::read;
use crate::arguments::Verify;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Verify, output: &Output) -> Outcome {
    let keys = match options.key.is_empty() {
        true => read(&options.keys)?,
        false => TrustedKeys::of_files(&options.key)?,
    };
    for version in &options.versions {
        let report = verify(store, version.as_str(), &keys)?;
        output.fact(&report, || {
            format!(
                "{}: signed by {} in store {}, score {}",
                report.version, report.key, report.store, report.score
            )
        });
    }
    Ok(ExitCode::SUCCESS)
}
