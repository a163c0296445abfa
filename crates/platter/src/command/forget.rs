//! `platter forget`.

use std::process::ExitCode;

use platter_jobs::{Error, ForgetRequest, ImageName, OpenStore, Result, StoreLocation, forget};

use super::Outcome;
use crate::arguments::Forget;
use crate::output::Output;
use crate::question::{can_ask, is_answered_yes};
use crate::sizes::count;

pub(crate) fn run(store: &StoreLocation, options: &Forget, output: &Output) -> Outcome {
    let request = &options.what;
    if let ForgetRequest::Image(image) = request
        && !options.all
    {
        confirm(store, image)?;
    }
    let report = forget(store, request)?;
    output.fact(&report, || format!("forgotten: {}", report.forgotten.join(" ")));
    Ok(ExitCode::SUCCESS)
}

/// Asks for confirmation: in other commands a name without a number means the newest version, here it means all versions.
fn confirm(store: &StoreLocation, image: &ImageName) -> Result<()> {
    let versions = OpenStore::open_reader(store)?.history(image)?;
    let what = format!("all versions of {image} ({})", count(versions.len() as u64, "version"));
    if !can_ask() {
        return Err(Error::refused(format!(
            "this would forget {what}: name one version as {image}@NUMBER, or pass --all"
        )));
    }
    if is_answered_yes(&format!("This forgets {what}."))? {
        return Ok(());
    }
    Err(Error::refused(format!("cancelled: no version of {image} was forgotten")))
}
