//! `platter capture`.

use std::process::ExitCode;

use platter_jobs::{
    AuditReport, CaptureOptions, CaptureReport, CaptureRequest, CutPolicy, InputOptions, KnownCheck,
    PartitionChoices, Repairs, SourceName, StoreLocation, SurveyOptions, UnreadableRecord, capture,
};

use super::{Outcome, TOOL_VERSION};
use crate::arguments::Capture;
use crate::interruption::tell_of;
use crate::output::{EXIT_DIFFERENT, Output};
use crate::sizes::{bytes, rate};
use crate::terminal::Terminal;

pub(crate) fn run(store: &StoreLocation, options: &Capture, output: &Output) -> Outcome {
    let defaults = CaptureOptions::default();
    let source = SourceName::of(&options.source);
    let request = CaptureRequest {
        store: store.clone(),
        source: source.path,
        input: InputOptions {
            format: options.format,
            backing: options.backing.clone(),
            partition: source.partition,
            disk: options.disk.clone(),
        },
        name: options.name.clone(),
        survey: SurveyOptions {
            force: options.force,
            all: options.all,
            raw: options.raw,
            skip_gaps: options.skip_gaps,
            choices: PartitionChoices {
                skip: options.skip_partition.clone(),
                whole: options.whole_partition.clone(),
                filesystems: options.filesystems.clone(),
            },
        },
        allow_in_use: options.force,
        skip_bad: options.skip_bad,
        audit: options.audit,
        sector_size: options.sector_size.as_deref().and_then(|size| size.parse().ok()),
        options: CaptureOptions {
            threads: options.threads.unwrap_or(defaults.threads),
            level: options.level,
            cut_policy: match options.block_size.as_str() {
                "32" => CutPolicy::FILE_ALIGNED_32K_GRID_32K,
                _ => CutPolicy::FILE_ALIGNED_64K_GRID_32K,
            },
            frame_length: usize::from(options.frame_size) << 10,
            ..defaults
        },
        known: if options.verify_known { KnownCheck::All } else { KnownCheck::Sample },
        labels: options.labels.iter().cloned().collect(),
        notes: options.note.clone(),
        edit_lock: (&options.lock).into(),
        tool_version: TOOL_VERSION.into(),
    };
    let image = request.name.clone();
    let remove = match store {
        StoreLocation::Local(_) => ", and `platter discard-interrupted` deletes them",
        _ => "",
    };
    let state = move || {
        format!(
            "no version was published, unless `platter history {image}` lists it; the next capture reuses the blocks that were \
             stored{remove}"
        )
    };
    tell_of(state, *output)?;
    let terminal = Terminal::new(*output);
    let report = capture(&request, &terminal)?;
    drop(terminal);
    output.fact(&report, || text(&report));
    let disagrees = report.audit.is_some_and(|audit| !audit.disagreements.is_empty());
    Ok(if disagrees { ExitCode::from(EXIT_DIFFERENT) } else { ExitCode::SUCCESS })
}

fn text(report: &CaptureReport) -> String {
    let known = report.data_bytes.saturating_sub(report.new_raw_bytes);
    let mut text = format!(
        "{}  score {}\n\
         disk: {}, in use: {}: {} of data ({} already in the store), {} of zeros\n\
         new: {} in {} blocks, stored in {}\n\
         {:.1} s, {} of space in use",
        report.version,
        report.score,
        bytes(report.disk_bytes),
        bytes(report.allocated_bytes),
        bytes(report.data_bytes),
        bytes(known),
        bytes(report.zero_bytes),
        bytes(report.new_raw_bytes),
        report.new_blocks,
        bytes(report.new_stored_bytes),
        report.seconds,
        rate(report.allocated_bytes, report.seconds),
    );
    let Repairs { repaired, still_damaged, known_frames_read: _ } = &report.repairs;
    if !repaired.is_empty() {
        text += &format!("\nrepaired: {}", repaired.join(", "));
    }
    if !still_damaged.is_empty() {
        text += &format!("\nstill damaged, because other blocks are missing: {}", still_damaged.join(", "));
    }
    text += &unreadable(report);
    text += &report.audit.as_ref().map(audit).unwrap_or_default();
    text
}

fn unreadable(report: &CaptureReport) -> String {
    let line = |range: &UnreadableRecord| {
        format!("\nunreadable, stored as zeros: {} bytes at {}  {}", range.length, range.offset, range.file)
    };
    let listed: String = report.unreadable.iter().map(line).collect();
    let more = report.unreadable_omitted.map(|more| {
        format!("\nunreadable, stored as zeros: {} bytes in {} more places", more.bytes, more.ranges)
    });
    listed + &more.unwrap_or_default()
}

fn audit(audit: &AuditReport) -> String {
    let mut lines = Vec::new();
    for part in &audit.compared {
        let kind = if part.kind.is_empty() { "unknown contents" } else { &part.kind };
        lines.push(format!(
            "audit: at {}: {kind}, {} of {} in use according to other tools, {} kept",
            part.offset,
            bytes(part.used_bytes),
            bytes(part.length),
            bytes(part.kept_bytes),
        ));
    }
    lines.extend(audit.not_compared.iter().map(|what| format!("audit: not compared: {what}")));
    if !audit.missing_tools.is_empty() {
        lines.push(format!("audit: not installed: {}", audit.missing_tools.join(", ")));
    }
    for lost in &audit.disagreements {
        lines.push(format!("audit: {} bytes at {} were not kept: {}", lost.length, lost.offset, lost.reason));
    }
    if audit.disagreements.is_empty() {
        lines.push("audit: no space that other tools report as used was left out".to_owned());
    }
    lines.iter().map(|line| format!("\n{line}")).collect()
}
