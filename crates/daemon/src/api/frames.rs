//! The endpoint that streams frames by the ids of blocks. The next part is read after the previous one was sent, so a
//! slow client costs the memory of one part and no thread.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use platter_image::Result;
use platter_image::frame::stream::{FramesRequest, REQUEST_LENGTH_MAX};

use super::gate::Asker;
use super::problem::Problem;
use super::{Shared, body};
use crate::frames::FramesAnswer;

pub(super) async fn frames(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let held = body::read(&origin, &asker, &headers, sent, REQUEST_LENGTH_MAX).await?;
    let request = FramesRequest::parse(&held.bytes).map_err(|error| Problem::bad_request(&error))?;
    drop(held);
    let shared = Arc::clone(&origin);
    let answer = origin.pool.run(move || {
        // To find versions that any process has just published.
        shared.store.refresh()?;
        let allowed = shared.allowed(&asker.who, request.score)?;
        shared.lease(&asker.who, request.score);
        let answer = FramesAnswer::plan(&shared.store, &request, allowed)?;
        shared.metrics.blocks_not_found.add(answer.not_found() as u64);
        Ok(answer)
    });
    let parts = unfold(Some((origin.clone(), answer.await?)), |rest| async move {
        let (origin, answer) = rest?;
        match next_part(Arc::clone(&origin), answer).await {
            Ok(Some((part, answer))) => Some((Ok(part), Some((origin, answer)))),
            Ok(None) => None,
            // This cuts the connection, which the client notices.
            Err(error) => Some((Err(error), None)),
        }
    });
    let mut response = Body::from_stream(parts).into_response();
    let kind = HeaderValue::from_static("application/x-platter-frames");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

async fn next_part(origin: Shared, mut answer: FramesAnswer) -> Result<Option<(Bytes, FramesAnswer)>> {
    let shared = Arc::clone(&origin);
    let read = origin.pool.run(move || {
        let part = answer.next_part(&shared.store, &shared.remaking);
        Ok(part.map(|part| (part, answer)))
    });
    let Some(((part, sent), answer)) = read.await? else { return Ok(None) };
    origin.metrics.frames_sent.add(sent.frames);
    origin.metrics.frames_rebuilt.add(sent.rebuilt);
    origin.metrics.frames_failed.add(sent.failed);
    origin.metrics.frame_bytes_sent.add(part.len() as u64);
    Ok(Some((part.into(), answer)))
}
