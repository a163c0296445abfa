//! The log of changes, restricted to what the client may see.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use platter_api::{CHANGES_MAX, ChangesReply};
use platter_image::Error;
use platter_records::{Action, ChangeRecord, ImageName};
use serde::Deserialize;

use super::Shared;
use super::body::json;
use super::gate::Asker;
use super::problem::Problem;

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
    let history = origin.pool.run(move || shared.store.changes_after(after, CHANGES_MAX)).await?;
    let up_to = history.changes.last().map_or(history.last, |change| change.number);
    let (last, is_whole) = (history.last, history.is_whole);
    let seen = history.changes.into_iter().filter_map(|change| {
        let action = visible(&asker, &change)?;
        let is_wanted = image.as_ref().is_none_or(|image| action.images().contains(&image));
        is_wanted.then_some(ChangeRecord { action, ..change })
    });
    let reply = ChangesReply { changes: seen.collect(), up_to, last, is_whole };
    json(&reply)
}

fn visible(asker: &Asker, change: &ChangeRecord) -> Option<Action> {
    if asker.who.reads_everything() {
        return Some(change.action.clone());
    }
    change.action.visible(&|image| asker.who.may_read(image))
}
