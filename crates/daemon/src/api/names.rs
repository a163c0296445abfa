//! Endpoints for names of versions, and for their signatures: clone, forget, protect, rename, sign.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use platter_api::{CloneRequest, ForgetRequest, ProtectRequest, RenameRequest, SignRequest};
use platter_image::Error;
use platter_records::VersionQuery;

use super::Shared;
use super::body::{json, read_json};
use super::gate::Asker;
use super::problem::Problem;

pub(super) async fn clone(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: CloneRequest = read_json(&origin, &asker, &headers, sent).await?;
    let from = request.from.parse().map_err(|error| Problem::bad_request(&error))?;
    let VersionQuery::Named(image, choice) = from else {
        return Err(Problem::bad_request(&Error::refused(
            "a score cannot be cloned: name a version that has it",
        )));
    };
    asker.check(&image)?;
    asker.check_new(&request.to)?;
    let shared = Arc::clone(&origin);
    let (who, by) = (asker.who.clone(), asker.by.clone());
    let limits = who.limits();
    let cloned = origin.pool.run(move || shared.clone_version(&image, choice, request, limits, &by)).await?;
    json(&who.shown(cloned.record))
}

pub(super) async fn forget(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: ForgetRequest = read_json(&origin, &asker, &headers, sent).await?;
    asker.check(&request.image)?;
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.forget(&request, &asker.by)).await?)
}

pub(super) async fn protect(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: ProtectRequest = read_json(&origin, &asker, &headers, sent).await?;
    asker.check(&request.image)?;
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.protect(&request, &asker.by)).await?)
}

pub(super) async fn protected(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    let mut names = origin.pool.run(move || shared.store.protected()).await?;
    names.retain(|name| asker.who.may_read(&name.image));
    json(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
}

pub(super) async fn rename(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: RenameRequest = read_json(&origin, &asker, &headers, sent).await?;
    asker.check(&request.from)?;
    asker.check_new(&request.to)?;
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.rename(&request, &asker.by)).await?)
}

pub(super) async fn sign(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: SignRequest = read_json(&origin, &asker, &headers, sent).await?;
    asker.check(&request.image)?;
    let shared = Arc::clone(&origin);
    let (who, by) = (asker.who.clone(), asker.by.clone());
    let signed = origin.pool.run(move || shared.sign(&request, &by)).await?;
    json(&who.shown(signed.record))
}
