//! `platter detach`.

use std::process::ExitCode;

use platter_jobs::{StoreLocation, detach};
use serde_json::json;

use super::publish::text;
use super::{Outcome, TOOL_VERSION};
use crate::arguments::Detach;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Detach, output: &Output) -> Outcome {
    let dir = match &options.node {
        Some(dir) => dir,
        None => store.local("detaching a disk")?.dir(),
    };
    let report = detach(dir, &options.disk, options.then.into(), &options.note, TOOL_VERSION)?;
    output.fact(&json!({ "detached": options.disk, "published": report }), || {
        let published = report.as_ref().map(|report| format!("\n{}", text(report)));
        format!("{} detached{}", options.disk, published.unwrap_or_default())
    });
    Ok(ExitCode::SUCCESS)
}
