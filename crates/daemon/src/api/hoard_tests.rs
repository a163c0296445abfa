//! Tests of the endpoints for boot sets.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use parking_lot::Mutex;
use platter_api::{AskForHoardCastRequest, CastFamily, CastOffer, HoardCastOffer, HoardCastState, Role};
use platter_image::{BlockId, Error, Result};
use platter_records::{BootBlock, BootSetRecord, HoardSnapshot, Resolved, VersionName};
use platter_store::Store;
use serde_json::{Value, json};

use super::tests::{BLOCK, Disk, Room};
use crate::config::{CastOnDemand, TellOfCast};

/// A boot set of that disk, recorded as the version of that name.
fn boot_set_of(disk: &Disk, name: &str) -> platter_records::BootSet {
    let mut pages: Vec<BootBlock> =
        disk.pages.iter().map(|(id, bytes)| BootBlock::new(*id, bytes.len() as u64)).collect();
    pages.sort_by_key(|page| page.id != disk.score.0);
    let record = BootSetRecord {
        version: VersionName { image: name.parse().unwrap(), number: 1 },
        score: disk.score,
        marker: "test".into(),
        command: String::new(),
        accelerator: String::new(),
        time_unix_ms: 1,
        duration_ms: 1,
        requests: 1,
        bytes_read: BLOCK,
        pages: pages.len() as u32,
        blocks: 1,
        bytes: pages.iter().map(BootBlock::length).sum::<u64>() + BLOCK,
        tool_version: "test".into(),
        boots: 0,
        nodes: Vec::new(),
    };
    platter_records::BootSet { record, pages, blocks: vec![BootBlock::new(disk.block, BLOCK)] }
}

