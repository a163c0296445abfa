//! Bodies of requests, bounded: in length, in time, and in what all of them take together. And JSON out.

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use platter_image::{Error, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use super::problem::Problem;
use crate::config::{
    BODY_PAUSE_MAX, BODY_TIME_MAX, DISCARDED_LENGTH_MAX, DISCARDED_TIME_MAX, JSON_LENGTH_MAX,
};

/// A body that was read, and its share of what all may take.
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    _share: OwnedSemaphorePermit,
}

/// Reads a body of at most so many bytes.
///
/// # Errors
/// 413 when it is longer, 408 when it comes too slowly, 400 when it is cut, 503 when too many others are read.
pub(super) async fn read(
    origin: &Shared,
    headers: &HeaderMap,
    body: Body,
    length_max: usize,
) -> Result<Held, Problem> {
    let stated = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let length = stated.unwrap_or(length_max as u64);
    if length > length_max as u64 {
        // Who waits to be asked for his body does not send it.
        if !headers.contains_key(EXPECT) {
            discard(body, DISCARDED_LENGTH_MAX).await;
        }
        return Err(too_long(length_max));
    }
    let share = origin.bodies.clone().acquire_many_owned(length.div_ceil(1024) as u32);
    let share = timeout(BODY_PAUSE_MAX, share).await.ok().and_then(Result::ok);
    let share = share.ok_or_else(|| Error::transient("too many requests are being read: try again"))?;
    let deadline = Instant::now() + BODY_TIME_MAX;
    let mut stream = body.into_data_stream();
    // Not what is stated: nobody allocates for what was not sent.
    let mut bytes = Vec::new();
    loop {
        let pause = deadline.min(Instant::now() + BODY_PAUSE_MAX);
        match timeout_at(pause, stream.next()).await {
            Err(_) => {
                let detail = format!("the body came too slowly: {} bytes so far", bytes.len());
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, ErrorKind::Transient, detail));
            }
            Ok(None) => return Ok(Held { bytes, _share: share }),
            Ok(Some(Err(error))) => {
                let detail = format!("the body was cut at {} bytes: {error}", bytes.len());
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

/// Reads a body that is JSON.
///
/// # Errors
/// As [`read`]; 400 when it says something else.
pub(super) async fn read_json<T: DeserializeOwned>(
    origin: &Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Problem> {
    let held = read(origin, headers, body, JSON_LENGTH_MAX).await?;
    serde_json::from_slice(&held.bytes)
        .map_err(|error| Problem::bad_request(&Error::refused(format!("the body: {error}"))))
}

/// An answer in JSON.
pub(super) fn json(what: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_string(what)
        .map_err(|error| Error::bug("an answer without a text").with_source(error))?;
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Takes the body of a request that is refused whatever it says, if it is no longer than JSON may be.
pub(super) async fn discard_refused(request: Request) {
    // Who waits to be asked for his body does not send it.
    if !request.headers().contains_key(EXPECT) {
        discard(request.into_body(), JSON_LENGTH_MAX).await;
    }
}

/// Takes a body that nobody will read, up to a limit: a client that is cut off while it sends does not read why.
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
    // Whoever is slower may find the connection cut.
    let _ = timeout(DISCARDED_TIME_MAX, all).await;
}

fn too_long(length_max: usize) -> Problem {
    let detail = format!("the body is longer than {length_max} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Refused, detail)
}
