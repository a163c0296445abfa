//! `platter log`.

use std::process::ExitCode;

use platter_jobs::{Error, OpenStore, StoreLocation};
use serde_json::json;

use super::Outcome;
use super::images::time;
use crate::arguments::Log;
use crate::output::{Output, table};

/// Most characters of one change: one may list hundreds of packs. `--json` shows all of it.
const CHANGE_LENGTH_MAX: usize = 72;

pub(crate) fn run(store: &StoreLocation, options: &Log, output: &Output) -> Outcome {
    let history = OpenStore::open_reader(store)?.changes(options.name.as_ref())?;
    if !history.is_whole {
        output.note("a log of changes is damaged: changes may be missing (`platter check` says more)");
    }
    if let Some(name) = options.name.as_ref().filter(|_| history.is_whole && history.changes.is_empty()) {
        return Err(Error::missing(format!("there never was an image {name}")));
    }
    if output.is_json() {
        history.changes.iter().for_each(|change| output.fact(change, String::new));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["NUMBER", "TIME", "WHO", "FROM", "CHANGE"].map(String::from).to_vec()];
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    rows.extend(history.changes.iter().map(|change| {
        let (who, from) = (shown(&change.by.who), shown(&change.by.from));
        vec![change.number.to_string(), time(change.time_unix_ms), who, from, cut(change.action.to_string())]
    }));
    output.fact(&json!(null), || table(&rows));
    Ok(ExitCode::SUCCESS)
}

/// Cuts a long text, and says so.
fn cut(text: String) -> String {
    match text.char_indices().nth(CHANGE_LENGTH_MAX) {
        Some((end, _)) => format!("{}... (--json)", &text[..end]),
        None => text,
    }
}
