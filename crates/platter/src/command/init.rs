//! `platter init`.

use std::process::ExitCode;

use platter_jobs::{Store, StoreLocation};
use serde_json::json;

use super::Outcome;
use crate::output::Output;

pub(crate) fn run(store: &StoreLocation, output: &Output) -> Outcome {
    let place = store.local("creating a store")?;
    Store::init(place)?;
    let dir = place.dir().display();
    output.fact(&json!({ "store": dir.to_string() }), || format!("created a store in {dir}"));
    Ok(ExitCode::SUCCESS)
}
