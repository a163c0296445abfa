//! `platter sign`.

use std::process::ExitCode;

use platter_jobs::{SigningKey, StoreLocation, sign};

use super::Outcome;
use super::key::password;
use crate::arguments::Sign;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Sign, output: &Output) -> Outcome {
    let key = SigningKey::read(&options.key, || password(&options.key))?;
    for version in &options.versions {
        let report = sign(store, version.as_str(), &key)?;
        output.fact(&report, || {
            let verb = if report.was_signed { "was signed before" } else { "signed" };
            format!("{}: {verb} by {}, score {}", report.version, report.key, report.score)
        });
    }
    Ok(ExitCode::SUCCESS)
}
