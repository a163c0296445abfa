//! `platter clone`.

use std::process::ExitCode;

use platter_jobs::{CloneRequest, StoreLocation, clone};
use platter_live::clone_at;

use super::{Outcome, TOOL_VERSION};
use crate::arguments::Clone;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Clone, output: &Output) -> Outcome {
    let request = CloneRequest {
        store: store.clone(),
        version: options.version.to_string(),
        name: options.name.clone(),
        next: options.next,
        edit_lock: (&options.lock).into(),
        tool_version: TOOL_VERSION.into(),
    };
    let asked = match &options.of.node {
        Some(dir) => clone_at(dir, &request)?,
        None => None,
    };
    let report = match asked {
        Some(report) => report,
        None => clone(&request)?,
    };
    output.fact(&report, || {
        let origin = report.cloned_from.as_deref().unwrap_or("an unnamed disk");
        format!("{} is a clone of {origin}\nscore {}", report.version, report.score)
    });
    Ok(ExitCode::SUCCESS)
}
