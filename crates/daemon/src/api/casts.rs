//! Endpoints for casts: senders report them, and clients list them.

use std::time::Instant;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use platter_api::CastStatus;

use super::Shared;
use super::body::{json, read_json};
use super::gate::Asker;
use super::path::Named;
use super::problem::{Problem, no_nameless};
use crate::casts::check_report;

pub(super) async fn list(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    json(&origin.casts.seen_by(&asker.who, Instant::now()))
}

pub(super) async fn tell(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named(id): Named<String>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let status: CastStatus = read_json(&origin, &asker, &headers, sent).await?;
    let image = check_report(&id, &status).map_err(|error| Problem::bad_request(&error))?;
    match &image {
        Some(image) => asker.check(image)?,
        None if asker.who.reads_everything() => {}
        None => return Err(no_nameless()),
    }
    if origin.casts.tell(&id, &asker.who, image.clone(), status.clone(), Instant::now())? {
        origin.tell_of_cast(&id, image, &status);
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
