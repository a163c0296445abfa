//! `platter receive`.

use std::path::Path;
use std::process::ExitCode;

use platter_jobs::{
    Error, HoardReceiveRequest, OriginCastRequest, ReceiveOptions, ReceiveRequest, TargetRequest, Wanted,
    Way, hoard_receive, receive,
};

use super::Outcome;
use super::cast::rejected;
use super::hoard::synced;
use crate::arguments::{Receive, ServerArguments};
use crate::join_key;
use crate::output::Output;
use crate::probe;
use crate::server::server_at;
use crate::sizes::{bytes, rate};
use crate::target::{comparison, delta, part, request, table_changes};
use crate::terminal::Terminal;

pub(crate) fn run(options: &Receive, server: &ServerArguments, output: &Output) -> Outcome {
    let (origin, (wanted, partition)) = (origin(options, server)?, options.wanted()?);
    let network = network(options, wanted, output)?;
    if options.probe {
        return probe::receiver(&network, output);
    }
    if let Some(cache) = &options.hoard {
        let request = HoardReceiveRequest { cache: cache.clone(), network };
        let report = hoard_receive(&request, &Terminal::new(*output))?;
        output.fact(&report, || synced(&report));
        return Ok(ExitCode::SUCCESS);
    }
    let [.., target] = &options.what[..] else {
        return Err(Error::bug("receive without a target"));
    };
    let receiving = ReceiveRequest {
        target: TargetRequest {
            delta: options.delta.choice(),
            from: options.delta.from.clone(),
            part: partition,
            ..request(Path::new(target), &options.target_options, *output)?
        },
        network,
        signatures: options.signatures.policy(),
        trust_any: options.trust_any,
        origin,
    };
    let terminal = Terminal::new(*output);
    let report = receive(&receiving, &terminal)?;
    drop(terminal);
    output.fact(&report, || {
        let mut text = format!(
            "received {}{} on {}: {} of data, {:.1} s, {}{}\nverified score {}",
            part(report.partition),
            report.version,
            report.target,
            bytes(report.written_bytes),
            report.seconds,
            rate(report.written_bytes, report.seconds),
            match report.way {
                Way::Multicast => format!("; {} symbols repaired", report.repaired_symbols),
                Way::Origin => ", from the origin alone".into(),
            },
            report.score,
        );
        text += &delta(report.delta.as_ref(), report.fetched_bytes);
        text += &table_changes(report.backup_gpt_moved, report.grown.as_ref(), report.new_ids);
        if report.ignored_senders > 0 {
            text += &format!("\nignored {} senders of another disk under this name", report.ignored_senders);
        }
        text += &rejected(report.rejected_datagrams, report.repeated_datagrams);
        text += &comparison(report.compared.as_ref(), report.backup_gpt_moved);
        if !report.acknowledged {
            text += &output.notes(&["the sender did not receive the result and may list this machine as lost"]);
        }
        if report.fetched_chunks > 0 {
            text += &format!(
                "\n{} chunks failed verification and were fetched from the sender directly; possible cause: forged datagrams",
                report.fetched_chunks
            );
        }
        text + &output.notes(&report.notes)
    });
    Ok(ExitCode::SUCCESS)
}

/// The options of the receiver.
fn network(options: &Receive, wanted: Wanted, output: &Output) -> platter_jobs::Result<ReceiveOptions> {
    let defaults = ReceiveOptions::default();
    Ok(ReceiveOptions {
        interface: interface(options)?,
        wanted,
        join_key: options.key_file.as_deref().map(|file| join_key::read(file, output)).transpose()?,
        port: options.port,
        sender: options.sender.as_ref().map(|sender| sender.address),
        hello: options.hello.clone().unwrap_or_else(host_name),
        buffer_chunks: usize::from(options.buffer) * (1 << 20) / platter_jobs::CHUNK_BYTES_MAX,
        give_up: options.give_up,
        ..defaults
    })
}

/// The interface that is named, also as a part of the sender's address.
fn interface(options: &Receive) -> platter_jobs::Result<Option<String>> {
    let of_sender = options.sender.as_ref().and_then(|sender| sender.interface.as_ref());
    match (&options.interface, of_sender) {
        (Some(one), Some(other)) if one != other => Err(Error::refused(format!(
            "--interface {one} and --sender name two interfaces: {one} and {other}"
        ))),
        (one, other) => Ok(one.as_ref().or(other).cloned()),
    }
}

/// The origin that is asked to cast the version, if the arguments name one.
fn origin(options: &Receive, server: &ServerArguments) -> platter_jobs::Result<Option<OriginCastRequest>> {
    let Some(address) = &server.server else { return Ok(None) };
    // The usage refuses it without a version.
    let named = options.named()?.ok_or_else(|| Error::bug("an origin without a version"))?;
    Ok(Some(OriginCastRequest { origin: server_at(address, server)?, version: named.version }))
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "?".into(), |name| name.trim().to_owned())
}
