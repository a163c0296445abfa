//! `platter cp`.

use std::process::ExitCode;

use platter_browse::{CopyReport, copy_out};
use platter_jobs::StoreLocation;

use super::Outcome;
use crate::arguments::Cp;
use crate::output::{EXIT_CORRUPT, Output};
use crate::sizes::{bytes, count};

pub(crate) fn run(store: &StoreLocation, options: &Cp, output: &Output) -> Outcome {
    let report = copy_out(store, &options.location, &options.target, options.recursive)?;
    output.fact(&report, || text(&report, output));
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CORRUPT) })
}

fn text(report: &CopyReport, output: &Output) -> String {
    let mut lines = vec![format!(
        "copied {} in {} directories, {}",
        count(report.files, "file"),
        report.directories,
        bytes(report.bytes)
    )];
    lines.extend(report.failures.iter().map(|failure| format!("FAILED {failure}")));
    if report.failed > report.failures.len() as u64 {
        lines.push(format!("{} more failed", report.failed - report.failures.len() as u64));
    }
    let not_set = report.not_set_reason.as_ref().map(|reason| {
        format!("owners, modes, times or attributes not set: {}; the first: {reason}", report.not_set)
    });
    // What root could not set is a failure, which --quiet does not silence.
    if report.as_root {
        lines.extend(not_set.iter().map(|not_set| format!("FAILED {not_set}")));
    }
    let notes = not_set.filter(|_| !report.as_root);
    lines.join("\n") + &output.notes(notes.as_slice())
}
