//! Uploads that end without a version: the space they take, and the next upload that reuses their data.

use std::pin::pin;

use super::tests::{Disk, Room, UPLOAD_LIMIT, frame};
use crate::config::PROMISE_PAUSE;
use axum::http::StatusCode;
use platter_api::Role;
use platter_image::{BlockId, Kind};
use serde_json::json;
use tokio::time::timeout;

/// A frame with one incompressible block.
fn noise(seed: u64) -> (BlockId, platter_image::frame::EncodedFrame) {
    let mut state = seed + 1;
    let contents: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    })
    .take(64 << 10)
    .collect();
    let id = BlockId::of(Kind::Data, &contents);
    (id, frame(Kind::Data, [(id, &contents[..])].into_iter()))
}

/// Bytes of all files in the store's directory of packs.
fn stored_bytes(room: &Room) -> u64 {
    let folders = std::fs::read_dir(room.origin.store.place().dir().join("packs")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test]
async fn an_abandoned_upload_takes_its_space_once_and_its_sender_can_reuse_it() {
    let room = Room::new();
    let (token, other) = (room.token(Role::Write, "lab/*"), room.token(Role::Write, "*"));
    let (id, sent) = noise(1);
    let before = stored_bytes(&room);
    for _ in 0..20 {
        let upload = room.begin(&token).await;
        assert_eq!(room.send(&token, &upload, std::slice::from_ref(&sent)).await.0, StatusCode::OK);
        assert_eq!(room.ask(&token, "DELETE", &upload, "").await.0, StatusCode::NO_CONTENT);
    }
    let grown = stored_bytes(&room) - before;
    assert!(grown < 2 * sent.stored.len() as u64, "{grown}");
    let upload = room.begin(&other).await;
    assert_eq!(room.need(&other, &upload, &[id]).await, [true], "it is not part of the store");
    room.ask(&other, "DELETE", &upload, "").await;
    let upload = room.begin(&token).await;
    assert_eq!(room.need(&token, &upload, &[id]).await, [false], "its sender need not send it again");
    let disk = Disk::of(9);
    room.send(&token, &upload, &[disk.data_frame(), disk.page_frame()]).await;
    let (status, answer) = room.publish(&token, &upload, &disk.draft("lab/n"), Some(0)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(room.frames(&token, disk.score, Kind::Data, &[disk.block]).await.1, []);
}

#[tokio::test]
async fn unfinished_uploads_of_a_token_have_limits_and_are_discarded() {
    let room = Room::new();
    let (token, other) = (room.token(Role::Write, "lab/*"), room.token(Role::Write, "lab/*"));
    let (mut refused, mut number) = (None, 0);
    let upload = room.begin(&token).await;
    while refused.is_none() && number < 100 {
        let (status, answer) = room.send(&token, &upload, &[noise(number).1]).await;
        refused = (status != StatusCode::OK).then_some((status, answer));
        number += 1;
    }
    room.ask(&token, "DELETE", &upload, "").await;
    let (status, problem) = refused.unwrap();
    assert_eq!((status, &problem["kind"]), (StatusCode::CONFLICT, &json!("refused")));
    assert!(problem["detail"].as_str().unwrap().contains(&UPLOAD_LIMIT.to_string()), "{problem}");
    assert!(number >= UPLOAD_LIMIT / (66 << 10), "{number}");
    // Another token has its own limit.
    let upload = room.begin(&other).await;
    assert_eq!(room.send(&other, &upload, &[noise(200).1]).await.0, StatusCode::OK);
    let mut uploads = vec![upload];
    for _ in 1..crate::config::UPLOADS_OF_ONE_MAX {
        uploads.push(room.begin(&other).await);
    }
    let (status, problem) = room.json(&other, "POST", "/api/v1/uploads", &json!({})).await;
    assert_eq!((status, &problem["kind"]), (StatusCode::CONFLICT, &json!("refused")));
    // Expired data is discarded, and no longer counts.
    let before = stored_bytes(&room);
    let later = crate::clock::unix_ms() + 1;
    room.origin.uploads.discard_before(&room.origin.store, later).unwrap();
    assert!(stored_bytes(&room) < before - UPLOAD_LIMIT / 2);
    let upload = room.begin(&token).await;
    assert_eq!(room.send(&token, &upload, &[noise(300).1]).await.0, StatusCode::OK);
}

/// If a token's unfinished uploads left too many packs, the oldest are discarded. Packs of other tokens are kept.
#[tokio::test]
async fn the_oldest_of_too_many_packs_that_uploads_left_are_discarded() {
    let room = Room::new();
    let (token, other) = (room.token(Role::Write, "lab/*"), room.token(Role::Write, "lab/*"));
    let sent: Vec<(BlockId, _)> = (0..4).map(noise).collect();
    for (token, (_, frame)) in [&token, &token, &other, &token].into_iter().zip(&sent) {
        let upload = room.begin(token).await;
        assert_eq!(room.send(token, &upload, std::slice::from_ref(frame)).await.0, StatusCode::OK);
        room.ask(token, "DELETE", &upload, "").await;
        // Their times have a resolution of a millisecond.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let parked = room.origin.store.parked().unwrap();
    let owner = parked.iter().min_by_key(|pack| pack.since_unix_ms).unwrap().owner.clone();
    room.origin.uploads.discard_beyond(&room.origin.store, &owner, 2).unwrap();
    let ids: Vec<BlockId> = sent.iter().map(|(id, _)| *id).collect();
    let upload = room.begin(&token).await;
    assert_eq!(room.need(&token, &upload, &ids).await, [true, false, true, false]);
    let upload = room.begin(&other).await;
    assert_eq!(room.need(&other, &upload, &ids).await, [true, true, false, true]);
}

/// A refused publication leaves the upload unchanged: its sender can correct it, and its data still counts as
/// unfinished.
#[tokio::test]
async fn a_refused_publication_can_be_corrected() {
    let room = Room::new();
    let token = room.token(Role::Write, "lab/*");
    let (disk, upload) = (Disk::of(9), room.begin(&token).await);
    room.send(&token, &upload, &[disk.data_frame(), disk.page_frame()]).await;
    let mut long = disk.draft("lab/n");
    long.notes = "x".repeat(66 << 10);
    let (status, problem) = room.publish(&token, &upload, &long, Some(0)).await;
    assert_eq!((status, &problem["kind"]), (StatusCode::CONFLICT, &json!("refused")), "{problem}");
    let (status, answer) = room.publish(&token, &upload, &disk.draft("lab/n"), Some(0)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// Two uploads that are asked for the same blocks bring each of them once, and the second waits for the first.
#[tokio::test]
async fn uploads_at_the_same_time_share_what_they_send() {
    let room = Room::new();
    let (token, other) = (room.token(Role::Write, "*"), room.token(Role::Write, "*"));
    let disk = Disk::of(9);
    let (first, second) = (room.begin(&token).await, room.begin(&other).await);
    let ids = [disk.block];
    assert_eq!(room.need(&token, &first, &ids).await, [true]);
    assert_eq!(room.need(&token, &first, &ids).await, [true], "its own promise");
    assert_eq!(room.need(&other, &second, &ids).await, [false], "the first upload sends it");
    room.send(&other, &second, &[disk.page_frame()]).await;
    let draft = disk.draft("lab/second");
    let mut publishing = pin!(room.publish(&other, &second, &draft, Some(0)));
    assert!(timeout(2 * PROMISE_PAUSE, &mut publishing).await.is_err(), "it waits for the first upload");
    room.send(&token, &first, &[disk.data_frame()]).await;
    let published = publishing.await;
    assert_eq!(published.0, StatusCode::OK, "{}", published.1);
    let (status, answer) = room.publish(&token, &first, &disk.draft("lab/first"), Some(0)).await;
    assert_eq!(status, StatusCode::OK, "the page is borrowed: {answer}");
    assert_eq!(room.frames(&token, disk.score, Kind::Data, &ids).await.0, ids);
}

/// An upload that relied on another one fails when that one ends, and the next upload is asked for the block.
#[tokio::test]
async fn a_broken_promise_is_noticed_before_publishing() {
    let room = Room::new();
    let (token, other) = (room.token(Role::Write, "*"), room.token(Role::Write, "*"));
    let disk = Disk::of(9);
    let (first, second) = (room.begin(&token).await, room.begin(&other).await);
    let ids = [disk.block];
    assert_eq!(room.need(&token, &first, &ids).await, [true]);
    assert_eq!(room.need(&other, &second, &ids).await, [false]);
    room.send(&other, &second, &[disk.page_frame()]).await;
    room.ask(&token, "DELETE", &first, "").await;
    let (status, problem) = room.publish(&other, &second, &disk.draft("lab/kept"), Some(0)).await;
    assert_eq!((status, &problem["kind"]), (StatusCode::NOT_FOUND, &json!("missing")), "{problem}");
    room.ask(&other, "DELETE", &second, "").await;
    let fourth = room.begin(&other).await;
    assert_eq!(room.need(&other, &fourth, &ids).await, [true]);
    room.send(&other, &fourth, &[disk.data_frame()]).await;
    assert_eq!(
        room.need(&other, &fourth, &[BlockId(disk.score.0.0)]).await,
        [false],
        "left from the second upload"
    );
    let (status, answer) = room.publish(&other, &fourth, &disk.draft("lab/kept"), Some(0)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// What is left of a restricted token's upload depends on nobody else, and what others upload does not depend on it.
#[tokio::test]
async fn the_upload_of_a_restricted_token_neither_lends_nor_keeps_promises() {
    let room = Room::new();
    let (lab, all, more) =
        (room.token(Role::Write, "lab/*"), room.token(Role::Write, "*"), room.token(Role::Write, "*"));
    let (disk, late) = (Disk::of(9), Disk::of(8));
    let upload = room.begin(&lab).await;
    room.send(&lab, &upload, &[disk.data_frame(), disk.page_frame()]).await;
    let other = room.begin(&all).await;
    assert_eq!(room.need(&all, &other, &[disk.block, late.block]).await, [true, true], "it does not lend");
    let third = room.begin(&more).await;
    assert_eq!(room.need(&more, &third, &[late.block]).await, [false], "promised");
    room.send(&lab, &upload, &[late.data_frame()]).await;
    room.send(&more, &third, &[late.page_frame()]).await;
    let draft = late.draft("other/late");
    let mut publishing = pin!(room.publish(&more, &third, &draft, Some(0)));
    assert!(timeout(2 * PROMISE_PAUSE, &mut publishing).await.is_err(), "the promise stands");
    room.send(&all, &other, &[disk.data_frame(), disk.page_frame(), late.data_frame()]).await;
    assert_eq!(publishing.await.0, StatusCode::OK);
    assert_eq!(room.publish(&all, &other, &disk.draft("other/n"), Some(0)).await.0, StatusCode::OK);
    room.ask(&lab, "DELETE", &upload, "").await;
    let upload = room.begin(&lab).await;
    let ids = [disk.block, late.block];
    assert_eq!(room.need(&lab, &upload, &ids).await, [false, false], "all of it is left for its sender");
}
