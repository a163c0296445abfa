//! `platter export`.

use std::process::ExitCode;

use platter_jobs::{StoreLocation, export};

use super::Outcome;
use crate::arguments::Export;
use crate::output::Output;
use crate::server::with_cache;
use crate::sizes::bytes;
use crate::terminal::Terminal;

pub(crate) fn run(store: &StoreLocation, options: &Export, output: &Output) -> Outcome {
    let terminal = Terminal::new(*output);
    let report = export(&with_cache(store, &options.cache)?, &options.version, &options.file, &terminal)?;
    drop(terminal);
    output.fact(&report, || {
        let (length, written) = (bytes(report.disk_bytes), bytes(report.written_bytes));
        format!(
            "{} is in {}: {length}, of it {written} data\nverified score {}",
            report.version, report.file, report.score
        )
    });
    Ok(ExitCode::SUCCESS)
}
