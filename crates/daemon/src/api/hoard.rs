//! Endpoints for the hoard: boot sets, their revisions, and changes since a revision.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use platter_api::UnregisterRequest;
use platter_image::{BlockId, Error};
use platter_records::{BOOT_SET_LENGTH_MAX, BootSet, VersionName};
use serde::Deserialize;

use super::Shared;
use super::body::{self, json, read_json};
use super::gate::Asker;
use super::path::Named;
use super::problem::Problem;

/// The revision after which changes are requested.
#[derive(Deserialize)]
pub(super) struct Since {
    since: u64,
    #[serde(default)]
    epoch: String,
}

/// The version of a boot set.
#[derive(Deserialize)]
pub(super) struct OfVersion {
    image: String,
    number: u64,
}

pub(super) async fn snapshot(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.hoard(&asker.who)).await?)
}

pub(super) async fn changes(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    query: Result<Query<Since>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(Since { since, epoch }) = query.map_err(|_| lacks("a number since="))?;
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.hoard_changes(&asker.who, &epoch, since)).await?)
}

pub(super) async fn boot_set(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    let id = BlockId::from_hex(&id)
        .ok_or_else(|| Problem::bad_request(&Error::refused(format!("invalid id of a boot set {id:?}"))))?;
    let shared = Arc::clone(&origin);
    let bytes = origin.pool.run(move || shared.boot_set(&asker.who, &id)).await?;
    let mut response = bytes.into_response();
    let kind = HeaderValue::from_static("application/x-platter-boot-set");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

pub(super) async fn record(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    query: Result<Query<OfVersion>, QueryRejection>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let Query(OfVersion { image, number }) = query.map_err(|_| lacks("image= and number="))?;
    let image = image.parse().map_err(|error| Problem::bad_request(&error))?;
    asker.check(&image)?;
    let held = body::read(&origin, &asker, &headers, sent, BOOT_SET_LENGTH_MAX).await?;
    let (_, set) = BootSet::decode_unnamed(&held.bytes).map_err(|error| Problem::bad_request(&error))?;
    drop(held);
    let name = VersionName { image, number };
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.record_boot_set((&asker.who, &asker.by), &name, &set)).await?)
}

pub(super) async fn unregister(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: UnregisterRequest = read_json(&origin, &asker, &headers, sent).await?;
    asker.check(&request.image)?;
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.unregister_boot_set((&asker.who, &asker.by), &request)).await?)
}

fn lacks(what: &str) -> Problem {
    Problem::bad_request(&Error::refused(format!("the query lacks {what}")))
}
