//! `platter images`.

use std::process::ExitCode;

use platter_jobs::{
    ImageCosts, OpenStore, PackCount, StoreLocation, Version, VersionName, VersionRecord, image_costs,
};
use serde::Serialize;
use serde_json::json;

use super::Outcome;
use crate::arguments::Images;
use crate::output::{Output, table};
use crate::sizes::{bytes, count};

pub(crate) fn run(store: &StoreLocation, options: &Images, output: &Output) -> Outcome {
    if options.costs {
        return costs(store, output);
    }
    let store = OpenStore::open_reader(store)?;
    let (images, protected) = (store.images()?, store.protected()?);
    if output.is_json() {
        for version in &images {
            let protected = protected.contains(&version.name);
            output.fact(&Listed { record: &version.record, protected }, String::new);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if images.is_empty() {
        output.fact(&json!(null), || "no images yet: create one with `platter capture DISK NAME`".into());
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![HEAD.map(String::from).to_vec()];
    rows.extend(images.iter().map(|version| row(version, &protected)));
    output.fact(&json!(null), || table(&rows));
    Ok(ExitCode::SUCCESS)
}

/// Prints what forgetting each image would free.
fn costs(store: &StoreLocation, output: &Output) -> Outcome {
    let costs = image_costs(store)?;
    output.fact(&costs, || {
        let ImageCosts { one_of, images, shared_bytes, trash, .. } = &costs;
        let mut rows = vec![["IMAGE", "VERSIONS", "ONLY HERE"].map(String::from).to_vec()];
        rows.extend(images.iter().map(|cost| {
            vec![cost.image.to_string(), cost.versions.to_string(), bytes(cost.exclusive_bytes)]
        }));
        let estimate =
            if *one_of > 1 { format!("\nestimated from one of {one_of} blocks") } else { String::new() };
        format!("{}\n{}{estimate}", table(&rows), shared_and_trash(*shared_bytes, *trash))
    });
    Ok(ExitCode::SUCCESS)
}

/// What no image has for itself.
fn shared_and_trash(shared_bytes: u64, trash: PackCount) -> String {
    let packs = count(trash.packs as u64, "pack");
    format!("in several images: {}; trash: {} in {packs}", bytes(shared_bytes), bytes(trash.bytes))
}

/// A version's record, and whether it is protected.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    record: &'a VersionRecord,
    protected: bool,
}

/// The columns of a list of versions.
pub(super) const HEAD: [&str; 7] = ["VERSION", "TIME", "DISK", "IN USE", "ADDED", "PROTECTED", "SCORE"];

/// A version as a row of such a list.
pub(super) fn row(version: &Version, protected: &[VersionName]) -> Vec<String> {
    let record = &version.record;
    vec![
        version.name.to_string(),
        time(record.time_unix_ms),
        bytes(record.disk_length),
        bytes(record.allocated_bytes),
        bytes(record.new_stored_bytes),
        if protected.contains(&version.name) { "yes".into() } else { "-".into() },
        record.score.to_string()[..16].to_owned(),
    ]
}

/// Time in this machine's time zone.
pub(super) fn time(unix_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(unix_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}
