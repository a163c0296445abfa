//! `platter promote`.

use std::process::ExitCode;

use platter_jobs::{PromoteReport, PromoteRequest, Standing, Store, StoreLocation, promote};

use super::Outcome;
use crate::arguments::{Promote, ServerArguments};
use crate::output::Output;
use crate::server::{local_actor, names_access, server_at};
use crate::terminal::Terminal;

pub(crate) fn run(
    store: &StoreLocation,
    options: &Promote,
    server: &ServerArguments,
    output: &Output,
) -> Outcome {
    let place = store.local("promoting a follower")?.clone().with_actor(local_actor());
    let address = match (&options.origin, Store::open_reader(&place)?.standing()?) {
        (Some(address), _) => Some(address.clone()),
        // As it was followed, unless the access is named anew.
        (None, Standing::Follower(following)) if names_access(server) => Some(following.access.address),
        _ => None,
    };
    let origin = address.map(|address| server_at(&address, server)).transpose()?;
    let request = PromoteRequest {
        store: place,
        origin,
        address: options.address.clone().unwrap_or_default(),
        without_origin: options.without_origin,
        supersede: options.supersede,
    };
    let report = promote(&request, &Terminal::new(*output))?;
    output.fact(&report, || text(&report));
    Ok(ExitCode::SUCCESS)
}

fn text(report: &PromoteReport) -> String {
    let mut lines = vec![format!("this store is the origin now, with epoch {}", report.epoch)];
    lines.push(match report.told {
        true => format!("{} confirmed that it accepts no more changes", report.former),
        false => format!("{} does not know it: `platter serve` tells it when it returns", report.former),
    });
    if report.last > 0 {
        lines.push(format!("changes up to {} of {} that are known", report.up_to, report.last));
    }
    match report.missing.is_empty() {
        true => lines.push("everything that was known has arrived".into()),
        false => lines.push(format!("NOT arrived: {}", report.missing.join(", "))),
    }
    lines.join("\n")
}
