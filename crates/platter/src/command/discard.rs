//! `platter discard`.

use std::process::ExitCode;

use platter_jobs::StoreLocation;
use platter_live::{discard, discard_at};
use serde_json::json;

use super::Outcome;
use crate::agent::{of_disk, place_of};
use crate::arguments::Discard;
use crate::output::Output;
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Discard, output: &Output) -> Outcome {
    let (disk, edit_lock) = (&options.disk, options.lock);
    let asked = match of_disk(store, &options.of, &options.far, disk)? {
        Some(dir) => discard_at(&dir, disk, edit_lock)?,
        None => None,
    };
    let written = match asked {
        Some(written) => written,
        None => discard(&place_of(store, &options.of, &options.far)?, disk, edit_lock)?,
    };
    output.fact(&json!({ "discarded": options.disk, "written_bytes": written }), || {
        format!("discarded {} of changes to {}", bytes(written), options.disk)
    });
    Ok(ExitCode::SUCCESS)
}
