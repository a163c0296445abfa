//! The log of changes, restricted to what the client may see.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use platter_api::{CHANGES_MAX, ChangesReply};
use platter_image::{Error, Result};
use platter_records::{ChangeRecord, History, ImageName};
use serde::Deserialize;

use super::Shared;
use super::body::json;
use super::gate::Asker;
use super::problem::Problem;
use crate::access::Principal;

/// Which changes are requested.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    image: Option<ImageName>,
    #[serde(default)]
    after: u64,
}

pub(super) async fn list(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(Wanted { image, after }) = query.map_err(|_| {
        Problem::bad_request(&Error::refused("image must be an image's name, and after a number"))
    })?;
    let shared = Arc::clone(&origin);
    let read = move |after| shared.store.changes_after(after, CHANGES_MAX);
    let history = origin.pool.run(move || match asker.who.reads_everything() {
        true => read(after),
        false => seen_after(&asker.who, after, &read),
    });
    let History { mut changes, last, is_whole } = history.await?;
    let up_to = changes.last().map_or(last, |change| change.number);
    changes.retain(|change| image.as_ref().is_none_or(|image| change.action.images().contains(&image)));
    json(&ChangesReply { changes, up_to, last, is_whole })
}

/// Returns the changes that a principal may see, with numbers of their own: those of the log count the changes of everybody.
/// Reads the whole log.
fn seen_after(who: &Principal, after: u64, read: &dyn Fn(u64) -> Result<History>) -> Result<History> {
    let mut seen = History { changes: Vec::new(), last: 0, is_whole: true };
    let mut read_up_to = 0;
    loop {
        let History { changes, last, is_whole } = read(read_up_to)?;
        seen.is_whole &= is_whole;
        let Some(newest) = changes.last().map(|change| change.number) else { return Ok(seen) };
        for change in changes {
            let Some(action) = change.action.visible(&|image| who.may_read(image)) else { continue };
            seen.last += 1;
            if seen.last > after && seen.changes.len() < CHANGES_MAX {
                seen.changes.push(ChangeRecord { number: seen.last, action, ..change });
            }
        }
        if newest >= last {
            return Ok(seen);
        }
        read_up_to = newest;
    }
}
