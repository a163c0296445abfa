//! `platter trace`.

use std::process::ExitCode;

use platter_live::{TraceSummary, trace_summary};

use super::Outcome;
use super::images::time;
use crate::arguments::Trace;
use crate::output::{Output, table};
use crate::sizes::{bytes, count};

pub(crate) fn run(options: &Trace, output: &Output) -> Outcome {
    let summary = trace_summary(&options.file)?;
    if !summary.whole {
        output.note(
            "the trace is incomplete: the recording process was killed, and the last requests are missing",
        );
    }
    output.fact(&summary, || text(&summary));
    Ok(ExitCode::SUCCESS)
}

fn text(trace: &TraceSummary) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    row("score", trace.base.clone());
    row("disk", bytes(trace.disk_bytes));
    row("began", time(trace.began_unix_ms));
    row("lasted", format!("{:.3} s", trace.seconds));
    row("reads", format!("{}, {}", trace.reads, bytes(trace.bytes_read)));
    row("distinct", bytes(trace.distinct_bytes_read));
    row("writes", format!("{}, {}", trace.writes, bytes(trace.bytes_written)));
    row("other", format!("{} of zeros, {} flushes", count(trace.zeroes, "write"), trace.flushes));
    row("failed, not recorded", format!("{}, {}", trace.failed, trace.lost));
    row(
        "read times",
        format!(
            "total {:.3} s; median {:.1} us, 99th percentile {:.1} us",
            trace.read_service_seconds, trace.read_p50_us, trace.read_p99_us
        ),
    );
    for size in &trace.read_sizes {
        row(&format!("up to {}", size.bytes_max), count(size.reads, "read"));
    }
    table(&rows)
}
