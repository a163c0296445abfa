//! `platter push` and `platter pull`.

use std::process::ExitCode;

use platter_jobs::{
    ErrorKind, Imported, KnownCheck, PushReport, PushRequest, Result, StoreLocation, StorePlace, push,
};

use super::Outcome;
use crate::arguments::{Push, ServerArguments};
use crate::output::{Output, exit_code};
use crate::server::other_store;
use crate::sizes::{bytes, count};
use crate::terminal::Terminal;

/// Which of two stores gets the versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Push,
    Pull,
}

pub(crate) fn run(
    store: &StoreLocation,
    options: &Push,
    direction: Direction,
    server: &ServerArguments,
    output: &Output,
) -> Outcome {
    let (what, other) = options.parts()?;
    let other = located(store, (other, options), server)?;
    let (from, to) = match direction {
        Direction::Push => (store.clone(), other),
        Direction::Pull => (other, store.clone()),
    };
    let known = if options.verify_known { KnownCheck::All } else { KnownCheck::Sample };
    let request = PushRequest { from, to, what, restore: options.restore, known };
    let report = push(&request, &Terminal::new(*output))?;
    output.fact(&report, || text(&report));
    Ok(report.failure.map_or(ExitCode::SUCCESS, |kind| ExitCode::from(exit_code(kind))))
}

fn located(
    store: &StoreLocation,
    (other, options): (&str, &Push),
    server: &ServerArguments,
) -> Result<StoreLocation> {
    let is_remote = matches!(store, StoreLocation::Remote(_));
    match other_store(other, &options.access, server, is_remote)? {
        Some(origin) => Ok(origin.into()),
        None => {
            let wait = match store {
                StoreLocation::Local(place) => place.lock_wait(),
                StoreLocation::Remote(_) => None,
            };
            let place =
                StorePlace::on_system(other).with_actor(crate::server::local_actor()).with_lock_wait(wait);
            match place.is_store()? {
                true => Ok(place.into()),
                false => Err(platter_jobs::Error::new(
                    ErrorKind::Missing,
                    format!("{other} is no store: name its directory, or the URL of an origin"),
                )),
            }
        }
    }
}

fn text(report: &PushReport) -> String {
    let mut lines = Vec::new();
    for version in &report.versions {
        lines.push(match version.result {
            Imported::Added => {
                format!("{}  {}, {}", version.version, count(version.blocks, "block"), bytes(version.bytes))
            }
            Imported::SignaturesAdded => format!("{}  signatures added", version.version),
            Imported::Present if version.blocks > 0 => {
                format!("{}  was there; {} mended", version.version, count(version.blocks, "block"))
            }
            Imported::Present => format!("{}  was there", version.version),
            Imported::Former => {
                format!("{}  was forgotten or renamed there: --restore copies it", version.version)
            }
        });
    }
    lines.extend(report.failed.iter().map(|(version, why)| format!("{version}  NOT copied: {why}")));
    lines.push(format!(
        "{} in {}, {}",
        count(report.blocks, "block"),
        count(report.frames, "frame"),
        bytes(report.bytes)
    ));
    lines.join("\n")
}
