//! `platter clone`.

use std::process::ExitCode;

use platter_jobs::{CloneRequest, StoreLocation, clone};

use super::{Outcome, TOOL_VERSION};
use crate::arguments::Clone;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Clone, output: &Output) -> Outcome {
    let report = clone(&CloneRequest {
        store: store.clone(),
        version: options.version.to_string(),
        name: options.name.clone(),
        next: options.next,
        token: (&options.token).into(),
        tool_version: TOOL_VERSION.into(),
    })?;
    output.fact(&report, || {
        let origin = report.cloned_from.as_deref().unwrap_or("an unnamed disk");
        format!("{} is a clone of {origin}\nscore {}", report.version, report.score)
    });
    Ok(ExitCode::SUCCESS)
}
