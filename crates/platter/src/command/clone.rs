//! `platter clone`.

use std::path::Path;
use std::process::ExitCode;

use platter_jobs::{CloneRequest, clone};

use super::{Outcome, TOOL_VERSION, place};
use crate::arguments::Clone;
use crate::output::Output;

pub(crate) fn run(store: &Path, options: &Clone, output: &Output) -> Outcome {
    let report = clone(&CloneRequest {
        store: place(store),
        version: options.version.clone(),
        name: options.name.clone(),
        next: options.next,
        token: (&options.token).into(),
        tool_version: TOOL_VERSION.into(),
    })?;
    output.fact(&report, || {
        let origin = report.cloned_from.as_deref().unwrap_or("a disk without a name");
        format!("{} is a clone of {origin}\nscore {}", report.version, report.score)
    });
    Ok(ExitCode::SUCCESS)
}
