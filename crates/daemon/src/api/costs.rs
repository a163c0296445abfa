//! What each image costs.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use platter_image::Error;
use serde::Deserialize;

use super::Shared;
use super::body::json;
use super::problem::Problem;

#[derive(Deserialize)]
pub(super) struct ToCount {
    /// Whether to count now.
    count: Option<bool>,
}

pub(super) async fn costs(
    State(origin): State<Shared>,
    query: Result<Query<ToCount>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(ToCount { count }) =
        query.map_err(|_| Problem::bad_request(&Error::refused("count must be true or false")))?;
    let shared = Arc::clone(&origin);
    json(&match count {
        Some(true) => origin.costs.pool.run(move || shared.count_costs()).await?,
        _ => origin.pool.run(move || shared.known_costs()).await?,
    })
}
