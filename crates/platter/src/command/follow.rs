//! `platter follow`.

use std::process::ExitCode;

use platter_jobs::{ErrorKind, FollowRequest, Standing, StoreLocation, follow};
use serde_json::json;

use super::Outcome;
use crate::arguments::{Follow, ServerArguments};
use crate::output::{Output, exit_code};
use crate::server::{local_actor, origin_access, server_at};
use crate::terminal::Terminal;

pub(crate) fn run(
    store: &StoreLocation,
    options: &Follow,
    server: &ServerArguments,
    output: &Output,
) -> Outcome {
    let request = FollowRequest {
        store: store.local("following an origin")?.clone().with_actor(local_actor()),
        origin: server_at(&options.origin, server)?,
        access: origin_access(&options.origin, server)?,
        address: options.address.clone().unwrap_or_default(),
        once: options.once,
        accept_loss: options.accept_loss,
    };
    let standing = follow(&request, &Terminal::new(*output))?;
    output.fact(&json!({ "standing": standing, "summary": standing.summary() }), || standing.summary());
    let Standing::Follower(following) = &standing else { return Ok(ExitCode::SUCCESS) };
    for out in &following.left_out {
        output.note(&format!("{} was left out: {}", out.what, out.why));
    }
    Ok(match following.left_out.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(exit_code(ErrorKind::Corrupt)),
    })
}
