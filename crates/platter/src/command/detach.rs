//! `platter detach`.

use std::process::ExitCode;

use platter_jobs::{LivePlace, StoreLocation, detach, detach_at_node};
use serde_json::json;

use super::publish::text;
use super::{Outcome, TOOL_VERSION};
use crate::arguments::Detach;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Detach, output: &Output) -> Outcome {
    let report = match &options.node {
        Some(cache) => detach_at_node(cache, options.disk.as_str()).map(|()| None)?,
        None => {
            let place = LivePlace::open(store, options.far.overlays.as_deref())?;
            detach(&place, options.disk.as_str(), options.then.into(), &options.note, TOOL_VERSION)?
        }
    };
    output.fact(&json!({ "detached": options.disk.as_str(), "published": report }), || {
        let published = report.as_ref().map(|report| format!("\n{}", text(report)));
        format!("{} detached{}", options.disk, published.unwrap_or_default())
    });
    Ok(ExitCode::SUCCESS)
}
