//! Endpoints for uploads: begin, ask which blocks are needed, send them, publish, end.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use platter_api::{
    BeginUploadReply, ImportReply, ImportRequest, PublishReply, PublishRequest, UploadFramesReply,
};
use platter_image::frame::stream::{NEED_IDS_MAX, UPLOAD_LENGTH_MAX, ids, need_to_bytes};
use platter_image::{BlockId, Error, ErrorKind, Result};
use platter_records::{ImageName, Repairs, VersionName, VersionRecord};
use platter_store::{KnownCheck, Published};
use serde::Deserialize;

use super::Shared;
use super::body::{discard, json, read, read_json};
use super::gate::Asker;
use super::path::Named;
use super::problem::Problem;
use crate::access::Principal;
use crate::changes::check_draft;
use crate::clock::unix_ms;
use crate::config::PROMISE_PAUSE;
use crate::origin::Origin;
use crate::uploads::{PublishError, Upload};

/// Maximum length of the body with which an upload begins.
const BEGIN_LENGTH_MAX: usize = 64 << 10;

/// Parameters of a new upload.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    /// Read back all existing data that it relies on, not only a sample.
    #[serde(default)]
    verify_known: bool,
    /// The image to be published, so that a client without permission is refused before it sends anything.
    image: Option<ImageName>,
}

