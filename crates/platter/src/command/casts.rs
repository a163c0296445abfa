//! `platter casts`.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use platter_jobs::{CastReceiver, ListedCast, StoreLocation, casts};
use serde_json::json;

use super::Outcome;
use crate::arguments::Casts;
use crate::output::{Output, table};
use crate::sizes::{bytes, rate};

/// Pause between two lists.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn run(store: &StoreLocation, options: &Casts, output: &Output) -> Outcome {
    loop {
        let mut listed = casts(store)?;
        listed.retain(|cast| options.all || !cast.status.state.has_ended());
        show(&listed, output);
        if !options.watch {
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(PAUSE);
    }
}

fn show(listed: &[ListedCast], output: &Output) {
    if output.is_json() {
        listed.iter().for_each(|cast| output.fact(cast, String::new));
        return;
    }
    if listed.is_empty() {
        output.fact(&json!(null), || "no casts".into());
        return;
    }
    let head = ["CAST", "STATE", "RECEIVER", "STATE", "RECEIVED", "SPEED", "LIMIT", "REPAIRED"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for ListedCast { status, .. } in listed {
        let cast = vec![status.version.clone(), state(status.state)];
        let receivers =
            status.receivers.iter().map(|receiver| [cast.clone(), row(receiver, status.cast_bytes)]);
        match status.receivers.is_empty() {
            true => rows.push([cast, vec!["-".into(); 6]].concat()),
            false => rows.extend(receivers.map(|row| row.concat())),
        }
    }
    output.fact(&json!(null), || table(&rows));
}

/// The columns of a receiver. Its bytes follow from its chunks, which all have about the same length.
fn row(receiver: &CastReceiver, cast_bytes: u64) -> Vec<String> {
    let part = match receiver.state.as_str() {
        "done" => 1.0,
        _ => receiver.done_chunks as f64 / receiver.wanted_chunks.max(1) as f64,
    };
    let received = (cast_bytes as f64 * part) as u64;
    vec![
        receiver.name.clone(),
        receiver
            .reason
            .clone()
            .map_or_else(|| receiver.state.clone(), |why| format!("{}: {why}", receiver.state)),
        format!("{:.0} % of {}", part * 100.0, bytes(cast_bytes)),
        rate(received, receiver.seconds),
        receiver.limited_by.clone().unwrap_or_else(|| "-".into()),
        receiver.repaired_symbols.to_string(),
    ]
}

fn state(state: platter_jobs::CastState) -> String {
    serde_json::to_value(state).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
}
