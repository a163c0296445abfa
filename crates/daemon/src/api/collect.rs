//! Garbage collection.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use platter_api::CollectRequest;

use super::Shared;
use super::body::{json, read_json};
use super::gate::Asker;
use super::problem::Problem;

pub(super) async fn collect(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: CollectRequest = read_json(&origin, &asker, &headers, sent).await?;
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.collect(&request)).await?)
}
