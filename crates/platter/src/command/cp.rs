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
    Ok(if report.failed > 0 { ExitCode::from(EXIT_CORRUPT) } else { ExitCode::SUCCESS })
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
    let notes = report.not_set_reason.as_ref().map(|reason| {
        format!("owners, modes, times or attributes not set: {}; the first: {reason}", report.not_set)
    });
    lines.join("\n") + &output.notes(notes.as_slice())
}
