//! `platter hoard`.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use platter_jobs::{
    Error, HoardDailyReport, HoardDailyRequest, HoardMember, HoardStatus, HoardSyncReport, HoardSyncRequest,
    ImageName, ImportRequest, Machine, MemberFigures, OpenStore, RecordRequest, RegisterReport, Result,
    StoreLocation, growth_svg, hoard_daily, hoard_follow, hoard_followed, hoard_import, hoard_list,
    hoard_record, hoard_status, hoard_sync, hoard_unregister,
};
use serde_json::json;

use super::images::time;
use super::{Outcome, TOOL_VERSION};
use crate::arguments::Hoard;
use crate::output::{Output, table};
use crate::sizes::{bytes, count};
use crate::terminal::Terminal;

pub(crate) fn run(store: &StoreLocation, options: &Hoard, output: &Output) -> Outcome {
    match options {
        Hoard::Record { version, machine } => record(store, version.as_str(), machine.into(), output)?,
        Hoard::Import { trace, version, marker, command, accelerator } => {
            let request = ImportRequest {
                store: store.clone(),
                trace: trace.clone(),
                version: version.as_str().into(),
                marker: marker.clone(),
                command: command.clone(),
                accelerator: accelerator.clone(),
                tool_version: TOOL_VERSION.into(),
            };
            let report = hoard_import(&request, &Terminal::new(*output))?;
            output.fact(&report, || registered(&report));
        }
        Hoard::List => list(&hoard_list(store)?.members, output),
        Hoard::Show { version } => show(store, version.as_str(), output)?,
        Hoard::Unregister { what } => {
            let report = hoard_unregister(store, what.as_str())?;
            output.fact(&report, || {
                let lines = report.unregistered.iter().map(|name| format!("{name}: removed from the hoard"));
                format!("{}\nrevision {}", lines.collect::<Vec<_>>().join("\n"), report.revision)
            });
        }
        Hoard::Follow { name, stop, machine } => {
            follow(store, name.as_ref(), *stop, &machine.into(), output)?;
        }
        Hoard::Daily { keep_days, window_days, now } => {
            let request = HoardDailyRequest {
                store: store.clone(),
                keep_days: *keep_days,
                window_days: *window_days,
                now_unix_ms: now.map(|seconds| seconds.saturating_mul(1000)),
                tool_version: TOOL_VERSION.into(),
                stop: stopped_by_signals()?,
            };
            let report = hoard_daily(&request, &Terminal::new(*output))?;
            output.fact(&report, || daily(&report));
            if !report.failed.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Hoard::Sync { cache, whole } => {
            let request = HoardSyncRequest { store: store.clone(), cache: cache.clone(), whole: *whole };
            let terminal = Terminal::new(*output);
            let report = hoard_sync(&request, &terminal)?;
            drop(terminal);
            output.fact(&report, || synced(&report));
        }
        Hoard::Status { cache, svg } => {
            let status = hoard_status(store, cache.as_deref())?;
            if let Some(why) = &status.store_away {
                output.note(&format!("{why}; showing the node's own data only"));
            }
            if let Some(file) = svg {
                fs::write(file, growth_svg(&status))
                    .map_err(|error| Error::io(format!("writing {}", file.display()), error))?;
            }
            output.fact(&status, || status_text(&status));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The report of a hoard update.
pub(super) fn synced(report: &HoardSyncReport) -> String {
    format!(
        "revision {} (was {}): {}, {} new, {} removed; {} fetched, {} on disk, {} of memory",
        report.revision,
        report.revision_before,
        count(report.members as u64, "boot set"),
        report.added,
        report.gone,
        bytes(report.fetched_raw_bytes),
        bytes(report.disk_bytes),
        bytes(report.index_bytes as u64)
    )
}

/// A flag that SIGINT and SIGTERM set.
fn stopped_by_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Error::io("listening for signals", error))?;
    }
    Ok(stop)
}

fn record(store: &StoreLocation, version: &str, machine: Machine, output: &Output) -> Result<()> {
    let request = RecordRequest {
        store: store.clone(),
        version: version.to_owned(),
        machine,
        tool_version: TOOL_VERSION.into(),
        stop: stopped_by_signals()?,
    };
    let terminal = Terminal::new(*output);
    let report = hoard_record(&request, &terminal)?;
    drop(terminal);
    output.fact(&report, || registered(&report));
    Ok(())
}

fn registered(report: &RegisterReport) -> String {
    let new = if report.is_new { "" } else { " (already registered)" };
    let accelerator = match report.accelerator.as_str() {
        "" => String::new(),
        accelerator => format!(", {accelerator}"),
    };
    format!(
        "{}: {} of {} in {}, {} and {}\n{:.1} s until {}{accelerator}\nrevision {}{new}",
        report.version,
        "boot set",
        bytes(report.bytes),
        count(report.requests, "read"),
        count(u64::from(report.blocks), "block"),
        count(u64::from(report.pages), "page"),
        report.seconds,
        report.marker,
        report.revision
    )
}

fn list(members: &[HoardMember], output: &Output) {
    if output.is_json() {
        members.iter().for_each(|member| output.fact(member, String::new));
        return;
    }
    if members.is_empty() {
        output.fact(&json!(null), || "no boot sets yet: record one with `platter hoard record NAME`".into());
        return;
    }
    let head = ["VERSION", "REVISION", "SIZE", "READS", "SECONDS", "RECORDED", "BY", "UNTIL"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(members.iter().map(|member| {
        let record = &member.record;
        vec![
            member.version.to_string(),
            member.added.to_string(),
            bytes(record.bytes),
            record.requests.to_string(),
            format!("{:.1}", record.duration_ms as f64 / 1e3),
            time(record.time_unix_ms),
            recorded_by(record.boots, &record.nodes),
            record.marker.clone(),
        ]
    }));
    output.fact(&json!(null), || table(&rows));
}

/// Who recorded a boot set.
fn recorded_by(boots: u32, nodes: &[String]) -> String {
    match boots {
        0 => "a person".to_owned(),
        boots => format!("{} on {}", count(u64::from(boots), "boot"), count(nodes.len() as u64, "node")),
    }
}

fn show(store: &StoreLocation, version: &str, output: &Output) -> Result<()> {
    let store = OpenStore::open_reader(store)?;
    let hoard = store.hoard()?;
    let wanted = |member: &&HoardMember| {
        member.version.to_string() == version || member.version.image.as_str() == version
    };
    let member = hoard.members.iter().filter(wanted).max_by_key(|member| member.version.number);
    let member = member.ok_or_else(|| Error::missing(format!("the hoard has no boot set of {version}")))?;
    let set = store.boot_set(&member.boot_set)?;
    let ids =
        |rows: &[platter_jobs::BootBlock]| rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>();
    let facts = json!({
        "version": member.version.to_string(),
        "boot_set": member.boot_set.to_string(),
        "added": member.added,
        "record": member.record,
        "bytes": set.length(),
        "pages": ids(&set.pages),
        "blocks": ids(&set.blocks),
    });
    let record = &member.record;
    output.fact(&facts, || {
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        table(&[
            row("version", member.version.to_string()),
            row("boot set", member.boot_set.to_string()),
            row("score", record.score.to_string()),
            row("until", record.marker.clone()),
            row("command", record.command.clone()),
            row("accelerator", record.accelerator.clone()),
            row("recorded", time(record.time_unix_ms)),
            row("lasted", format!("{:.3} s", record.duration_ms as f64 / 1e3)),
            row("reads", format!("{}, {}", record.requests, bytes(record.bytes_read))),
            row("pages, blocks", format!("{}, {}", record.pages, record.blocks)),
            row("size", bytes(set.length())),
        ])
    });
    Ok(())
}

fn follow(
    store: &StoreLocation,
    name: Option<&ImageName>,
    stop: bool,
    machine: &Machine,
    output: &Output,
) -> Result<()> {
    let Some(name) = name else {
        for (image, machine) in hoard_followed(store)? {
            output.fact(&json!({ "image": image, "machine": machine }), || {
                format!("{image}: until {}, {} MiB of memory", machine.until, machine.memory_mib)
            });
        }
        return Ok(());
    };
    hoard_follow(store, name, (!stop).then_some(machine))?;
    let done = if stop { "no longer followed" } else { "`platter hoard daily` records its new versions" };
    output.fact(&json!({ "image": name, "followed": !stop }), || format!("{name}: {done}"));
    Ok(())
}

fn daily(report: &HoardDailyReport) -> String {
    let mut lines: Vec<String> = report.recorded.iter().map(registered).collect();
    lines.extend(report.failed.iter().map(|failed| format!("NOT RECORDED: {failed}")));
    lines.extend(report.dropped.iter().map(|name| format!("{name}: too old, removed from the hoard")));
    lines.push(format!("day {}, revision {}", report.day, report.revision));
    lines.join("\n")
}

fn status_text(status: &HoardStatus) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let part = |bytes: u64, of: u64| match of {
        0 => String::new(),
        of => format!(" ({:.1} %)", bytes as f64 * 100.0 / of as f64),
    };
    let mut rows = vec![
        row("revision", status.revision.to_string()),
        row("boot sets", status.boot_sets.len().to_string()),
    ];
    if status.store_away.is_none() {
        rows.extend([
            row("disks", bytes(status.virtual_bytes)),
            row("in use", bytes(status.allocated_bytes)),
        ]);
    }
    rows.extend([
        row("sum of boot sets", bytes(status.boot_set_bytes)),
        row("unique", bytes(status.unique_bytes) + &part(status.unique_bytes, status.boot_set_bytes)),
    ]);
    if let Some(replica) = &status.replica {
        rows.extend([
            row("local: revision", replica.revision.to_string()),
            row(
                "local: on disk",
                bytes(replica.disk_bytes) + &part(replica.disk_bytes, status.boot_set_bytes),
            ),
            row("local: memory", bytes(replica.index_bytes as u64)),
        ]);
    }
    rows.push(row("next image (estimate)", bytes(status.next_bytes)));
    if let Some(fit) = status.fit {
        rows.push(row(
            "growth",
            format!(
                "{} x images^{:.3}, mean error {:.1} %, from {}",
                bytes(fit.factor as u64),
                fit.exponent,
                fit.error * 100.0,
                count(fit.points as u64, "image")
            ),
        ));
    }
    rows.extend(
        status
            .extrapolated
            .iter()
            .map(|(images, size)| row(&format!("{images} images (estimate)"), bytes(*size))),
    );
    rows.extend(
        status
            .nodes
            .iter()
            .map(|node| row(&format!("node {}", node.name), format!("revision {}", node.hoard_revision))),
    );
    let mut text = table(&rows);
    if !status.boot_sets.is_empty() {
        text += &format!("\n\n{}", boot_sets_table(&status.boot_sets));
    }
    text
}

fn boot_sets_table(sets: &[MemberFigures]) -> String {
    let head = ["VERSION", "BOOT SET", "NEW", "SUM", "UNIQUE SUM", "RECORDED BY"];
    let figures = |it: &MemberFigures| [it.bytes, it.new_bytes, it.sum_bytes, it.unique_bytes].map(bytes);
    let row = |it: &MemberFigures| {
        let by = recorded_by(it.boots, &it.nodes);
        std::iter::once(it.version.clone()).chain(figures(it)).chain([by]).collect()
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(String::from).to_vec()).chain(sets.iter().map(row)).collect();
    table(&rows)
}
