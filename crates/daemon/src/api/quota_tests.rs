//! Quotas as tokens see them: which are listed, and how much unfinished data a token with one may hold.

use axum::body::Body;
use axum::http::StatusCode;
use platter_api::Role;
use platter_image::{BlockId, Kind};
use serde_json::{Value, json};

use super::tests::{Disk, Room, frame};

impl Room {
    async fn set_quota(&self, prefix: &str, limit: Option<u64>) {
        let admin = self.token(Role::Admin, "*");
        let body = json!({ "prefix": prefix, "limit_bytes": limit });
        assert_eq!(self.json(&admin, "POST", "/api/v1/quotas", &body).await.0, StatusCode::OK);
    }

    async fn listed(&self, token: &str) -> Vec<String> {
        let (status, bytes) = self.ask(token, "GET", "/api/v1/quotas", Body::empty()).await;
        assert_eq!(status, StatusCode::OK);
        let listed: Vec<Value> = serde_json::from_slice(&bytes).unwrap();
        listed.iter().map(|quota| quota["prefix"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn quotas_are_shown_to_tokens_that_may_read_everything_below_them() {
    let room = Room::new();
    for prefix in ["lab", "lab/a", "other"] {
        room.set_quota(prefix, Some(1 << 30)).await;
    }
    let table: [(&str, &[&str]); 5] = [
        ("*", &["lab", "lab/a", "other"]),
        ("lab/*", &["lab", "lab/a"]),
        ("lab/a/*", &["lab/a"]),
        // What is used tells of `lab/secret`, too.
        ("lab", &[]),
        ("lab/a", &[]),
    ];
    for (pattern, expected) in table {
        assert_eq!(room.listed(&room.token(Role::Read, pattern)).await, expected, "{pattern}");
    }
}

#[tokio::test]
async fn what_adds_nothing_is_published_without_any_room() {
    let room = Room::new();
    room.set_quota("lab", Some(1)).await;
    let token = room.token(Role::Write, "lab/*");
    let body = json!({});
    let (status, begun) = room.json(&token, "POST", "/api/v1/uploads?image=lab/a", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let upload = format!("/api/v1/uploads/{}", begun["id"].as_str().unwrap());
    let same = Disk::of(1);
    assert_eq!(room.need(&token, &upload, &[same.block]).await, [false]);
    let (status, answer) = room.publish(&token, &upload, &same.draft("lab/a"), Some(1)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    // Another disk is refused, with the reason that comes first.
    let (upload, other) = (room.begin(&token).await, Disk::of(9));
    room.send(&token, &upload, &[other.data_frame(), other.page_frame()]).await;
    for (expect, reason) in [(7, "the newest version of lab/a is number 2"), (2, "quota of lab")] {
        let (status, problem) = room.publish(&token, &upload, &other.draft("lab/a"), Some(expect)).await;
        assert_eq!((status, &problem["kind"]), (StatusCode::CONFLICT, &json!("refused")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(reason), "{problem}");
    }
}

/// A frame of 32 KiB that does not compress.
fn noise(seed: u64) -> platter_image::frame::EncodedFrame {
    let mut contents = vec![0; 32 << 10];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut contents);
    frame(Kind::Data, [(BlockId::of(Kind::Data, &contents), &contents[..])].into_iter())
}

#[tokio::test]
async fn unfinished_uploads_of_a_token_are_limited_by_its_quota_and_old_ones_give_way() {
    let room = Room::new();
    let patterns = vec!["lab/*".parse().unwrap()];
    let token = room.origin.access.add("small", Role::Write, patterns, Some(100 << 10)).unwrap().secret;
    // Two uploads at the same time share the limit.
    let uploads = [room.begin(&token).await, room.begin(&token).await];
    let mut statuses = Vec::new();
    for number in 0..4 {
        let (status, answer) = room.send(&token, &uploads[number % 2], &[noise(number as u64)]).await;
        statuses.push(status);
        if status != StatusCode::OK {
            assert!(answer["detail"].as_str().unwrap().contains("unfinished uploads"), "{answer}");
        }
    }
    assert_eq!(statuses, [StatusCode::OK, StatusCode::OK, StatusCode::OK, StatusCode::CONFLICT]);
    // What they leave does not keep the token from other work.
    for upload in &uploads {
        room.ask(&token, "DELETE", upload, "").await;
    }
    for round in 1..5 {
        let upload = room.begin(&token).await;
        for number in 0..3 {
            let (status, answer) = room.send(&token, &upload, &[noise(10 * round + number)]).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
        }
        room.ask(&token, "DELETE", &upload, "").await;
    }
    let left: u64 = room.origin.store.parked().unwrap().iter().map(|pack| pack.length).sum();
    assert!(left <= 120 << 10, "{left}");
}

/// A version need not refer to what was sent for it, and a frame may have blocks that the store has: neither counts for the
/// quota, but both take space until garbage is collected.
#[tokio::test]
async fn what_a_token_with_a_quota_stores_is_limited_until_garbage_is_collected() {
    let room = Room::new();
    let patterns = vec!["lab/*".parse().unwrap()];
    let token = room.origin.access.add("small", Role::Write, patterns, Some(100 << 10)).unwrap().secret;
    let admin = room.token(Role::Admin, "*");
    let disk = Disk::of(9);
    let mut refused = Vec::new();
    for round in 0..20 {
        let upload = room.begin(&token).await;
        // The same frames again and again.
        let sent = [noise(1), noise(2), disk.data_frame(), disk.page_frame()];
        let (status, answer) = room.send(&token, &upload, &sent).await;
        if status != StatusCode::OK {
            assert!(answer["detail"].as_str().unwrap().contains("collect garbage"), "{answer}");
            refused.push(round);
            room.ask(&token, "DELETE", &upload, "").await;
            let gc = json!({ "keep_trash_s": 0, "dry_run": false, "confirmed": true, "compact_percent": 20 });
            let (status, answer) = room.json(&admin, "POST", "/api/v1/collect", &gc).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            continue;
        }
        let (status, answer) = room.publish(&token, &upload, &disk.draft("lab/n"), None).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    // Each round sends 65 KiB, and 225 KiB are allowed.
    assert_eq!(refused, [3, 7, 11, 15, 19]);
}
