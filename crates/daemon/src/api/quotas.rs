//! Endpoints for quotas: list, set, remove.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use platter_api::{SetQuotaReport, SetQuotaRequest};

use super::Shared;
use super::body::{json, read_json};
use super::gate::Asker;
use super::problem::Problem;

/// The quotas of prefixes below which the client may read everything: the use of others would tell of hidden images.
pub(super) async fn list(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    let listed = origin.pool.run(move || shared.store.quotas(&|prefix| asker.who.may_read_below(prefix)));
    json(&listed.await?)
}

pub(super) async fn set(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let SetQuotaRequest { prefix, limit_bytes } = read_json(&origin, &asker, &headers, sent).await?;
    let shared = Arc::clone(&origin);
    let set = origin.pool.run(move || {
        let before = shared.writer.change(&asker.by, |store| store.set_quota(&prefix, limit_bytes))?;
        shared.note_change();
        Ok(SetQuotaReport { before })
    });
    json(&set.await?)
}
