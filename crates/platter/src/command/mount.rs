//! `platter mount`.

use std::process::ExitCode;

use platter_browse::{MountEvent, MountRequest, mount};
use platter_jobs::StoreLocation;
use serde_json::json;

use super::Outcome;
use super::attach::stop_at_signals;
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
