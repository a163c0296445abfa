//! `platter copies`.

use std::process::ExitCode;

use platter_jobs::{CopiesReport, Home, StoreLocation, copies, remove_follower};
use serde_json::json;

use super::Outcome;
use super::images::time;
use crate::arguments::Copies;
use crate::output::{Output, table};

pub(crate) fn run(store: &StoreLocation, options: &Copies, output: &Output) -> Outcome {
    if let Some(id) = &options.remove {
        remove_follower(store, id)?;
        output.fact(&json!({ "removed": id }), || format!("removed the follower {id}"));
        return Ok(ExitCode::SUCCESS);
    }
    let report = copies(store)?;
    output.fact(&report, || text(&report));
    Ok(ExitCode::SUCCESS)
}

fn text(report: &CopiesReport) -> String {
    let mut lines = vec![format!("store {}: {}", report.store, report.summary)];
    lines.extend(report.home.as_ref().and_then(Home::warning));
    lines.extend(report.left_out.iter().map(|out| format!("left out: {}: {}", out.what, out.why)));
    lines.extend(report.missing.iter().map(|name| format!("did not arrive before the promotion: {name}")));
    if !report.followers.is_empty() {
        let head = ["FOLLOWER", "NAME", "CHANGE", "SEEN", "ADDRESS"].map(str::to_owned).to_vec();
        let rows = report.followers.iter().map(|it| {
            vec![
                it.id.clone(),
                it.name.escape_debug().to_string(),
                it.number.to_string(),
                time(it.seen_unix_ms),
                it.address.escape_debug().to_string(),
            ]
        });
        lines.push(table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
    }
    lines.join("\n")
}