pub(super) async fn begin(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    query: Result<Query<Begin>, QueryRejection>,
    sent: Body,
) -> Result<Response, Problem> {
    // It has no meaning. But if the reply came before a client had sent it, the connection would be closed, and the client
    // would begin a second upload.
    discard(sent, BEGIN_LENGTH_MAX).await;
    let Query(Begin { verify_known, image }) = query.map_err(|_| {
        Problem::bad_request(&Error::refused(
            "verify_known must be true or false, image must be an image's name, and there is no other parameter",
        ))
    })?;
    image.as_ref().map_or(Ok(()), |image| asker.check_new(image))?;
    let known = if verify_known { KnownCheck::All } else { KnownCheck::Sample };
    let shared = Arc::clone(&origin);
    let begun = origin.pool.run(move || {
        let upload = shared.uploads.begin(&asker.who, &asker.by, shared.writer.lease_for_change()?, known)?;
        upload.touch(asker.connection.as_ref());
        shared.tell_of_upload(upload.id(), &asker.who.id, "begun");
        Ok(upload.id().to_owned())
    });
    let id = begun.await?;
    let mut response = json(&BeginUploadReply { id })?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

pub(super) async fn need(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named(id): Named<String>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let held = read(&origin, &asker, &headers, sent, NEED_IDS_MAX * BlockId::LEN).await?;
    let asked = ids(&held.bytes).map_err(|error| Problem::bad_request(&error))?;
    drop(held);
    let shared = Arc::clone(&origin);
    let answer = origin.pool.run(move || {
        let upload = find(&shared, &id, &asker)?;
        Ok(need_to_bytes(&upload.need(&asked)?))
    });
    let mut response = answer.await?.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

pub(super) async fn frames(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named(id): Named<String>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    // Checked before the body is read, so a client without permission need not send it.
    let (shared, who, upload) = (Arc::clone(&origin), asker.clone(), id.clone());
    if let Err(error) = origin.pool.run(move || get(&shared, &upload, &who).map(drop)).await {
        if !headers.contains_key(EXPECT) {
            discard(sent, UPLOAD_LENGTH_MAX).await;
        }
        return Err(error.into());
    }
    let held = read(&origin, &asker, &headers, sent, UPLOAD_LENGTH_MAX).await?;
    let shared = Arc::clone(&origin);
    let received = origin.pool.run(move || {
        let upload = find(&shared, &id, &asker)?;
        let accepted = match upload.receive(&held.bytes) {
            // The sender's bytes are corrupt, not the store's.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Err(Problem::bad_request(&error))),
            accepted => accepted?,
        };
        shared.metrics.upload_bytes.add(held.bytes.len() as u64);
        shared.metrics.upload_blocks.add(accepted);
        Ok(Ok(accepted))
    });
    json(&UploadFramesReply { accepted: received.await?? })
}

pub(super) async fn publish(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named(id): Named<String>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let PublishRequest { record, expect } = read_json(&origin, &asker, &headers, sent).await?;
    asker.check_new(&record.image)?;
    let draft = VersionRecord {
        number: 0,
        parent: None,
        renamed_from: None,
        claimed: true,
        new_raw_bytes: 0,
        new_stored_bytes: 0,
        time_unix_ms: unix_ms(),
        ..record
    };
    check_draft(&draft)?;
    wait_for_others(&origin, &id, &asker).await?;
    let shared = Arc::clone(&origin);
    let published = origin.pool.run(move || {
        let upload = find(&shared, &id, &asker)?;
        let published = match shared.uploads.publish(&upload, draft, expect) {
            Err(PublishError::Malformed(error)) => return Ok(Err(Problem::bad_request(&error))),
            Err(PublishError::Other(error)) => return Err(error),
            Ok(published) => published,
        };
        shared.metrics.versions_published.add(1);
        shared.tell_of_upload(&id, &asker.who.id, "published");
        shared.note_change();
        reply(published, &upload, &asker.who).map(Ok)
    });
    json(&published.await??)
}

pub(super) async fn import(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named(id): Named<String>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let ImportRequest { record, restore, ask } = read_json(&origin, &asker, &headers, sent).await?;
    asker.check_new(&record.image)?;
    check_draft(&record)?;
    let shared = Arc::clone(&origin);
    if ask {
        let foreseen = move || find(&shared, &id, &asker)?.foresee_import(&record, restore);
        return json(&ImportReply { imported: origin.pool.run(foreseen).await? });
    }
    wait_for_others(&origin, &id, &asker).await?;
    let imported = origin.pool.run(move || {
        let upload = find(&shared, &id, &asker)?;
        let imported = match shared.uploads.import(&upload, &record, restore) {
            Err(PublishError::Malformed(error)) => return Ok(Err(Problem::bad_request(&error))),
            Err(PublishError::Other(error)) => return Err(error),
            Ok(imported) => imported,
        };
        shared.tell_of_upload(&id, &asker.who.id, "published");
        shared.note_change();
        Ok(Ok(imported))
    });
    json(&ImportReply { imported: imported.await?? })
}

/// The reply for this token: other versions are named only if it may read them.
fn reply(published: Published, upload: &Upload, who: &Principal) -> Result<PublishReply, Error> {
    let version = published.version;
    let others = upload.store().repaired_by(&published.repaired, &version.name)?;
    let readable = |names: Vec<VersionName>| -> Vec<String> {
        let names = names.iter().filter(|name| who.may_read(&name.image));
        names.map(VersionName::to_string).collect()
    };
    Ok(PublishReply {
        record: who.shown(version.record),
        repairs: Repairs {
            repaired: readable(others.whole),
            still_damaged: readable(others.damaged),
            // Which blocks share a frame depends on what was stored of hidden images.
            known_frames_read: if who.reads_everything() { published.known_frames_read } else { 0 },
        },
    })
}

pub(super) async fn end(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    let ended = origin.pool.run(move || {
        get(&shared, &id, &asker).map(drop)?;
        shared.uploads.end(&id);
        shared.tell_of_upload(&id, &asker.who.id, "ended");
        Ok(())
    });
    ended.await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Waits until other uploads have sent what this one relies on, or can no longer be expected to.
async fn wait_for_others(origin: &Shared, id: &str, asker: &Asker) -> Result<(), Error> {
    loop {
        let (shared, id, asker) = (Arc::clone(origin), id.to_owned(), asker.clone());
        if !origin.pool.run(move || get(&shared, &id, &asker)?.is_waiting()).await? {
            return Ok(());
        }
        tokio::time::sleep(PROMISE_PAUSE).await;
    }
}

/// Returns the client's upload, and notes the request.
fn get(origin: &Origin, id: &str, asker: &Asker) -> Result<Arc<Upload>, Error> {
    let upload = origin.uploads.get(id, &asker.who)?;
    upload.touch(asker.connection.as_ref());
    Ok(upload)
}

/// As [`get`], and makes sure that the upload has the ids that the client may read.
fn find(origin: &Origin, id: &str, asker: &Asker) -> Result<Arc<Upload>, Error> {
    let upload = get(origin, id, asker)?;
    if upload.lacks_readable() {
        upload.set_readable(origin.known_sets(&asker.who)?);
    }
    Ok(upload)
}
