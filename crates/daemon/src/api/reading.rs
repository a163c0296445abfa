//! Endpoints that read: the store, its images and versions, and the origin itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use platter_api::{ResolveReply, StoreFacts, StoreKeys, VersionFacts};
use platter_image::Error;
use platter_image::recipe::Recipe;
use platter_records::{EditLock, ImageName, Resolved, Version, VersionQuery, VersionRecord};
use platter_store::{Store, missing_blocks};
use platter_transport::to_hex;
use serde::Deserialize;

use super::Shared;
use super::body::json;
use super::gate::Asker;
use super::problem::Problem;
use crate::config::GROWTH_POINTS_MAX;
use crate::growth::growth_of;
use crate::nodes::sharing_group;
use crate::origin::without_directory;

/// The requested image; all images when absent.
#[derive(Deserialize)]
pub(super) struct OfImage {
    image: Option<String>,
}

/// `NAME`, `NAME@7` or a score.
#[derive(Deserialize)]
pub(super) struct OfName {
    name: String,
    /// Whether to look for missing blocks.
    missing: Option<bool>,
}

pub(super) async fn health() -> &'static str {
    "ok\n"
}

pub(super) async fn metrics(State(origin): State<Shared>) -> Response {
    let metrics = &origin.metrics;
    let shared = Arc::clone(&origin);
    // If the store cannot be asked now, the last values stay.
    if let Ok(health) = origin.pool.run(move || shared.store.health()).await {
        metrics.set_health(&health);
    }
    metrics.blocks.set(origin.store.blocks() as u64);
    metrics.calls_waiting.set(origin.pool.waiting() as u64);
    metrics.id_set_bytes.set(origin.id_sets.bytes() as u64);
    metrics.uploads.set(origin.uploads.count() as u64);
    metrics.nodes.set(origin.nodes.count(Instant::now()) as u64);
    let mut response = metrics.text().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"));
    response
}

pub(super) async fn openapi() -> Response {
    let mut response = platter_api::openapi::document().to_string().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) async fn store(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    let facts = origin.pool.run(move || {
        let mut versions = shared.store.versions()?;
        versions.retain(|version| asker.who.may_read(&version.name.image));
        let mut images: Vec<&ImageName> = versions.iter().map(|version| &version.name.image).collect();
        images.dedup();
        let images = images.len() as u64;
        let count = versions.len() as u64;
        let records = versions.into_iter().map(|version| asker.who.shown(version.record));
        // Saturates: lengths in records come from clients.
        let stored_bytes = records.fold(0_u64, |sum, record| sum.saturating_add(record.new_stored_bytes));
        Ok(StoreFacts {
            id: shared.store.id().to_string(),
            domain: domain_of(&shared.store),
            sharing_group: sharing_group(shared.store.id(), &asker.who.patterns),
            reads_all_images: asker.who.reads_everything(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            images,
            versions: count,
            stored_bytes,
            // The number of blocks says something of every image.
            blocks: asker.who.reads_everything().then(|| shared.store.blocks() as u64),
            collection_needs_confirmation: asker
                .who
                .reads_everything()
                .then(|| shared.metrics.collection_needs_confirmation.get() > 0),
            health: asker.who.reads_everything().then(|| shared.store.health()).transpose()?,
        })
    });
    json(&facts.await?)
}

/// The identity domain of an encrypted store.
fn domain_of(store: &Store) -> Option<String> {
    Some(store.domain()).filter(|domain| domain.is_encrypted()).map(|domain| domain.to_string())
}

/// The keys of the store. Every client that may read an image needs them: without them it could not verify a block.
pub(super) async fn keys(State(origin): State<Shared>) -> Result<Response, Problem> {
    let domain = origin.store.domain();
    if !domain.is_encrypted() {
        return Err(Error::missing("the store is not encrypted, so it has no keys").into());
    }
    let keys = domain.keys()?.export();
    json(&StoreKeys { domain: domain.to_string(), keys: to_hex(&*keys) })
}

pub(super) async fn images(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    let mut images = origin.pool.run(move || shared.store.images()).await?;
    let who = &asker.who;
    images.retain(|version| who.may_read(&version.name.image));
    json(&images.into_iter().map(|version| who.shown(version.record)).collect::<Vec<_>>())
}

pub(super) async fn growth(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    let growth = origin.pool.run(move || {
        let versions = shared.store.versions()?.into_iter().map(|version| version.record);
        let seen = versions.filter(|record| asker.who.may_read(&record.image));
        let seen: Vec<VersionRecord> = seen.map(|record| asker.who.shown(record)).collect();
        Ok(growth_of(&seen, GROWTH_POINTS_MAX))
    });
    json(&growth.await?)
}

pub(super) async fn versions(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    query: Result<Query<OfImage>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(OfImage { image }) = query.map_err(|_| lacks("image"))?;
    let image: Option<ImageName> =
        image.map(|image| image.parse()).transpose().map_err(|error: Error| Problem::bad_request(&error))?;
    image.as_ref().map_or(Ok(()), |image| asker.check(image))?;
    let (shared, who) = (Arc::clone(&origin), asker.who.clone());
    let found = origin.pool.run(move || {
        let versions = match &image {
            Some(image) => shared.store.history(image).map_err(|error| without_directory(error, image))?,
            None => {
                let mut versions = shared.store.versions()?;
                versions.retain(|version| asker.who.may_read(&version.name.image));
                versions
            }
        };
        Ok((versions, shared.store.edit_locks()?))
    });
    let (versions, edit_locks) = found.await?;
    let held: HashMap<&ImageName, &EditLock> = edit_locks.iter().map(|lock| (&lock.image, lock)).collect();
    let facts = versions.into_iter().map(|Version { record, .. }| {
        let current_edit_lock = held.get(&record.image).copied().cloned();
        VersionFacts { record: who.shown(record), current_edit_lock }
    });
    json(&facts.collect::<Vec<_>>())
}

pub(super) async fn resolve(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    query: Result<Query<OfName>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(OfName { name, missing }) = query.map_err(|_| lacks("name"))?;
    let what: VersionQuery = name.parse().map_err(|error| Problem::bad_request(&error))?;
    if let VersionQuery::Named(image, _) = &what {
        asker.check(image)?;
    }
    let (shared, who) = (Arc::clone(&origin), asker.who.clone());
    let Resolved { score, version } = origin.pool.run(move || shared.resolve_for(&asker.who, what)).await?;
    let record = version.map(|version| who.shown(version.record));
    let (score_text, domain) = (score.to_string(), domain_of(&origin.store));
    let mut answer = ResolveReply { score: score_text, version: record, domain, missing: None };
    if missing == Some(true) {
        let shared = Arc::clone(&origin);
        let look = move || {
            let recipe = Recipe::open(score, &shared.store)?;
            missing_blocks(&recipe, &shared.store, shared.store.quarantined())
        };
        answer.missing = Some(origin.pool.run(look).await?);
    }
    json(&answer)
}

fn lacks(parameter: &str) -> Problem {
    Problem::bad_request(&Error::refused(format!("the query lacks {parameter}=")))
}
