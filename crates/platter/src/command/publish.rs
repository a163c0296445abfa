//! `platter publish`.

use std::process::ExitCode;

use platter_jobs::StoreLocation;
use platter_live::{LivePlace, PublishReport, PublishRequest, publish, publish_at};

use super::{Outcome, TOOL_VERSION};
use crate::agent::{of_disk, place_of};
use crate::arguments::Publish;
use crate::output::Output;
use crate::sizes::bytes;
use crate::terminal::Terminal;

pub(crate) fn run(store: &StoreLocation, options: &Publish, output: &Output) -> Outcome {
    let request = |place| PublishRequest {
        place,
        disk: options.disk.clone(),
        edit_lock: options.lock,
        branch: options.name.clone(),
        labels: options.labels.iter().cloned().collect(),
        notes: options.note.clone(),
        tool_version: TOOL_VERSION.into(),
    };
    let asked = match of_disk(store, &options.of, &options.far, &options.disk)? {
        // The node knows its store.
        Some(dir) => publish_at(&dir, &request(LivePlace::of_cache(store, &dir)))?,
        None => None,
    };
    let report = match asked {
        Some(report) => report,
        None => {
            let request = request(place_of(store, &options.of, &options.far)?);
            publish(&request, &Terminal::new(*output))?
        }
    };
    output.fact(&report, || text(&report));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn text(report: &PublishReport) -> String {
    format!(
        "{}  score {}\n{} of changes, {} new in {} blocks, stored in {}, {:.1} s{}",
        report.version,
        report.score,
        bytes(report.written_bytes),
        bytes(report.new_raw_bytes),
        report.new_blocks,
        bytes(report.new_stored_bytes),
        report.seconds,
        match report.consistency {
            platter_jobs::Consistency::Crash => "; published while in use: the state is as after a power cut",
            _ => "",
        }
    )
}
