//! `platter detach`.

use std::process::ExitCode;

use platter_jobs::StoreLocation;
use platter_live::{LivePlace, OnDetach, detach, detach_at};
use serde_json::json;

use super::publish::text;
use super::{Outcome, TOOL_VERSION};
use crate::arguments::Detach;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, options: &Detach, output: &Output) -> Outcome {
    let (disk, then) = (options.disk.as_str(), options.then.map(OnDetach::from));
    let report = match &options.node {
        Some(dir) => detach_at(dir, disk, then, &options.note, TOOL_VERSION)?,
        None => {
            let place = LivePlace::open(store, options.far.overlays.as_deref())?;
            detach(&place, disk, then, &options.note, TOOL_VERSION)?
        }
    };
    output.fact(&json!({ "detached": options.disk.as_str(), "published": report }), || {
        let published = report.as_ref().map(|report| format!("\n{}", text(report)));
        format!("{} detached{}", options.disk, published.unwrap_or_default())
    });
    Ok(ExitCode::SUCCESS)
}
