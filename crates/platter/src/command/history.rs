//! `platter history`.

use std::process::ExitCode;

use platter_jobs::{OpenStore, StoreLocation};
use serde_json::json;

use super::Outcome;
use super::images::{HEAD, row};
use super::show::Facts;
use crate::arguments::Image;
use crate::output::{Output, table};

pub(crate) fn run(store: &StoreLocation, options: &Image, output: &Output) -> Outcome {
    let store = OpenStore::open_reader(store)?;
    let (versions, held) = (store.history(&options.name)?, store.edit_lock(&options.name)?);
    let protected = store.protected()?;
    if output.is_json() {
        for version in &versions {
            let (record, protected) = (&version.record, protected.contains(&version.name));
            output.fact(&Facts { record, current_edit_lock: held.as_ref(), protected }, String::new);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![HEAD.iter().chain(&["LOCK", "CLONE OF"]).map(ToString::to_string).collect()];
    rows.extend(versions.iter().map(|version| {
        let record = &version.record;
        let edit_lock = record.edit_lock.map_or("-".into(), |number| number.to_string());
        let origin = record.cloned_from.as_ref().map_or("-".into(), ToString::to_string);
        row(version, &protected).into_iter().chain([edit_lock, origin]).collect()
    }));
    output.fact(&json!(null), || {
        let edited = held.map_or(String::new(), |edit_lock| format!("\nbeing edited: {edit_lock}"));
        table(&rows) + &edited
    });
    Ok(ExitCode::SUCCESS)
}
