//! Endpoints for access tokens: list, add, remove.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use platter_api::AddAccessTokenRequest;

use super::Shared;
use super::body::{json, read_json};
use super::gate::Asker;
use super::path::Named;
use super::problem::Problem;

pub(super) async fn list(State(origin): State<Shared>) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.access.list()).await?)
}

pub(super) async fn add(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let AddAccessTokenRequest { name, role, patterns, quota_bytes } =
        read_json(&origin, &asker, &headers, sent).await?;
    let shared = Arc::clone(&origin);
    let made = origin.pool.run(move || shared.access.add(&name, role, patterns, quota_bytes)).await?;
    let mut response = json(&made)?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

pub(super) async fn remove(
    State(origin): State<Shared>,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.remove_token(&id)).await?)
}
