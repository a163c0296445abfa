//! `platter cast`.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;

use platter_jobs::{
    CastReport, CastRequest, HoardCastRequest, Progress, ReceiverReport, Result, SEGMENT_DATA_MAX, SendEvent,
    SendOptions, SenderAddress, ServerOptions, SpoolDirectory, StoreLocation, cast, cast_planned, hoard_cast,
    origin_of, raise_files_limit, receiver_report,
};
use platter_live::{NodeCastRequest, cast_at};
use serde::Serialize;

use super::Outcome;
use crate::arguments::Cast;
use crate::interruption::tell_of;
use crate::join_key;
use crate::output::{Output, table};
use crate::probe;
use crate::sizes::{bytes, rate};
use crate::terminal::Terminal;

/// Open files of a cast: the connections of receivers, 256 over which nobody has joined yet, as many at its port and on their way from there,
/// and the store's.
const FILES: u64 = platter_jobs::CAST_CONNECTIONS_MAX as u64 + 4 * 256;

/// JSON output: one line per receiver when it ends, and one for the whole cast at the end.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Receiver(&'a ReceiverReport),
    Cast(&'a CastReport),
}

pub(crate) fn run(store: &StoreLocation, options: &Cast, output: &Output) -> Outcome {
    let network = network(options, output)?;
    if options.probe {
        return probe::sender(&network, output);
    }
    let terminal = Terminal::new(*output);
    let files = raise_files_limit(FILES);
    if files < FILES {
        terminal.note(&format!(
            "the system allows {files} of {FILES} open files (ulimit -n), too few for a large room"
        ));
    }
    let mut told = HashSet::new();
    let mut sent = 0;
    let mut on_event = |event: &SendEvent| match event {
        SendEvent::Ready { place, group } => {
            let join = SenderAddress::from(place.address);
            terminal.note(&format!("casting to {group}; receivers join at {join}"));
            terminal.begin("casting", 0);
        }
        SendEvent::Status { receivers, progress } => {
            terminal.advance(progress.bytes.saturating_sub(sent));
            sent = progress.bytes;
            let reports: Vec<ReceiverReport> = receivers.iter().map(receiver_report).collect();
            let parts =
                receivers.iter().map(|it| f64::from(it.done_chunks) / f64::from(it.wanted_chunks.max(1)));
            terminal.show(&overview(&reports.iter().zip(parts).collect::<Vec<_>>()));
            if told.len() > receivers.len() {
                // Places of receivers that are gone were given to others.
                let ids: HashSet<u32> = receivers.iter().map(|status| status.id).collect();
                told.retain(|(id, _)| ids.contains(id));
            }
            for (status, report) in receivers.iter().zip(reports) {
                if report.has_ended() && told.insert((status.id, report.state.clone())) {
                    if output.is_json() {
                        output.fact(&Line::Receiver(&report), String::new);
                    } else {
                        terminal.note(&ended(&report));
                    }
                }
            }
        }
    };
    let report = match (&options.hoard, &options.node) {
        (Some(cache), _) => {
            let request = HoardCastRequest { cache: cache.clone(), network };
            hoard_cast(&request, &terminal, &mut on_event)?
        }
        (None, Some(dir)) => from_node(dir, options, &network, &terminal, &mut on_event)?,
        (None, None) => {
            let request = CastRequest {
                store: store.clone(),
                report_to: Some(report_to(store)),
                spool: spool(store, options, output)?,
                version: version(options),
                readable: options.readable,
                segment_data_max: segment_data_max(options),
                network,
            };
            cast(&request, &terminal, &mut on_event)?
        }
    };
    drop(terminal);
    output.fact(&Line::Cast(&report), || text(&report));
    let all_done =
        !report.receivers.is_empty() && report.receivers.iter().all(|receiver| receiver.state == "done");
    Ok(if all_done { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The origin that is told of the cast, if it answers.
fn report_to(store: &StoreLocation) -> ServerOptions {
    match store {
        StoreLocation::Local(place) => origin_of(place),
        StoreLocation::Remote(origin) => origin.server.clone(),
    }
}

/// Casts a version that a node reads.
fn from_node(
    dir: &Path,
    options: &Cast,
    network: &SendOptions,
    terminal: &Terminal,
    on_event: &mut dyn FnMut(&SendEvent),
) -> Result<CastReport> {
    let request = NodeCastRequest {
        version: version(options),
        segment_data_max: segment_data_max(options),
        has_key: network.join_key.is_some(),
        readable: options.readable,
    };
    terminal.begin("planning", 0);
    let node_cast = cast_at(dir, &request, &mut |status| {
        terminal.show(&format!("{} of {} blocks in the cache of the node", status.held, status.blocks));
    })?;
    cast_planned(network, node_cast.description(), &node_cast, on_event)
}

fn version(options: &Cast) -> String {
    options.version.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn segment_data_max(options: &Cast) -> u64 {
    options.segment.map_or(SEGMENT_DATA_MAX, |mib| mib << 20)
}

/// The options of the sender.
fn network(options: &Cast, output: &Output) -> Result<SendOptions> {
    let join_key =
        options.key_file.as_deref().map(|file| join_key::read_or_create(file, output)).transpose()?;
    Ok(SendOptions {
        join_key,
        interface: options.interface.clone(),
        group: options.group,
        port: options.port,
        join_port: options.port,
        rate_bits_per_second: options.rate,
        wait_receivers: options.receivers,
        wait: options.wait,
        linger: options.linger,
        give_up: options.give_up,
        ..SendOptions::default()
    })
}

/// The directory for a copy of an origin's version, which is removed when the cast is interrupted.
fn spool(store: &StoreLocation, options: &Cast, output: &Output) -> Result<Option<SpoolDirectory>> {
    let StoreLocation::Remote(_) = store else { return Ok(None) };
    let spool = SpoolDirectory::make(options.spool.as_deref())?;
    let interrupted = spool.clone();
    let state = move || {
        interrupted.remove();
        "the cast has ended; its copy of the version was removed".to_owned()
    };
    tell_of(state, *output)?;
    Ok(Some(spool))
}

/// The state of all receivers in a line; each comes with the part that it has received.
fn overview(receivers: &[(&ReceiverReport, f64)]) -> String {
    let count = |is: fn(&ReceiverReport) -> bool| receivers.iter().filter(|(report, _)| is(report)).count();
    let mut text = format!("{} of {} done", count(|it| it.state == "done"), receivers.len());
    let failed = count(|it| it.has_ended() && it.state != "done");
    if failed > 0 {
        text += &format!(", {failed} failed or lost");
    }
    let under_way = receivers.iter().filter(|(report, _)| !report.has_ended());
    if let Some((last, part)) = under_way.min_by(|one, other| one.1.total_cmp(&other.1)) {
        text += &format!("; last: {} {} {:.0} %", last.name, last.state, part * 100.0);
        if let Some(limit) = &last.limited_by {
            text += &format!(", limited by {limit}");
        }
    }
    text
}

fn ended(report: &ReceiverReport) -> String {
    match &report.reason {
        Some(reason) => format!("{} {}: {reason}", report.name, report.state),
        None => format!(
            "{} {}: {} in {:.1} s",
            report.name,
            report.state,
            bytes(report.written_bytes),
            report.seconds
        ),
    }
}

fn text(report: &CastReport) -> String {
    let head = ["RECEIVER", "STATE", "WRITTEN", "SPEED", "LIMIT", "REPAIRED", "VERIFIED SCORE"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(report.receivers.iter().map(|receiver| {
        vec![
            receiver.name.clone(),
            receiver.state.clone(),
            bytes(receiver.written_bytes),
            rate(receiver.written_bytes, receiver.seconds),
            receiver.limited_by.clone().unwrap_or_else(|| "-".into()),
            receiver.repaired_symbols.to_string(),
            receiver.score.clone().or_else(|| receiver.reason.clone()).unwrap_or_else(|| "-".into()),
        ]
    }));
    let extra = report.symbols_sent as f64 / report.symbols.max(1) as f64;
    let mut text = format!(
        "{}\n{} cast in {:.1} s: {} in {} symbols, sent {extra:.3} times, {} on the wire, {}",
        table(&rows),
        report.version,
        report.seconds,
        bytes(report.cast_bytes),
        report.symbols,
        bytes(report.wire_bytes),
        rate(report.wire_bytes, report.seconds),
    );
    text += &rejected(report.rejected_datagrams, report.repeated_datagrams);
    text
}

/// A line about rejected datagrams; empty if there were none.
pub(super) fn rejected(rejected: u64, repeated: u64) -> String {
    if rejected + repeated == 0 {
        return String::new();
    }
    format!("\nrejected {rejected} forged or foreign datagrams and {repeated} repeated ones")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overview_names_the_last_receiver() {
        let report = |name: &str, state: &str| ReceiverReport {
            name: name.into(),
            state: state.into(),
            score: None,
            reason: None,
            written_bytes: 0,
            seconds: 0.0,
            bytes_per_second: 0.0,
            repaired_symbols: 0,
            limited_by: (state == "slow").then(|| "disk".into()),
        };
        let all = [report("a", "done"), report("b", "receiving"), report("c", "slow"), report("d", "lost")];
        let overview =
            |count: usize| overview(&all.iter().zip([1.0, 0.5, 0.25, 0.1]).take(count).collect::<Vec<_>>());
        assert_eq!(overview(0), "0 of 0 done");
        assert_eq!(overview(2), "1 of 2 done; last: b receiving 50 %");
        assert_eq!(overview(4), "1 of 4 done, 1 failed or lost; last: c slow 25 %, limited by disk");
    }
}
