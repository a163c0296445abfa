//! Tests of the endpoints for files, with a version of one file.

use std::sync::Arc;

use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, RANGE,
};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use platter_api::{DirectoryPage, PartitionEntry, Role};
use platter_image::{Error, Result};
use platter_records::FormerAnswers;
use platter_store::{Store, StorePlace};
use serde_json::Value;

use super::tests::{Room, whole};
use crate::config::{DOWNLOADS_OF_ONE_MAX, FILE_PART, ServeOptions};
use crate::files::{FilePlace, LookInside, ReadFile};

/// Bytes of the file: it is sent in three parts.
const SIZE: u64 = 2 * FILE_PART as u64 + 7;

/// Every version has the file `/a` in partition 1.
pub(crate) struct OneFile;

/// Options of an origin that listens nowhere, with [`OneFile`] in every version.
pub(crate) fn options_of(store: StorePlace) -> ServeOptions {
    ServeOptions {
        store,
        listen: Vec::new(),
        tls: None,
        take_over: false,
        upload_limit: 0,
        tool_version: "test".into(),
        cast: None,
        look_inside: Arc::new(OneFile),
        list_disks: Arc::new(|_| Ok(Vec::new())),
        collections: None,
        tell_former: Arc::new(|_, _, _| FormerAnswers::default()),
        scrub_period: None,
        overlay_bases: Arc::new(|_| Ok(Vec::new())),
    }
}

impl LookInside for OneFile {
    fn partitions(&self, _: &Store, _: &FilePlace) -> Result<Vec<PartitionEntry>> {
        Ok(Vec::new())
    }

    fn list(&self, _: &Store, place: &FilePlace, from: u64) -> Result<DirectoryPage> {
        // Shows what arrived.
        let faults = vec![format!("{:?} {:?} {from}", place.partition, place.path)];
        Ok(DirectoryPage { is_directory: true, entries: Vec::new(), faults, total: 0, next: None })
    }

    fn open(&self, _: &Store, place: &FilePlace) -> Result<Box<dyn ReadFile>> {
        match &place.path[..] {
            b"/a" => Ok(Box::new(Contents)),
            _ => Err(Error::missing("there is no such file")),
        }
    }
}

struct Contents;

fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8
}

impl ReadFile for Contents {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let length = buffer.len().min((SIZE - offset) as usize);
        (offset..).zip(&mut buffer[..length]).for_each(|(at, byte)| *byte = byte_at(at));
        Ok(length)
    }
}

#[tokio::test]
async fn a_token_reads_only_files_of_its_images() {
    let room = Room::new();
    let (lab, all) = (room.token(Role::Read, "lab/*"), room.token(Role::Read, "*"));
    for path in ["partitions?", "files?path=/&", "files/contents?path=/a&"] {
        let ask = async |token: &str, version: &str| {
            room.ask(token, "GET", &format!("/api/v1/{path}version={version}"), "").await
        };
        assert_eq!(ask(&all, "other/b").await.0, StatusCode::OK, "{path}");
        assert_eq!(ask(&lab, "lab/a").await.0, StatusCode::OK, "{path}");
        assert_eq!(ask("", "lab/a").await.0, StatusCode::UNAUTHORIZED, "{path}");
        let (status, hidden) = ask(&lab, "other/b").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        let (_, absent) = ask(&lab, "other/c").await;
        let text = String::from_utf8(hidden).unwrap().replace("other/b", "other/c");
        assert_eq!(text.as_bytes(), absent, "{path}");
        // Also by its score.
        let score = room.origin.store.resolve("other/b").unwrap().score.to_string();
        assert_eq!(ask(&lab, &score).await.0, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(ask(&all, &score).await.0, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_path_is_any_bytes() {
    let room = Room::new();
    let token = room.token(Role::Read, "*");
    for (query, arrived) in [
        ("", Ok("None [47] 0")),
        ("&path=/%C3%A4&partition=1", Ok("Some(\"1\") [47, 195, 164] 0")),
        ("&path_bytes=2fFf&from=500", Ok("None [47, 255] 500")),
        ("&path=a", Err(StatusCode::BAD_REQUEST)),
        ("&path_bytes=2", Err(StatusCode::BAD_REQUEST)),
        ("&path_bytes=2fg0", Err(StatusCode::BAD_REQUEST)),
        ("&path_bytes=", Err(StatusCode::BAD_REQUEST)),
        ("&path=/&path_bytes=2f", Err(StatusCode::BAD_REQUEST)),
        ("&from=-1", Err(StatusCode::BAD_REQUEST)),
    ] {
        let (status, reply) =
            room.ask(&token, "GET", &format!("/api/v1/files?version=lab/a{query}"), "").await;
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        match arrived {
            Ok(text) => assert_eq!(reply["faults"][0], text),
            Err(expected) => assert_eq!(status, expected, "{query}"),
        }
    }
}

async fn respond(
    room: &Room,
    token: &str,
    path: &str,
    asked: &[(HeaderName, &str)],
) -> (StatusCode, HeaderMap, Vec<u8>) {
    let response = room.response(token, "GET", path, asked, "").await;
    (response.status(), response.headers().clone(), whole(response).await)
}

#[tokio::test]
async fn contents_come_whole_or_in_part() {
    let room = Room::new();
    let token = room.token(Role::Read, "*");
    let path = "/api/v1/files/contents?version=lab/a&path=/a";
    let (status, headers, bytes) = respond(&room, &token, path, &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers[CONTENT_DISPOSITION], "attachment; filename=\"a\"; filename*=UTF-8''a");
    assert_eq!(headers[CONTENT_LENGTH], SIZE.to_string());
    assert_eq!(headers[ACCEPT_RANGES], "bytes");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert!(bytes.iter().copied().eq((0..SIZE).map(byte_at)) && bytes.len() as u64 == SIZE);
    let tag = headers[ETAG].to_str().unwrap().to_owned();

    let range = format!("bytes={}-{}", FILE_PART - 3, FILE_PART + 3);
    let part = [(RANGE, range.as_str()), (IF_RANGE, &*tag)];
    let (status, headers, bytes) = respond(&room, &token, path, &part).await;
    assert_eq!(status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(headers[CONTENT_RANGE], format!("bytes {}-{}/{SIZE}", FILE_PART - 3, FILE_PART + 3));
    assert!(bytes.iter().copied().eq((FILE_PART as u64 - 3..).map(byte_at).take(7)));
    let (status, _, _) = respond(&room, &token, path, &[(RANGE, &range), (IF_RANGE, "\"other\"")]).await;
    assert_eq!(status, StatusCode::OK);
    let (status, headers, _) = respond(&room, &token, path, &[(RANGE, "bytes=99999999-")]).await;
    assert_eq!(status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(headers[CONTENT_RANGE], format!("bytes */{SIZE}"));
    assert_eq!(
        respond(&room, &token, "/api/v1/files/contents?version=lab/a&path=/b", &[]).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_download_counts_until_it_ends() {
    let room = Room::new();
    let token = room.token(Role::Read, "*");
    let path = "/api/v1/files/contents?version=lab/a&path=/a";
    let mut open = Vec::new();
    for _ in 0..DOWNLOADS_OF_ONE_MAX {
        open.push(room.response(&token, "GET", path, &[], "").await);
    }
    assert_eq!(room.response(&token, "GET", path, &[], "").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(open.pop());
    assert_eq!(room.response(&token, "GET", path, &[], "").await.status(), StatusCode::OK);
}
