//! `platter attach`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use platter_jobs::{Error, Result, StoreLocation, default_holder};
use platter_live::{
    AttachRequest, Attached, DiskRequest, FuseAddress, FuseEvent, LiveEvent, LivePlace, NbdAddress, NbdEvent,
    NinepAddress, NinepEvent, RecordReport, ServeAddress, ServersRequest, TlsFolder, TreeAccess,
    WriteRequest, attach, attach_at,
};
use serde_json::json;

use super::publish::text as published;
use super::{Outcome, TOOL_VERSION};
use crate::agent;
use crate::arguments::{Attach, DiskArguments, NbdArguments, TreeArguments, VersionArgument};
use crate::output::Output;
use crate::server::with_cache;
use crate::sizes::{bytes, count};

/// The requests to serve these versions.
pub(super) fn disks<'a>(
    versions: impl IntoIterator<Item = &'a VersionArgument>,
    options: &DiskArguments,
) -> Vec<DiskRequest> {
    let write = options.write.then(|| WriteRequest {
        holder: options.holder.clone().unwrap_or_else(default_holder),
        steal: options.steal,
        on_detach: options.on_detach.into(),
        publish_every: options.publish_every,
        notes: options.note.clone(),
    });
    let request = |version: &VersionArgument| DiskRequest {
        write: write.clone(),
        fill: options.fill,
        ..DiskRequest::new(version.to_string())
    };
    versions.into_iter().map(request).collect()
}

/// The NBD address in the arguments. Paths are made absolute, so that they are also valid for a node.
pub(super) fn nbd(options: &NbdArguments) -> Result<Option<NbdAddress>> {
    let Some(address) = options.nbd.clone() else { return Ok(None) };
    Ok(Some(nbd_at(options, address)?))
}

/// The NBD address with the access control from the arguments.
pub(super) fn nbd_at(options: &NbdArguments, address: ServeAddress) -> Result<NbdAddress> {
    let tls = options.tls_certificates.as_deref().map(|dir| -> Result<TlsFolder> {
        Ok(TlsFolder { dir: absolute(dir)?, verify_peer: options.tls_verify_peer })
    });
    let address = absolute_address(address)?;
    Ok(NbdAddress { address, tls: tls.transpose()?, insecure_loopback: options.insecure_loopback })
}

/// The address with an absolute path.
fn absolute_address(address: ServeAddress) -> Result<ServeAddress> {
    Ok(match address {
        ServeAddress::Unix(path) => ServeAddress::Unix(absolute(&path)?),
        tcp => tcp,
    })
}

/// Makes a path absolute.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io(path.display().to_string(), error))
}

/// Where the tree of all images is served.
pub(super) fn trees(
    options: &TreeArguments,
    nbd: &NbdArguments,
) -> Result<(Option<FuseAddress>, Option<NinepAddress>)> {
    let fuse = options.fuse.as_deref().map(absolute).transpose()?;
    let fuse = fuse.map(|mount_point| FuseAddress { mount_point, allow_other: options.allow_other });
    let ninep = options.ninep.clone().map(absolute_address).transpose()?;
    let insecure_loopback = nbd.insecure_loopback;
    Ok((fuse, ninep.map(|address| NinepAddress { address, insecure_loopback })))
}

pub(crate) fn run(store: &StoreLocation, options: &Attach, output: &Output) -> Outcome {
    if let Some(dir) = agent::of_attach(store, options)? {
        return at_node(&dir, options, output);
    }
    let stop = stop_at_signals()?;
    let store = with_cache(store, &options.cache_of_origin)?;
    // Reads of cached and hoarded data do not need the origin.
    let place = match options.cache_of_origin.cache_dir.as_ref().or(options.hoard.as_ref()) {
        Some(dir) if !options.disk.write && matches!(store, StoreLocation::Remote(_)) => {
            LivePlace::of_cache(&store, dir)
        }
        _ => LivePlace::open(&store, options.far.overlays.as_deref())?,
    };
    let mut disks = disks(&options.versions, &options.disk);
    disks.iter_mut().for_each(|disk| disk.record.clone_from(&options.record));
    let (fuse, ninep) = trees(&options.tree, &options.nbd)?;
    let tree_access = if options.disk.write { TreeAccess::Names } else { TreeAccess::ReadOnly };
    let request = AttachRequest {
        place,
        disks,
        servers: ServersRequest { nbd: nbd(&options.nbd)?, fuse, ninep, tree_access },
        memory_bytes: (options.cache as usize) << 20,
        hoard: options.hoard.clone(),
        node: None,
        take_over: false,
        signatures: options.signatures.policy(),
        tool_version: TOOL_VERSION.into(),
        stop,
    };
    let output = *output;
    attach(request, Box::new(move |event| tell(event, output)))?;
    Ok(ExitCode::SUCCESS)
}

/// Has a node serve the disks.
fn at_node(dir: &Path, options: &Attach, output: &Output) -> Outcome {
    if options.signatures.keys.trusted_keys.is_some() || options.signatures.allow_older {
        return Err(Error::refused(
            "a node has its own trusted keys, and decides by them which versions it serves: --trusted-keys and --allow-older are \
             options of `platter node`",
        ));
    }
    let nbd = nbd(&options.nbd)?;
    let record = options.record.as_deref().map(absolute).transpose()?;
    let requests = disks(&options.versions, &options.disk).into_iter();
    let requests = requests.map(|it| DiskRequest { nbd: nbd.clone(), record: record.clone(), ..it });
    for disk in attach_at(dir, requests.collect())? {
        output.fact(&json!({ "attached": disk }), || attached(&disk));
    }
    Ok(ExitCode::SUCCESS)
}