#[tokio::test]
async fn boot_sets_are_registered_listed_and_hidden_with_their_images() {
    let room = Room::new();
    let (all, lab) = (room.token(Role::Admin, "*"), room.token(Role::Admin, "lab/*"));
    let ours = boot_set_of(&room.ours, "lab/a").encode().unwrap();
    let theirs = boot_set_of(&room.theirs, "other/b").encode().unwrap();
    let record = |image: &str| format!("/api/v1/hoard/record?image={image}&number=1");
    let post = |token: &str, path: String, bytes: Vec<u8>| {
        let (room, token) = (&room, token.to_owned());
        async move { room.ask(&token, "POST", &path, bytes).await }
    };
    assert_eq!(post(&lab, record("lab/a"), ours.to_bytes()).await.0, StatusCode::OK);
    assert_eq!(post(&all, record("other/b"), theirs.to_bytes()).await.0, StatusCode::OK);
    // Of another disk, with foreign blocks, and of garbage.
    assert_eq!(post(&all, record("lab/a"), theirs.to_bytes()).await.0, StatusCode::CONFLICT);
    let mut foreign = boot_set_of(&room.ours, "lab/a");
    foreign.blocks[0].id = room.theirs.block;
    assert_eq!(
        post(&lab, record("lab/a"), foreign.encode().unwrap().to_bytes()).await.0,
        StatusCode::CONFLICT
    );
    assert_eq!(post(&lab, record("lab/a"), vec![1; 99]).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(post(&lab, record("other/b"), theirs.to_bytes()).await.0, StatusCode::NOT_FOUND);
    let images = |told: &Value, list: &str| -> Vec<String> {
        let list = told[list].as_array().unwrap().iter();
        list.map(|member| member["image"].as_str().unwrap().to_owned()).collect()
    };
    let (_, hoard) = room.json(&all, "GET", "/api/v1/hoard", &json!(null)).await;
    assert_eq!((&hoard["revision"], images(&hoard, "members").len()), (&json!(2), 2));
    let (_, hoard) = room.json(&lab, "GET", "/api/v1/hoard", &json!(null)).await;
    assert_eq!(images(&hoard, "members"), ["lab/a"]);
    let epoch = hoard["epoch"].as_str().unwrap();
    let revision = hoard["revision"].as_u64().unwrap();
    assert!(revision >= 1 << 52, "it counts nothing");
    let since = |since: u64| format!("/api/v1/hoard/changes?epoch={epoch}&since={since}");
    let (_, told) = room.json(&lab, "GET", &since(1), &json!(null)).await;
    assert_eq!((images(&told, "added"), &told["whole"]), (vec!["lab/a".to_owned()], &json!(true)));
    let (_, told) = room.json(&lab, "GET", &since(revision), &json!(null)).await;
    assert_eq!((images(&told, "added"), &told["whole"]), (Vec::<String>::new(), &json!(false)));
    assert_eq!(
        room.ask(&lab, "GET", "/api/v1/hoard/changes", Body::empty()).await.0,
        StatusCode::BAD_REQUEST
    );
    let set = |id: BlockId| format!("/api/v1/hoard/boot-sets/{id}");
    assert_eq!(room.ask(&lab, "GET", &set(ours.id), Body::empty()).await, (StatusCode::OK, ours.to_bytes()));
    let (status, hidden) = room.ask(&lab, "GET", &set(theirs.id), Body::empty()).await;
    let (_, absent) = room.ask(&lab, "GET", &set(BlockId([0; 32])), Body::empty()).await;
    let hidden =
        String::from_utf8(hidden).unwrap().replace(&theirs.id.to_string(), &BlockId([0; 32]).to_string());
    assert_eq!((status, hidden.into_bytes()), (StatusCode::NOT_FOUND, absent));
    // A boot set under a hidden name stays hidden after its version was renamed.
    let rename = json!({ "from": "other/b", "to": "lab/b" });
    assert_eq!(room.json(&all, "POST", "/api/v1/rename", &rename).await.0, StatusCode::OK);
    let (_, hoard) = room.json(&lab, "GET", "/api/v1/hoard", &json!(null)).await;
    assert_eq!(images(&hoard, "members"), ["lab/a"]);
    let unregister = json!({ "image": "lab/a" });
    let (status, gone) = room.json(&lab, "POST", "/api/v1/hoard/unregister", &unregister).await;
    assert_eq!((status, &gone["unregistered"]), (StatusCode::OK, &json!(["lab/a@1"])));
    let (_, told) = room.json(&lab, "GET", &since(revision), &json!(null)).await;
    assert_eq!((images(&told, "added"), &told["whole"]), (Vec::<String>::new(), &json!(true)), "all is gone");
}

/// Remembers for which members a cast was asked, and after which revision; and the groups that asked for casts of versions.
#[derive(Default)]
struct AskedFor(Mutex<Vec<(String, u64)>>, Mutex<Vec<Option<String>>>);

impl CastOnDemand for AskedFor {
    fn version(
        &self,
        _: &Store,
        _: &Resolved,
        (_, group): (&[CastFamily], Option<&str>),
        _: TellOfCast,
    ) -> Result<CastOffer> {
        self.1.lock().push(group.map(str::to_owned));
        Err(Error::refused("only the hoard"))
    }

    fn hoard(
        &self,
        _: &Store,
        hoard: &HoardSnapshot,
        request: &AskForHoardCastRequest,
        _: TellOfCast,
    ) -> Result<HoardCastOffer> {
        let names: Vec<String> = hoard.members.iter().map(|member| member.version.to_string()).collect();
        self.0.lock().push((names.join(" "), request.since));
        Ok(HoardCastOffer { state: HoardCastState::Wait, cast: None })
    }
}

#[tokio::test]
async fn a_node_is_cast_only_what_its_token_may_read() {
    let asked_for = Arc::new(AskedFor::default());
    let room = Room::with(Some(asked_for.clone()));
    let (all, lab) = (room.token(Role::Admin, "*"), room.token(Role::Read, "lab/*"));
    for (disk, name) in [(&room.ours, "lab/a"), (&room.theirs, "other/b")] {
        let set = boot_set_of(disk, name).encode().unwrap().to_bytes();
        let path = format!("/api/v1/hoard/record?image={name}&number=1");
        assert_eq!(room.ask(&all, "POST", &path, set).await.0, StatusCode::OK);
    }
    let (_, hoard) = room.json(&all, "GET", "/api/v1/hoard", &json!(null)).await;
    let question = |epoch: &Value, since: u64| json!({ "node": "a".repeat(32), "epoch": epoch, "since": since, "missing_bytes_max": 1 << 30, "families": ["ipv4"] });
    let epoch = &hoard["epoch"];
    for (token, question) in [
        (&all, question(epoch, 1)),
        (&all, question(epoch, 3)),
        (&all, question(&json!("other"), 1)),
        (&lab, question(epoch, 1)),
    ] {
        let (status, answer) = room.json(token, "POST", "/api/v1/hoard/cast", &question).await;
        assert_eq!((status, &answer["state"]), (StatusCode::OK, &json!("wait")));
    }
    let everything = "lab/a@1 other/b@1";
    let expected = [(everything, 1), (everything, 0), (everything, 0), ("lab/a@1", 0)];
    assert_eq!(*asked_for.0.lock(), expected.map(|(names, since)| (names.to_owned(), since)));
    let mut invalid = question(epoch, 1);
    invalid["node"] = json!("x");
    let (status, _) = room.json(&all, "POST", "/api/v1/hoard/cast", &invalid).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    // An origin that does not cast says so.
    let room = Room::new();
    let all = room.token(Role::Read, "*");
    let (status, answer) = room.json(&all, "POST", "/api/v1/hoard/cast", &question(&json!(""), 0)).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({ "state": "fetch", "cast": null })));
}

/// Equal disks of two tenants have two casts.
#[tokio::test]
async fn tenants_share_no_cast() {
    let asked_for = Arc::new(AskedFor::default());
    let room = Room::with(Some(asked_for.clone()));
    let all = room.token(Role::Admin, "*");
    let clone = json!({ "from": "lab/a", "to": "other/a" });
    assert_eq!(room.json(&all, "POST", "/api/v1/clone", &clone).await.0, StatusCode::OK);
    let [lab, again, other] = ["lab/*", "lab/*", "other/*"].map(|pattern| room.token(Role::Read, pattern));
    for (token, version) in [(&all, "lab/a"), (&lab, "lab/a"), (&again, "lab/a"), (&other, "other/a")] {
        let question = json!({ "version": version, "families": ["ipv4"] });
        assert_eq!(room.json(token, "POST", "/api/v1/casts", &question).await.0, StatusCode::CONFLICT);
    }
    let groups = asked_for.1.lock();
    assert_eq!((groups.len(), &groups[0]), (4, &None));
    assert!(groups[1].is_some() && groups[1] == groups[2] && groups[2] != groups[3] && groups[3].is_some());
}
