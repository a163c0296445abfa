//! Endpoints for the files inside of versions: partitions, directories, contents. Contents are read in parts, each after the
//! previous one was sent, so a slow client costs the memory of one part and no thread.

use std::ops::Range;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    ETAG, IF_RANGE, RANGE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use platter_image::{Error, ErrorKind, Result};
use platter_records::VersionQuery;
use serde::Deserialize;

use super::Shared;
use super::body::json;
use super::gate::Asker;
use super::problem::Problem;
use crate::config::FILE_PART;
use crate::files::{Download, FilePlace, ReadFile, WantedPart, disposition};

/// A version, and a place in it.
#[derive(Deserialize)]
pub(super) struct FileQuery {
    version: String,
    partition: Option<String>,
    path: Option<String>,
    path_bytes: Option<String>,
    from: Option<u64>,
}

type Asked = Result<Query<FileQuery>, QueryRejection>;

pub(super) async fn partitions(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    query: Asked,
) -> Result<Response, Problem> {
    let (place, _) = find(&origin, &asker, query).await?;
    let _under_way = origin.downloads.begin(&asker.who.id)?;
    let shared = Arc::clone(&origin);
    json(&origin.files_pool.run(move || shared.look_inside.partitions(&shared.store, &place)).await?)
}

pub(super) async fn list(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    query: Asked,
) -> Result<Response, Problem> {
    let (place, from) = find(&origin, &asker, query).await?;
    let _under_way = origin.downloads.begin(&asker.who.id)?;
    let shared = Arc::clone(&origin);
    json(&origin.files_pool.run(move || shared.look_inside.list(&shared.store, &place, from)).await?)
}

pub(super) async fn contents(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    query: Asked,
) -> Result<Response, Problem> {
    let (place, _) = find(&origin, &asker, query).await?;
    let download = origin.downloads.begin(&asker.who.id)?;
    let shared = Arc::clone(&origin);
    let (path, tag) = (place.path.clone(), format!("\"{}\"", place.score));
    let file = origin.files_pool.run(move || shared.look_inside.open(&shared.store, &place)).await?;
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // A range of another version is of no use.
    let range = text(RANGE).filter(|_| text(IF_RANGE).is_none_or(|known| known == tag));
    let size = file.size();
    let (status, part) = match WantedPart::parse(range, size) {
        WantedPart::Whole => (StatusCode::OK, 0..size),
        WantedPart::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        WantedPart::Outside => {
            let detail = format!("the file has {size} bytes");
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, ErrorKind::Refused, detail);
            return Ok(([(CONTENT_RANGE, format!("bytes */{size}"))], problem).into_response());
        }
    };
    let range = format!("bytes {}-{}/{size}", part.start, part.end.saturating_sub(1));
    let length = part.end - part.start;
    let mut response = (status, stream(origin, Sending { file, part, _download: download })).into_response();
    let own = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, length.to_string()),
        (CONTENT_DISPOSITION, disposition(&path)),
        // If a browser shows it all the same, nothing in it runs.
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox".to_owned()),
        (ACCEPT_RANGES, "bytes".to_owned()),
        (ETAG, tag),
    ];
    let range = (status == StatusCode::PARTIAL_CONTENT).then_some((CONTENT_RANGE, range));
    for (name, value) in own.into_iter().chain(range) {
        let value = HeaderValue::from_str(&value).map_err(|_| Error::bug("an invalid header"))?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// A file, and the part that must still be sent.
struct Sending {
    file: Box<dyn ReadFile>,
    part: Range<u64>,
    _download: Download,
}

fn stream(origin: Shared, sending: Sending) -> Body {
    Body::from_stream(unfold(Some((origin, sending)), |rest| async move {
        let (origin, mut sending) = rest?;
        if sending.part.is_empty() {
            return None;
        }
        let read = origin.files_pool.run(move || {
            let length = (sending.part.end - sending.part.start).min(FILE_PART as u64) as usize;
            let mut bytes = vec![0; length];
            if sending.file.read(sending.part.start, &mut bytes)? != length {
                return Err(Error::bug("a file is shorter than it says"));
            }
            sending.part.start += length as u64;
            Ok((Bytes::from(bytes), sending))
        });
        Some(match read.await {
            Ok((bytes, sending)) => (Ok(bytes), Some((origin, sending))),
            // This cuts the connection, which the client notices.
            Err(error) => (Err(error), None),
        })
    }))
}

/// Returns the place that a query names, if the client may read its version; and the number of the first name.
async fn find(origin: &Shared, asker: &Asker, query: Asked) -> Result<(FilePlace, u64), Problem> {
    let refused = |what: String| Problem::bad_request(&Error::refused(what));
    let Query(asked) = query.map_err(|error| refused(error.body_text()))?;
    let path = match (asked.path, asked.path_bytes) {
        (Some(_), Some(_)) => return Err(refused("either path= or path_bytes=".to_owned())),
        (Some(path), None) => path.into_bytes(),
        (None, Some(digits)) => {
            from_hex(&digits).ok_or_else(|| refused("path_bytes= must be hexadecimal digits".to_owned()))?
        }
        (None, None) => b"/".to_vec(),
    };
    if path.first() != Some(&b'/') {
        return Err(refused("the path must begin with /".to_owned()));
    }
    let what: VersionQuery = asked.version.parse().map_err(|error| Problem::bad_request(&error))?;
    if let VersionQuery::Named(image, _) = &what {
        asker.check(image)?;
    }
    let (shared, who) = (Arc::clone(origin), Arc::clone(&asker.who));
    let found = origin.pool.run(move || {
        // To find versions that any process has just published.
        shared.store.refresh()?;
        shared.resolve_for(&who, what)
    });
    let score = found.await?.score;
    let place = FilePlace { score, version: asked.version, partition: asked.partition, path };
    Ok((place, asked.from.unwrap_or(0)))
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    });
    pairs.collect()
}