/// A flag that SIGINT and SIGTERM set.
pub(super) fn stop_at_signals() -> platter_jobs::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Error::io("listening for signals", error))?;
    }
    Ok(stop)
}

pub(super) fn tell(event: &LiveEvent<'_>, output: Output) {
    match event {
        LiveEvent::Attached(disk) => output.fact(&json!({ "attached": disk }), || attached(disk)),
        LiveEvent::Published(report) => {
            output.fact(&json!({ "published": report }), || published(report));
        }
        LiveEvent::Detached { disk, kept } => {
            output.fact(&json!({ "detached": disk, "kept": kept }), || match kept {
                true => format!(
                    "{disk} detached; unpublished changes are kept: `platter publish {disk}`, `platter discard {disk}`, or attach it again"
                ),
                false => format!("{disk} detached"),
            });
        }
        LiveEvent::Stopped { disk } => {
            output.fact(&json!({ "stopped": disk }), || {
                format!("{disk}: served again when this node is started")
            });
        }
        LiveEvent::Filled { disk } => {
            output.fact(&json!({ "filled": disk }), || format!("{disk} is filled: it is fully local"));
        }
        LiveEvent::Recorded(report) => {
            output.fact(&json!({ "recorded": report }), || recorded(report));
        }
        LiveEvent::Nbd(event) => {
            if let Some(note) = of_client(event) {
                output.note(&note);
            }
        }
        LiveEvent::Fuse(FuseEvent::Mounted { mount_point }) => {
            output.fact(&json!({ "mounted": mount_point }), || {
                format!("file tree of all images mounted at {}", mount_point.display())
            });
        }
        LiveEvent::Fuse(event) => {
            if let Some(note) = of_mount(event) {
                output.note(&note);
            }
        }
        LiveEvent::Ninep(event) => {
            if let Some(note) = of_9p_client(event) {
                output.note(&note);
            }
        }
        // Nothing may be closed here: it belongs to the successor now.
        LiveEvent::HandedOver => std::process::exit(0),
        LiveEvent::Note(note) => output.note(note),
    }
}

/// A note for failures of a client; normal connects and disconnects are not reported.
fn of_client(event: &NbdEvent<'_>) -> Option<String> {
    match event {
        NbdEvent::Connected { .. } | NbdEvent::Opened { .. } | NbdEvent::Disconnected { error: None, .. } => {
            None
        }
        NbdEvent::TurnedAway { error } | NbdEvent::AcceptFailed { error } => {
            Some(format!("a client was rejected: {}", error.with_causes()))
        }
        NbdEvent::RequestFailed { export, command, offset, length, error, repeats, .. } => {
            let again =
                if *repeats > 0 { format!(" (repeated {repeats} times before)") } else { String::new() };
            let error = error.with_causes();
            Some(format!("{export}: {command:?} of {length} bytes at {offset} failed: {error}{again}"))
        }
        NbdEvent::Disconnected { connection, error: Some(error) } => {
            Some(format!("client {connection} was disconnected: {}", error.with_causes()))
        }
    }
}

/// A note for failures of the mounted tree.
fn of_mount(event: &FuseEvent<'_>) -> Option<String> {
    match event {
        FuseEvent::Mounted { .. } | FuseEvent::Unmounted { .. } | FuseEvent::PassthroughRefused { .. } => {
            None
        }
        FuseEvent::StaleUnmounted { mount_point } => {
            Some(format!("{}: removed the stale mount of a dead server", mount_point.display()))
        }
        FuseEvent::RequestFailed { node, range, error } => {
            let range = range
                .map_or_else(String::new, |range| format!(", {} bytes at {}", range.length, range.offset));
            Some(format!("node {node} of the tree{range}: {error}"))
        }
        FuseEvent::Busy { mount_point } => {
            Some(format!("{} is still in use; unmounting it anyway", mount_point.display()))
        }
    }
}

/// A note for failures of a 9P client.
fn of_9p_client(event: &NinepEvent<'_>) -> Option<String> {
    match event {
        NinepEvent::Connected { .. } | NinepEvent::Disconnected { error: None, .. } => None,
        NinepEvent::TurnedAway { error } | NinepEvent::AcceptFailed { error } => {
            Some(format!("a 9P client was rejected: {error}"))
        }
        NinepEvent::RequestFailed { kind, error, .. } => Some(format!("9P {kind:?} failed: {error}")),
        NinepEvent::Disconnected { connection, error: Some(error) } => {
            Some(format!("9P client {connection} was disconnected: {error}"))
        }
    }
}

fn recorded(report: &RecordReport) -> String {
    let lost = match report.lost {
        0 => String::new(),
        lost => format!(", {} not recorded", count(lost, "request")),
    };
    format!(
        "{}: recorded {}, {} read, {} written{lost}, in {}",
        report.disk,
        count(report.requests, "request"),
        bytes(report.bytes_read),
        bytes(report.bytes_written),
        report.file.display()
    )
}

fn attached(disk: &Attached) -> String {
    let before = match disk.written_bytes {
        0 => String::new(),
        written => format!(", {} unpublished", bytes(written)),
    };
    let access = if disk.writable { "read-write" } else { "read-only" };
    format!(
        "{} ({}, {access}{before}) at {}\nscore {}",
        disk.disk,
        bytes(disk.disk_bytes),
        disk.exports.join(" "),
        disk.base
    )
}
