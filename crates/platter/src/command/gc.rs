//! `platter gc`.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use platter_jobs::{
    CollectReport, CollectRequest, Error, PackCount, Progress, Result, StoreLocation, collect,
};
use platter_live::overlay_bases;

use super::Outcome;
use crate::arguments::Gc;
use crate::output::Output;
use crate::question::{can_ask, is_answered_yes};
use crate::sizes::{bytes, count};
use crate::terminal::Terminal;

pub(crate) fn run(store: &StoreLocation, options: &Gc, output: &Output) -> Outcome {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let request = CollectRequest {
        now_unix_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        keep_trash_ms: i64::try_from(options.keep_trash.as_millis()).unwrap_or(i64::MAX),
        dry_run: options.dry_run,
        is_confirmed: options.yes,
        compact_percent: options.compact,
        recompress: options.recompress,
        end_leases: options.end_leases,
    };
    let mut report = run_once(store, &request, output)?;
    if report.needs_confirmation && !options.dry_run {
        confirm(&report)?;
        report = run_once(store, &CollectRequest { is_confirmed: true, ..request }, output)?;
    }
    output.fact(&report, || text(&report, options.dry_run));
    Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_once(store: &StoreLocation, request: &CollectRequest, output: &Output) -> Result<CollectReport> {
    let terminal = Terminal::new(*output);
    collect(store, request, &overlay_bases, &mut |phase| terminal.begin(phase, 0))
}

/// Asks before much is given up at once: that may be a mistake.
fn confirm(report: &CollectReport) -> Result<()> {
    let what = format!(
        "nothing needs {} of {} in {}",
        bytes(report.unneeded_bytes),
        bytes(report.before.bytes),
        count(report.before.packs as u64, "pack")
    );
    if !can_ask() {
        return Err(Error::refused(format!(
            "{what}, which is more than {} %: nothing was given up; --yes confirms it",
            CollectRequest::BRAKE_PERCENT
        )));
    }
    if is_answered_yes(&format!("It is much: {what}. Forgotten versions cannot be brought back afterwards."))?
    {
        return Ok(());
    }
    Err(Error::refused("cancelled: nothing was given up"))
}

fn packs(counted: PackCount) -> String {
    format!("{} in {}", bytes(counted.bytes), count(counted.packs as u64, "pack"))
}

fn text(report: &CollectReport, is_dry: bool) -> String {
    let mut lines =
        vec![format!("before: {}, of which {} are needed", packs(report.before), bytes(report.live_bytes))];
    if is_dry {
        lines.push(format!("would give up {}", packs(report.given_up)));
        lines.push(format!("would compact {}", packs(report.compacted)));
        if report.needs_confirmation {
            lines.push(format!(
                "{} of {} would be given up, more than {} %: gc then asks, or needs --yes",
                bytes(report.unneeded_bytes),
                bytes(report.before.bytes),
                CollectRequest::BRAKE_PERCENT
            ));
        }
    } else {
        lines.push(format!("gave up {}", packs(report.given_up)));
        if report.copied_bytes > 0 {
            lines.push(format!(
                "compacted {}, copied {}",
                packs(report.compacted),
                bytes(report.copied_bytes)
            ));
        }
        if report.waiting.packs > 0 {
            lines.push(format!("no space to compact {}: run gc again with more", packs(report.waiting)));
        }
        lines.push(format!("deleted {}", packs(report.deleted)));
    }
    if report.leased > 0 {
        lines.push(format!(
            "kept for clients that read them in the last 7 days: {}; --end-leases gives them up now",
            count(report.leased as u64, "forgotten disk")
        ));
    }
    lines.push(format!("trash: {}", packs(report.trash)));
    lines.extend(report.failed.iter().map(|failed| format!("FAILED {failed}")));
    lines.join("\n")
}
