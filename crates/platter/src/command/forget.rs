//! `platter forget`.

use std::process::ExitCode;

use platter_jobs::{
    Error, ForgetRequest, ImageName, OpenStore, Result, RetentionPolicy, Store, StoreLocation, forget, retain,
};
use serde_json::json;

use super::Outcome;
use crate::arguments::Forget;
use crate::output::Output;
use crate::question::{can_ask, is_answered_yes};
use crate::sizes::count;

pub(crate) fn run(store: &StoreLocation, options: &Forget, output: &Output) -> Outcome {
    let request = &options.what;
    let policy = options.keep.policy();
    if !policy.is_empty() {
        return retain_versions(store, options, &policy, output);
    }
    if let ForgetRequest::Image(image) = request
        && !options.all
    {
        if let StoreLocation::Local(place) = store {
            Store::refuse_changes(place)?;
        }
        confirm(store, image)?;
    }
    let report = forget(store, request)?;
    output.fact(&report, || format!("forgotten: {}", report.forgotten.join(" ")));
    Ok(ExitCode::SUCCESS)
}

/// Forgets what a policy does not keep.
fn retain_versions(
    store: &StoreLocation,
    options: &Forget,
    policy: &RetentionPolicy,
    output: &Output,
) -> Outcome {
    // The usage refuses it without.
    let ForgetRequest::Image(image) = &options.what else {
        return Err(Error::bug("a policy for a single version"));
    };
    let (below, dry_run) = (options.keep.below, options.keep.dry_run);
    let retained = retain(store, image, below, policy, dry_run)?;
    for image in &retained {
        for verdict in &image.verdicts {
            let version = format!("{}@{}", image.image, verdict.number);
            let is_kept = !image.is_forgotten(verdict);
            let reasons = match verdict.reasons.is_empty() && is_kept {
                true => vec!["refused".into()],
                false => verdict.reasons.clone(),
            };
            let facts =
                json!({ "version": version, "kept": is_kept, "reasons": reasons, "dry_run": dry_run });
            output.fact(&facts, || match (is_kept, dry_run) {
                (true, _) => format!("keep    {version}  {}", reasons.join(", ")),
                (false, true) => format!("would forget {version}"),
                (false, false) => format!("forgot  {version}"),
            });
        }
    }
    match retained.iter().filter_map(|image| image.refused.as_ref()).next() {
        None => Ok(ExitCode::SUCCESS),
        Some(refused) => {
            Err(Error::refused(format!("not all was forgotten that the policy does not keep: {refused}")))
        }
    }
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
