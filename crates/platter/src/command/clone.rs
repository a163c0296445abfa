//! `platter clone`.

use std::process::ExitCode;

use platter_jobs::{CloneReport, CloneRequest, ErrorKind, StoreLocation, clone};
use platter_live::{LivePlace, clone_at, running_node};

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
    let report = match by_node(store, options, &request)? {
        Some(report) => report,
        None => clone(&request)?,
    };
    output.fact(&report, || {
        let origin = report.cloned_from.as_deref().unwrap_or("an unnamed disk");
        format!("{} is a clone of {origin}\nscore {}", report.version, report.score)
    });
    Ok(ExitCode::SUCCESS)
}

/// Has a node clone: the one that is named, or the only running one of the same store. What that one refuses, such as for its
/// access token, this process tries by itself.
fn by_node(
    store: &StoreLocation,
    options: &Clone,
    request: &CloneRequest,
) -> platter_jobs::Result<Option<CloneReport>> {
    if let Some(dir) = &options.of.node {
        return clone_at(dir, request);
    }
    if matches!(store, StoreLocation::Local(_)) {
        return Ok(None);
    }
    // Of several nodes, none is meant more than the others: that is an error of the same kind.
    let running = running_node(&LivePlace::open(store, None)?);
    match running.and_then(|dir| dir.map_or(Ok(None), |dir| clone_at(&dir, request))) {
        Err(error) if error.kind() == ErrorKind::Refused => Ok(None),
        asked => asked,
    }
}
