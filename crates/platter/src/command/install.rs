//! `platter install`.

use std::process::ExitCode;

use platter_jobs::{InstallRequest, StoreLocation, TargetRequest, install};

use super::Outcome;
use crate::arguments::Install;
use crate::output::Output;
use crate::server::with_cache;
use crate::sizes::{bytes, rate};
use crate::target::{comparison, delta, part, request, table_changes};
use crate::terminal::Terminal;

pub(crate) fn run(store: &StoreLocation, options: &Install, output: &Output) -> Outcome {
    let request = InstallRequest {
        store: with_cache(store, &options.cache)?,
        version: options.version.version.clone(),
        target: TargetRequest {
            delta: options.delta.choice(),
            from: options.delta.from.clone(),
            part: options.version.part,
            ..request(&options.target, &options.target_options, *output)?
        },
        agreed: None,
        signatures: options.signatures.policy(),
    };
    let terminal = Terminal::new(*output);
    let report = install(&request, &terminal)?;
    drop(terminal);
    output.fact(&report, || {
        let mut text = format!(
            "installed {}{} on {}: {} of data, {} of zeros, {:.1} s, {}\nverified score {}",
            part(report.partition),
            report.version,
            report.target,
            bytes(report.written_bytes),
            bytes(report.zeroed_bytes),
            report.seconds,
            rate(report.written_bytes, report.seconds),
            report.score,
        );
        text += &delta(report.delta.as_ref(), report.fetched_bytes);
        text += &table_changes(report.backup_gpt_moved, report.grown.as_ref(), report.new_ids);
        text += &comparison(report.compared.as_ref(), report.backup_gpt_moved);
        text + &output.notes(&report.notes)
    });
    Ok(ExitCode::SUCCESS)
}
