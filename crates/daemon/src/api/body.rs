//! Reads bodies of requests, within limits of length, time, and total memory. Writes JSON responses.

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use platter_image::{Error, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use super::gate::Asker;
use super::problem::Problem;
use crate::bodies::BodyMemory;
use crate::config::{
    BODY_PAUSE_MAX, BODY_TIME_MAX, DISCARDED_LENGTH_MAX, DISCARDED_TIME_MAX, JSON_LENGTH_MAX,
};

/// A body that was read, and its share of the memory for bodies.
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    _share: BodyMemory,
}

/// Reads a body of at most `length_max` bytes.
///
/// # Errors
/// 413 when it is longer, 408 when it arrives too slowly, 400 when it is truncated, 503 when too many other bodies are
/// being read.
pub(super) async fn read(
    origin: &Shared,
    asker: &Asker,
    headers: &HeaderMap,
    body: Body,
    length_max: usize,
) -> Result<Held, Problem> {
    let stated = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let length = stated.unwrap_or(length_max as u64);
    if length > length_max as u64 {
        // A client that sent `Expect: 100-continue` has not sent its body yet.
        if !headers.contains_key(EXPECT) {
            discard(body, DISCARDED_LENGTH_MAX).await;
        }
        return Err(too_long(length_max));
    }
    let share = origin.bodies.take(&asker.who, length.div_ceil(1024) as u32);
    let share = timeout(BODY_PAUSE_MAX, share).await.ok().flatten();
    let share = share.ok_or_else(|| Error::transient("too many requests are being read: try again"))?;
    let deadline = Instant::now() + BODY_TIME_MAX;
    let mut stream = body.into_data_stream();
    // Not allocated by the stated length, because a client may state more than it sends.
    let mut bytes = Vec::new();
    loop {
        let pause = deadline.min(Instant::now() + BODY_PAUSE_MAX);
        match timeout_at(pause, stream.next()).await {
            Err(_) => {
                let detail = format!("the body arrived too slowly: {} bytes so far", bytes.len());
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, ErrorKind::Transient, detail));
            }
            Ok(None) => return Ok(Held { bytes, _share: share }),
            Ok(Some(Err(error))) => {
                let detail = format!("the body was truncated after {} bytes: {error}", bytes.len());
                return Err(Problem::new(StatusCode::BAD_REQUEST, ErrorKind::Transient, detail));
            }
            Ok(Some(Ok(chunk))) if bytes.len() + chunk.len() > length as usize => {
                drop(bytes);
                discard_stream(stream, DISCARDED_LENGTH_MAX).await;
                return Err(too_long(length_max));
            }
            Ok(Some(Ok(chunk))) => bytes.extend_from_slice(&chunk),
        }
    }
}

/// Reads a JSON body.
///
/// # Errors
/// As [`read`]; 400 when it is not the expected JSON.
pub(super) async fn read_json<T: DeserializeOwned>(
    origin: &Shared,
    asker: &Asker,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Problem> {
    let held = read(origin, asker, headers, body, JSON_LENGTH_MAX).await?;
    serde_json::from_slice(&held.bytes)
        .map_err(|error| Problem::bad_request(&Error::refused(format!("the body: {error}"))))
}

/// Returns a JSON response.
pub(super) fn json(what: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_string(what)
        .map_err(|error| Error::bug("cannot serialize a response").with_source(error))?;
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Discards the body of a request that is refused regardless of its body, up to the length limit of JSON bodies.
pub(super) async fn discard_refused(request: Request) {
    // A client that sent `Expect: 100-continue` has not sent its body yet.
    if !request.headers().contains_key(EXPECT) {
        discard(request.into_body(), JSON_LENGTH_MAX).await;
    }
}

/// Discards a body, up to a limit. A client that is disconnected while it sends does not read the response.
pub(super) async fn discard(body: Body, length_max: usize) {
    discard_stream(body.into_data_stream(), length_max).await;
}

async fn discard_stream(mut stream: BodyDataStream, length_max: usize) {
    let all = async {
        let mut length = 0;
        while let Some(Ok(chunk)) = stream.next().await {
            length += chunk.len();
            if length > length_max {
                break;
            }
        }
    };
    // A slower client may be disconnected.
    let _ = timeout(DISCARDED_TIME_MAX, all).await;
}

fn too_long(length_max: usize) -> Problem {
    let detail = format!("the body is longer than {length_max} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Refused, detail)
}
