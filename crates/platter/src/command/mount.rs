//! `platter mount`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use platter_browse::{MountEvent, MountRequest, mount};
use platter_jobs::{Error, Result, StoreLocation};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::Outcome;
use crate::arguments::Mount;
use crate::output::Output;
use crate::server::with_cache;

pub(crate) fn run(store: &StoreLocation, options: &Mount, output: &Output) -> Outcome {
    let stop = stop_at_signals()?;
    let store = with_cache(store, &options.cache_of_origin)?;
    let (location, mount_point) = options.parts()?;
    let policy = options.signatures.policy();
    let request = MountRequest {
        location: location.as_ref(),
        memory_bytes: (options.cache as usize) << 20,
        admit: Box::new(move |record| policy.admit(record).map(drop)),
        mount_point,
        allow_other: options.allow_other,
        stop: &stop,
    };
    let output = *output;
    mount(&store, request, move |event| match event {
        MountEvent::Mounted(mount_point) => output.fact(&json!({ "mounted": mount_point }), || {
            format!("mounted at {}; Ctrl-C or umount ends it", mount_point.display())
        }),
        MountEvent::Note(note) => output.note(note),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes true at the first signal. The second one ends the process: a program may still use the mount, or a request wait for an origin.
fn stop_at_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order, so that the first signal does not count as the second.
        flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()))
            .map_err(|error| Error::io("listening for signals", error))?;
    }
    Ok(stop)
}
