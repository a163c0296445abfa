//! Endpoints for edit locks: list, take, release.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use platter_api::TakeEditLockRequest;
use platter_image::Error;
use platter_records::ImageName;

use super::Shared;
use super::body::{json, read_json};
use super::gate::Asker;
use super::path::Named;
use super::problem::Problem;

pub(super) async fn list(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    let mut edit_locks = origin.pool.run(move || shared.store.edit_locks()).await?;
    edit_locks.retain(|edit_lock| asker.who.may_read(&edit_lock.image));
    json(&edit_locks)
}

pub(super) async fn take(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: TakeEditLockRequest = read_json(&origin, &asker, &headers, sent).await?;
    asker.check(&request.image)?;
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.take_edit_lock(&request, &asker.by)).await?)
}

pub(super) async fn release(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named((image, number)): Named<(String, String)>,
) -> Result<Response, Problem> {
    let image: ImageName = image.parse().map_err(|error| Problem::bad_request(&error))?;
    asker.check(&image)?;
    let number = number
        .parse()
        .map_err(|_| Problem::bad_request(&Error::refused(format!("invalid edit lock number {number:?}"))))?;
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.release_edit_lock(&image, number, &asker.by)).await?)
}
