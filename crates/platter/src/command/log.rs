//! `platter log`.

use std::process::ExitCode;

use platter_jobs::{OpenStore, StoreLocation};
use serde_json::json;

use super::Outcome;
use super::images::time;
use crate::arguments::Log;
use crate::output::{Output, table};

pub(crate) fn run(store: &StoreLocation, options: &Log, output: &Output) -> Outcome {
    let history = OpenStore::open_reader(store)?.changes(options.name.as_ref())?;
    if !history.is_whole {
        output.note("a log of changes is damaged: changes may be missing (`platter check` says more)");
    }
    if output.is_json() {
        history.changes.iter().for_each(|change| output.fact(change, String::new));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["NUMBER", "TIME", "WHO", "FROM", "CHANGE"].map(String::from).to_vec()];
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    rows.extend(history.changes.iter().map(|change| {
        let (who, from) = (shown(&change.by.who), shown(&change.by.from));
        vec![change.number.to_string(), time(change.time_unix_ms), who, from, change.action.to_string()]
    }));
    output.fact(&json!(null), || table(&rows));
    Ok(ExitCode::SUCCESS)
}
