//! `platter history`.

use std::path::Path;
use std::process::ExitCode;

use platter_jobs::Store;
use serde_json::json;

use super::images::{HEAD, row};
use super::{Outcome, place};
use crate::arguments::Image;
use crate::output::{Output, table};

pub(crate) fn run(store: &Path, options: &Image, output: &Output) -> Outcome {
    let versions = Store::open_reader(&place(store))?.history(&options.name)?;
    if output.is_json() {
        versions.iter().for_each(|version| output.fact(&version.record, String::new));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![HEAD.map(String::from).to_vec()];
    rows.extend(versions.iter().map(row));
    output.fact(&json!(null), || table(&rows));
    Ok(ExitCode::SUCCESS)
}
