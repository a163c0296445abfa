//! Tests of the API as clients see it, without sockets: a store with two images that share a frame, and tokens that may
//! read one of them.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, Request, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use platter_api::{DiskStatus, Endpoint, ListedDisk, Role};
use platter_image::frame::stream::{
    FrameStreamReader, FramesRequest, need_from_bytes, write_end, write_frame, write_head,
};
use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder, FrameDecoder, Verify};
use platter_image::page::{Entry, State};
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{BlockId, Domain, Extent, FrameStore, Kind, Score};
use platter_records::VersionRecord;
use platter_store::{Store, StorePlace};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::files_tests::options_of;
use super::{Shared, router};
use crate::access::Entrance;
use crate::config::{CastOnDemand, ServeOptions};
use crate::origin::Origin;

pub(super) const BLOCK: u64 = 4096;
/// Most bytes of one token's unfinished uploads.
pub(super) const UPLOAD_LIMIT: u64 = 1 << 20;

/// An origin with the images `lab/a` and `other/b` of one block each; both blocks are in one frame.
pub(super) struct Room {
    _folder: tempfile::TempDir,
    pub(super) origin: Shared,
    router: Router,
    pub(super) ours: Disk,
    pub(super) theirs: Disk,
}

/// A disk with one block.
pub(super) struct Disk {
    pub(super) score: Score,
    pub(super) block: BlockId,
    contents: Vec<u8>,
    pub(super) pages: Vec<(BlockId, Vec<u8>)>,
}

impl Disk {
    pub(super) fn of(byte: u8) -> Self {
        let contents = vec![byte; BLOCK as usize];
        let block = BlockId::of(Kind::Data, &contents);
        Self { contents, ..Self::that_refers_to(block) }
    }

    fn that_refers_to(block: BlockId) -> Self {
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
        let mut recipe = RecipeBuilder::new(BLOCK, 512, policy, Domain::SHARED, pages);
        let entry = Entry { extent: Extent::new(0, BLOCK), state: State::Data { block, offset: 0 } };
        recipe.push(entry).unwrap();
        let (score, pages) = recipe.finish().unwrap();
        Self { score, block, contents: Vec::new(), pages }
    }

    pub(super) fn draft(&self, image: &str) -> VersionRecord {
        VersionRecord {
            disk_length: BLOCK,
            cut_policy: CutPolicy::FILE_ALIGNED_64K_GRID_32K.0,
            ..VersionRecord::draft(image.parse().unwrap(), self.score, 1)
        }
    }

    pub(super) fn page_frame(&self) -> EncodedFrame {
        frame(Kind::Page, self.pages.iter().map(|(id, bytes)| (*id, &bytes[..])))
    }

    pub(super) fn data_frame(&self) -> EncodedFrame {
        frame(Kind::Data, [(self.block, &self.contents[..])].into_iter())
    }
}

pub(super) fn frame<'a>(kind: Kind, blocks: impl Iterator<Item = (BlockId, &'a [u8])>) -> EncodedFrame {
    let mut frame = FrameBuilder::new(kind, Domain::SHARED, 1 << 17);
    blocks.for_each(|(id, contents)| frame.push(id, contents));
    frame.encode(&mut Compressor::new(3).unwrap()).unwrap()
}

fn stream_of(frames: &[EncodedFrame]) -> Vec<u8> {
    let mut out = Vec::new();
    write_head(&mut out);
    frames.iter().for_each(|frame| write_frame(&frame.stored, &mut out));
    write_end(&[], &mut out);
    out
}

impl Room {
    pub(super) fn new() -> Self {
        Self::with(None)
    }

    pub(super) fn with(cast: Option<Arc<dyn CastOnDemand>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let (ours, theirs) = (Disk::of(1), Disk::of(2));
        {
            let writer = Store::open_writer(&place).unwrap();
            let session = writer.session().unwrap();
            let shared = [&ours, &theirs].map(|disk| (disk.block, &disk.contents[..]));
            session.append(&frame(Kind::Data, shared.into_iter())).unwrap();
            let pages = [&ours, &theirs].into_iter().flat_map(|disk| &disk.pages);
            session.append(&frame(Kind::Page, pages.map(|(id, bytes)| (*id, &bytes[..])))).unwrap();
            session.publish(ours.draft("lab/a")).unwrap();
            writer.session().unwrap().publish(theirs.draft("other/b")).unwrap();
        }
        let options = ServeOptions {
            upload_limit: UPLOAD_LIMIT,
            list_disks: Arc::new(edited_disks),
            cast,
            ..options_of(place)
        };
        let origin = Arc::new(Origin::open(&options, watch::channel(false).1).unwrap());
        Self { router: router(&origin, Entrance::Token), _folder: folder, origin, ours, theirs }
    }

    pub(super) fn token(&self, role: Role, pattern: &str) -> String {
        let name = format!("t{}", self.origin.access.list().unwrap().len());
        self.origin.access.add(&name, role, vec![pattern.parse().unwrap()], None).unwrap().secret
    }

    pub(super) async fn ask(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> (StatusCode, Vec<u8>) {
        let response = self.response(token, method, path, &[], body).await;
        (response.status(), whole(response).await)
    }

    pub(super) async fn response(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: impl Into<Body>,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(body.into()).unwrap();
        TowerToHyperService::new(self.router.clone()).call(request).await.unwrap()
    }

    pub(super) async fn json(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let (status, bytes) = self.ask(token, method, path, body.to_string()).await;
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Returns the ids of the received blocks, and of those not found.
    pub(super) async fn frames(
        &self,
        token: &str,
        score: Score,
        kind: Kind,
        ids: &[BlockId],
    ) -> (Vec<BlockId>, Vec<BlockId>) {
        self.frames_of(token, FramesRequest { score, kind, exact: false, ids: ids.to_vec() }).await
    }

    async fn frames_of(&self, token: &str, request: FramesRequest) -> (Vec<BlockId>, Vec<BlockId>) {
        let (status, bytes) = self.ask(token, "POST", "/api/v1/frames", request.to_bytes()).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&bytes));
        let mut reader = FrameStreamReader::new(&bytes[..], request.ids.len());
        let (mut stored, mut came) = (Vec::new(), Vec::new());
        while let Some(header) = reader.next_frame(&mut stored).unwrap() {
            FrameDecoder::new().unwrap().decode(&stored, Verify::Hashes).unwrap();
            came.extend(header.blocks.iter().map(|block| block.id));
        }
        (came, reader.not_found().unwrap().to_vec())
    }

    pub(super) async fn begin(&self, token: &str) -> String {
        let (status, begun) = self.json(token, "POST", "/api/v1/uploads", &json!({})).await;
        assert_eq!(status, StatusCode::CREATED, "{begun}");
        format!("/api/v1/uploads/{}", begun["id"].as_str().unwrap())
    }

    pub(super) async fn need(&self, token: &str, upload: &str, ids: &[BlockId]) -> Vec<bool> {
        let asked: Vec<u8> = ids.iter().flat_map(|id| id.0).collect();
        let (status, answer) = self.ask(token, "POST", &format!("{upload}/need"), asked).await;
        assert_eq!(status, StatusCode::OK);
        need_from_bytes(&answer, ids.len()).unwrap()
    }

    pub(super) async fn send(
        &self,
        token: &str,
        upload: &str,
        frames: &[EncodedFrame],
    ) -> (StatusCode, Value) {
        let (status, answer) = self.ask(token, "POST", &format!("{upload}/frames"), stream_of(frames)).await;
        (status, serde_json::from_slice(&answer).unwrap())
    }

    pub(super) async fn publish(
        &self,
        token: &str,
        upload: &str,
        draft: &VersionRecord,
        expect: Option<u64>,
    ) -> (StatusCode, Value) {
        let wish = json!({ "record": draft, "expect": expect });
        self.json(token, "POST", &format!("{upload}/publish"), &wish).await
    }
}

/// The whole body of a response.
pub(super) async fn whole(response: Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut stream = response.into_body().into_data_stream();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    bytes
}

/// Lists one disk for each held edit lock. The list that `platter serve` provides is tested from the shell.
fn edited_disks(store: &Store) -> platter_image::Result<Vec<ListedDisk>> {
    let disks = store.edit_locks()?.into_iter().map(|lock| ListedDisk {
        lost: false,
        status: DiskStatus {
            disk: lock.image.to_string(),
            base: String::new(),
            disk_bytes: 0,
            writable: true,
            holder: Some(lock.holder),
            edit_lock: Some(lock.number),
            written_bytes: None,
            exports: Vec::new(),
            process: None,
            cache: None,
            fill: None,
            node: None,
        },
    });
    Ok(disks.collect())
}

#[test]
fn the_description_has_each_endpoint_and_no_other() {
    let described = platter_api::openapi::document();
    let mut paths: Vec<(String, String)> = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        paths.extend(methods.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())));
    }
    paths.sort();
    let mut routes: Vec<(String, String)> =
        Endpoint::ALL.iter().map(|endpoint| endpoint.route()).map(|(m, p)| (m.into(), p.into())).collect();
    routes.sort();
    assert_eq!(paths, routes);
    let page = include_str!("../../../../docs/api.md");
    for (method, path) in routes {
        let row = format!("| `{} {path}", method.to_uppercase());
        assert!(page.contains(&row), "docs/api.md has no row {row}");
    }
}

#[tokio::test]
async fn every_endpoint_requires_a_token() {
    let room = Room::new();
    let known = room.token(Role::Admin, "*");
    for endpoint in Endpoint::ALL {
        let (method, path) = endpoint.route();
        let path = path.replace("{id}", "x").replace("{image}", "lab%2Fa").replace("{number}", "1");
        for token in ["", "platter-0000", &known[1..]] {
            let (status, _) = room.ask(token, &method.to_uppercase(), &path, Body::empty()).await;
            let expected =
                if endpoint == Endpoint::Health { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            assert_eq!(status, expected, "{method} {path}");
        }
    }
    assert_eq!(room.ask(&known, "GET", "/api/v1/images", Body::empty()).await.0, StatusCode::OK);
    assert_eq!(room.ask(&known, "GET", "/api/v1/nothing", Body::empty()).await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        room.ask(&known, "PUT", "/api/v1/images", Body::empty()).await.0,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test]
async fn a_hidden_image_gets_the_same_response_as_a_missing_one() {
    let room = Room::new();
    let token = room.token(Role::Admin, "lab/*");
    let hidden = room.theirs.score.to_string();
    let absent = "0".repeat(64);
    let wish = |from: &str, to: &str| json!({ "from": from, "to": to }).to_string();
    let image = |name: &str| json!({ "image": name, "holder": "me" }).to_string();
    let forget = |name: &str| json!({ "image": name }).to_string();
    let request = |score: Score| {
        FramesRequest { score, kind: Kind::Data, exact: false, ids: vec![room.theirs.block] }.to_bytes()
    };
    let none = Score(BlockId([0; 32]));
    type Ask = (&'static str, String, Vec<u8>);
    let table: [(Ask, Ask, &str, &str); 10] = [
        (
            ("POST", "/api/v1/uploads?image=other/b".into(), vec![]),
            ("POST", "/api/v1/uploads?image=other/c".into(), vec![]),
            "other/b",
            "other/c",
        ),
        (
            ("GET", "/api/v1/versions?image=other/b".into(), vec![]),
            ("GET", "/api/v1/versions?image=other/c".into(), vec![]),
            "other/b",
            "other/c",
        ),
        (
            ("GET", "/api/v1/resolve?name=other/b".into(), vec![]),
            ("GET", "/api/v1/resolve?name=other/c".into(), vec![]),
            "other/b",
            "other/c",
        ),
        (
            ("GET", "/api/v1/resolve?name=other/b@1".into(), vec![]),
            ("GET", "/api/v1/resolve?name=other/c@1".into(), vec![]),
            "other/b",
            "other/c",
        ),
        (
            ("GET", format!("/api/v1/resolve?name={hidden}"), vec![]),
            ("GET", format!("/api/v1/resolve?name={absent}"), vec![]),
            &hidden,
            &absent,
        ),
        (
            ("POST", "/api/v1/frames".into(), request(room.theirs.score)),
            ("POST", "/api/v1/frames".into(), request(none)),
            &hidden,
            &absent,
        ),
        (
            ("POST", "/api/v1/clone".into(), wish("other/b", "lab/x").into()),
            ("POST", "/api/v1/clone".into(), wish("other/c", "lab/x").into()),
            "other/b",
            "other/c",
        ),
        (
            ("POST", "/api/v1/rename".into(), wish("lab/a", "other/b").into()),
            ("POST", "/api/v1/rename".into(), wish("lab/a", "other/c").into()),
            "other/b",
            "other/c",
        ),
        (
            ("POST", "/api/v1/forget".into(), forget("other/b").into()),
            ("POST", "/api/v1/forget".into(), forget("other/c").into()),
            "other/b",
            "other/c",
        ),
        (
            ("POST", "/api/v1/edit-locks".into(), image("other/b").into()),
            ("POST", "/api/v1/edit-locks".into(), image("other/c").into()),
            "other/b",
            "other/c",
        ),
    ];
    for ((method, path, body), (_, absent_path, absent_body), there, not_there) in table {
        let (status, hidden) = room.ask(&token, method, &path, body).await;
        let (_, absent) = room.ask(&token, method, &absent_path, absent_body).await;
        let is_new_name = path == "/api/v1/rename" || path.starts_with("/api/v1/uploads");
        let expected = if is_new_name { StatusCode::FORBIDDEN } else { StatusCode::NOT_FOUND };
        assert_eq!(status, expected, "{path}");
        let hidden = String::from_utf8(hidden).unwrap().replace(there, not_there);
        assert_eq!(hidden, String::from_utf8(absent).unwrap(), "{path}");
    }
    let (_, images) = room.json(&token, "GET", "/api/v1/images", &json!(null)).await;
    assert_eq!(images.as_array().unwrap().len(), 1);
    let (_, store) = room.json(&token, "GET", "/api/v1/store", &json!(null)).await;
    assert_eq!((&store["images"], &store["blocks"]), (&json!(1), &Value::Null));
}

#[tokio::test]
async fn a_frame_holds_nothing_that_a_token_may_not_read() {
    let room = Room::new();
    let (all, lab) = (room.token(Role::Read, "*"), room.token(Role::Read, "lab/*"));
    let (ours, theirs) = (room.ours.block, room.theirs.block);
    let both = [ours, theirs];
    let (came, lacks) = room.frames(&all, room.ours.score, Kind::Data, &both).await;
    assert_eq!((came.as_slice(), lacks.len()), (&both[..], 0));
    let (came, lacks) = room.frames(&lab, room.ours.score, Kind::Data, &both).await;
    assert_eq!((came, lacks), (vec![ours], vec![theirs]));
    let pages = [room.ours.score.0, room.theirs.score.0];
    let (came, lacks) = room.frames(&lab, room.ours.score, Kind::Page, &pages).await;
    assert!(room.ours.pages.iter().all(|(id, _)| came.contains(id)));
    assert!(room.theirs.pages.iter().all(|(id, _)| !came.contains(id)));
    assert_eq!(lacks, [room.theirs.score.0]);
    // A page is not a block, for any token.
    assert_eq!(room.frames(&lab, room.ours.score, Kind::Data, &pages).await, (vec![], pages.to_vec()));
    let (came, lacks) = room.frames(&all, room.ours.score, Kind::Data, &pages).await;
    assert_eq!((came.len(), lacks.len()), (0, 2));
}

#[tokio::test]
async fn an_exact_request_gets_only_the_requested_blocks() {
    let room = Room::new();
    let (all, lab) = (room.token(Role::Read, "*"), room.token(Role::Read, "lab/*"));
    let (ours, theirs) = (room.ours.block, room.theirs.block);
    let ask = async |token: &str, kind: Kind, exact: bool, ids: &[BlockId]| {
        let request = FramesRequest { score: room.ours.score, kind, exact, ids: ids.to_vec() };
        room.frames_of(token, request).await
    };
    assert_eq!(ask(&all, Kind::Data, false, &[ours]).await, (vec![ours, theirs], vec![]));
    assert_eq!(ask(&all, Kind::Data, true, &[ours]).await, (vec![ours], vec![]));
    assert_eq!(ask(&all, Kind::Data, true, &[theirs, ours]).await, (vec![ours, theirs], vec![]));
    for exact in [false, true] {
        assert_eq!(ask(&lab, Kind::Data, exact, &[ours]).await, (vec![ours], vec![]));
        assert_eq!(ask(&lab, Kind::Data, exact, &[ours, theirs]).await, (vec![ours], vec![theirs]));
        assert_eq!(ask(&lab, Kind::Data, exact, &[theirs]).await, (vec![], vec![theirs]));
        let root = room.ours.score.0;
        let (came, lacks) = ask(&lab, Kind::Page, exact, &[root]).await;
        assert!(came.contains(&root) && lacks.is_empty());
        assert_eq!(came.len(), if exact { 1 } else { room.ours.pages.len() });
    }
    let request = FramesRequest { score: room.ours.score, kind: Kind::Data, exact: true, ids: vec![ours] };
    let mut bytes = request.to_bytes();
    bytes[BlockId::LEN + 1] = 2;
    let (status, _) = room.ask(&all, "POST", "/api/v1/frames", bytes).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "an unknown flag");
}

#[tokio::test]
async fn an_upload_reveals_nothing_about_hidden_images_and_gets_nothing_from_them() {
    let room = Room::new();
    let (all, lab) = (room.token(Role::Write, "*"), room.token(Role::Write, "lab/*"));
    let fresh = Disk::of(3);
    let ids = [room.ours.block, room.theirs.block, fresh.block];
    let upload = room.begin(&all).await;
    assert_eq!(room.need(&all, &upload, &ids).await, [false, false, true]);
    let upload = room.begin(&lab).await;
    assert_eq!(room.need(&lab, &upload, &ids).await, [false, true, true]);
    // Knowing the id of a block does not give access to it.
    let thief = Disk::that_refers_to(room.theirs.block);
    assert_eq!(room.send(&lab, &upload, &[thief.page_frame()]).await.0, StatusCode::OK);
    let (status, problem) = room.publish(&lab, &upload, &thief.draft("lab/x"), None).await;
    assert_eq!((status, &problem["kind"]), (StatusCode::NOT_FOUND, &json!("missing")), "{problem}");
    // Neither does knowing a score.
    let (status, _) = room.publish(&lab, &upload, &room.theirs.draft("lab/x"), None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    // A client that has the contents may send them. Neither the reply nor the version says that the store had them.
    assert_eq!(room.send(&lab, &upload, &[room.theirs.data_frame()]).await.1, json!({ "accepted": 1 }));
    assert_eq!(room.need(&lab, &upload, &ids).await, [false, false, true]);
    let (status, version) = room.publish(&lab, &upload, &thief.draft("lab/x"), None).await;
    assert_eq!(status, StatusCode::OK, "{version}");
    assert_eq!((&version["new_raw_bytes"], &version["new_stored_bytes"]), (&json!(0), &json!(0)));
    // A published upload is over.
    let (status, _) = room.ask(&lab, "POST", &format!("{upload}/need"), Body::empty()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_version_is_published_completely_or_not_at_all() {
    let room = Room::new();
    let token = room.token(Role::Write, "lab/*");
    let disk = Disk::of(4);
    let upload = room.begin(&token).await;
    let publish = |draft: VersionRecord, expect: Option<u64>| {
        let (room, token, upload) = (&room, &token, &upload);
        async move { room.publish(token, upload, &draft, expect).await }
    };
    assert_eq!(publish(disk.draft("lab/n"), None).await.0, StatusCode::NOT_FOUND, "no page was sent");
    assert_eq!(room.send(&token, &upload, &[disk.page_frame()]).await.0, StatusCode::OK);
    assert_eq!(publish(disk.draft("lab/n"), None).await.0, StatusCode::NOT_FOUND, "no block was sent");
    assert_eq!(room.send(&token, &upload, &[disk.data_frame()]).await.0, StatusCode::OK);
    let longer = VersionRecord { disk_length: 2 * BLOCK, ..disk.draft("lab/n") };
    assert_eq!(publish(longer, None).await.0, StatusCode::CONFLICT);
    assert_eq!(publish(disk.draft("lab/n"), Some(1)).await.0, StatusCode::CONFLICT);
    assert_eq!(
        publish(VersionRecord { edit_lock: Some(7), ..disk.draft("lab/n") }, None).await.0,
        StatusCode::CONFLICT
    );
    // The same response whether the image exists or not.
    for name in ["other/n", "other/b"] {
        assert_eq!(publish(disk.draft(name), None).await.0, StatusCode::FORBIDDEN, "{name}");
    }
    let boasting = VersionRecord { allocated_bytes: 1 << 60, claimed: false, ..disk.draft("lab/n") };
    let (status, version) = publish(boasting, Some(0)).await;
    assert_eq!((status, &version["number"]), (StatusCode::OK, &json!(1)), "{version}");
    // The origin counts what it can; the rest is the client's claim and marked as such.
    assert_eq!(
        (&version["allocated_bytes"], &version["claimed"]),
        (&json!(BLOCK), &json!(true)),
        "{version}"
    );
    let (came, lacks) = room.frames(&token, disk.score, Kind::Data, &[disk.block]).await;
    assert_eq!((came, lacks.len()), (vec![disk.block], 0));
    // Again, as after a lost response.
    let upload = room.begin(&token).await;
    let (status, problem) = room.publish(&token, &upload, &disk.draft("lab/n"), Some(0)).await;
    assert_eq!((status, &problem["kind"]), (StatusCode::CONFLICT, &json!("refused")));
}

#[tokio::test]
async fn uploaded_data_is_verified() {
    let room = Room::new();
    let token = room.token(Role::Write, "*");
    let upload = room.begin(&token).await;
    let path = format!("{upload}/frames");
    let good = stream_of(&[Disk::of(5).data_frame()]);
    for at in [9, 40, good.len() / 2, good.len() - 9] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let (status, problem) = room.json(&token, "POST", &path, &Value::Null).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{problem}");
        let (status, _) = room.ask(&token, "POST", &path, bad).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "byte {at}");
        let (status, _) = room.ask(&token, "POST", &path, good[..at].to_vec()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "cut at {at}");
    }
    // A frame whose blocks do not match its header.
    let liar = frame(Kind::Data, [(BlockId([9; 32]), &vec![7_u8; 4096][..])].into_iter());
    assert_eq!(room.send(&token, &upload, &[liar]).await.0, StatusCode::BAD_REQUEST);
    // A forged version record.
    let record = room.ours.draft("lab/forged").encode().unwrap();
    let forged = frame(Kind::Version, [(BlockId::of(Kind::Version, &record), &record[..])].into_iter());
    assert_eq!(room.send(&token, &upload, &[forged]).await.0, StatusCode::CONFLICT);
    let long = vec![0; platter_image::frame::stream::UPLOAD_LENGTH_MAX + 1];
    assert_eq!(room.ask(&token, "POST", &path, long).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(room.need(&token, &upload, &[Disk::of(5).block]).await, [true]);
}

#[tokio::test]
async fn growth_disks_and_casts_show_only_readable_images() {
    let room = Room::new();
    let (all, lab) = (room.token(Role::Admin, "*"), room.token(Role::Admin, "lab/*"));
    let get = async |token: &str, path: &str| room.json(token, "GET", path, &Value::Null).await.1;
    let growth = get(&all, "/api/v1/growth").await;
    assert_eq!((&growth["versions"], &growth["images"][1]["image"]), (&json!(2), &json!("other/b")));
    let growth = get(&lab, "/api/v1/growth").await;
    assert_eq!((&growth["versions"], growth["images"].as_array().unwrap().len()), (&json!(1), 1));
    assert_eq!(growth["points"][0]["version"], json!("lab/a@1"));
    let taken = json!({ "image": "other/b", "holder": "me" });
    assert_eq!(room.json(&all, "POST", "/api/v1/edit-locks", &taken).await.0, StatusCode::OK);
    assert_eq!(get(&all, "/api/v1/disks").await[0]["holder"], json!("me"));
    assert_eq!(get(&lab, "/api/v1/disks").await, json!([]));
    let cast = |version: &str| {
        json!({
            "version": version, "score": room.ours.score.to_string(), "sender": "me", "group": "", "state": "casting",
            "cast_bytes": 1, "sent_bytes": 0, "rate_bits_per_second": 1, "seconds": 0.5, "receivers_total": 0,
            "receivers_done": 0, "receivers": [],
        })
    };
    let path = |digit: &str| format!("/api/v1/casts/{}", digit.repeat(32));
    let tell = async |token: &str, digit: &str, version: &str| {
        room.json(token, "POST", &path(digit), &cast(version)).await.0
    };
    assert_eq!(tell(&lab, "1", "lab/a@1").await, StatusCode::NO_CONTENT);
    assert_eq!(tell(&lab, "2", "other/b@1").await, StatusCode::NOT_FOUND);
    assert_eq!(
        tell(&lab, "2", &room.ours.score.to_string()).await,
        StatusCode::NOT_FOUND,
        "a disk without a name"
    );
    assert_eq!(tell(&all, "2", "other/b@1").await, StatusCode::NO_CONTENT);
    assert_eq!(tell(&all, "1", "lab/a@1").await, StatusCode::NOT_FOUND, "a cast of another token");
    assert_eq!(tell(&all, "x", "lab/a@1").await, StatusCode::BAD_REQUEST);
    assert_eq!(get(&lab, "/api/v1/casts").await.as_array().unwrap().len(), 1);
    let casts = get(&all, "/api/v1/casts").await;
    assert_eq!((&casts[0]["version"], &casts[1]["state"]), (&json!("other/b@1"), &json!("casting")));
    let events = room.origin.events.after(0, 100).unwrap();
    let told = events.iter().filter(|event| event.what.name() == "cast").count();
    assert_eq!(told, 2);
}

/// A client that is about to write a disk first asks whether all of it is available.
#[tokio::test]
async fn missing_blocks_are_reported_to_tokens_that_may_read_the_disk() {
    let room = Room::new();
    let token = room.token(Role::Read, "lab/*");
    let asked = |name: &str, also: &str| format!("/api/v1/resolve?name={name}{also}");
    let (status, whole) = room.json(&token, "GET", &asked("lab/a", "&missing=true"), &Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{whole}");
    assert!(whole["missing"].is_null() && whole.as_object().unwrap().contains_key("missing"), "{whole}");
    let (_, short) = room.json(&token, "GET", &asked("lab/a", ""), &Value::Null).await;
    assert!(!short.as_object().unwrap().contains_key("missing"), "not requested: {short}");
    // Damages the last byte of the first frame, which contains the blocks, and lets a check find it.
    let folders = std::fs::read_dir(room.origin.store.place().dir().join("packs")).unwrap();
    let packs = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    let (path, mut bytes, at) = packs
        .map(|pack| pack.unwrap().path())
        .find_map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(4).skip(65).position(|window| window == &bytes[64..68]).map(|at| at + 65);
            bytes.windows(32).any(|window| window == room.ours.block.0).then_some((path, bytes, at))
        })
        .unwrap();
    bytes[at.unwrap() - 1] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let options = platter_store::CheckOptions { read_data: true, ..Default::default() };
    room.origin.store.check(options, &mut |_| {}).unwrap();
    let (status, told) = room.json(&token, "GET", &asked("lab/a", "&missing=true"), &Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{told}");
    let expected = json!({
        "missing": 0, "damaged": 1, "blocks": 1, "first": room.ours.block.to_string(), "disk_offset": 0,
    });
    assert_eq!(told["missing"], expected);
    let hidden = room.json(&token, "GET", &asked("other/b", "&missing=true"), &Value::Null).await;
    let unknown = room.json(&token, "GET", &asked("other/c", "&missing=true"), &Value::Null).await;
    assert_eq!((hidden.0, unknown.0), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn a_path_that_is_not_text_is_a_bad_request() {
    let room = Room::new();
    let token = room.token(Role::Admin, "*");
    for path in ["/api/v1/tokens/%FF", "/api/v1/uploads/%FF", "/api/v1/edit-locks/%FF/1"] {
        let (status, problem) = room.json(&token, "DELETE", path, &Value::Null).await;
        assert_eq!((status, &problem["kind"]), (StatusCode::BAD_REQUEST, &json!("refused")), "{path}");
    }
}

#[tokio::test]
async fn names_and_edit_locks_change_as_on_the_command_line() {
    let room = Room::new();
    let token = room.token(Role::Admin, "*");
    let ask = async |method: &str, path: &str, body: Value| room.json(&token, method, path, &body).await;
    let (status, cloned) = ask("POST", "/api/v1/clone", json!({ "from": "lab/a", "to": "lab/c" })).await;
    assert_eq!((status, &cloned["cloned_from"]["image"]), (StatusCode::OK, &json!("lab/a")), "{cloned}");
    assert_eq!(
        ask("POST", "/api/v1/clone", json!({ "from": "lab/a", "to": "lab/c" })).await.0,
        StatusCode::CONFLICT
    );
    let wish = json!({ "from": "lab/a@1", "to": "lab/c", "next": true });
    assert_eq!(ask("POST", "/api/v1/clone", wish).await.1["number"], json!(2));
    let (_, renamed) = ask("POST", "/api/v1/rename", json!({ "from": "lab/c", "to": "lab/d" })).await;
    assert_eq!(renamed["renamed"][1], json!({ "from": "lab/c@2", "to": "lab/d@2" }));
    let wish = json!({ "image": "lab/d", "holder": "me" });
    let (_, taken) = ask("POST", "/api/v1/edit-locks", wish.clone()).await;
    let number = taken["number"].as_u64().unwrap();
    assert_eq!(ask("POST", "/api/v1/edit-locks", wish).await.0, StatusCode::CONFLICT);
    assert_eq!(ask("POST", "/api/v1/forget", json!({ "image": "lab/d" })).await.0, StatusCode::CONFLICT);
    let wish = json!({ "image": "lab/d", "holder": "you", "steal": true });
    let (_, stolen) = ask("POST", "/api/v1/edit-locks", wish).await;
    let release = |number: u64| format!("/api/v1/edit-locks/lab%2Fd/{number}");
    assert_eq!(ask("DELETE", &release(number), json!(null)).await.0, StatusCode::CONFLICT);
    let stolen = stolen["number"].as_u64().unwrap();
    assert_eq!(ask("DELETE", &release(stolen), json!(null)).await.0, StatusCode::OK);
    let (_, forgotten) = ask("POST", "/api/v1/forget", json!({ "image": "lab/d", "number": 1 })).await;
    assert_eq!(forgotten["forgotten"], json!(["lab/d@1"]));
    let (_, versions) = ask("GET", "/api/v1/versions?image=lab/d", json!(null)).await;
    assert_eq!((versions.as_array().unwrap().len(), &versions[0]["current_edit_lock"]), (1, &Value::Null));
    for bad in [json!({}), json!({ "image": "LAB" }), json!({ "image": "lab/a", "more": 1 }), json!("x")] {
        assert_eq!(ask("POST", "/api/v1/forget", bad).await.0, StatusCode::BAD_REQUEST);
    }
    let (_, all) = ask("GET", "/api/v1/versions", json!(null)).await;
    let names: Vec<_> = all.as_array().unwrap().iter().map(|it| (&it["image"], &it["number"])).collect();
    let wanted =
        [("lab/a", 1), ("lab/d", 2), ("other/b", 1)].map(|(image, number)| (json!(image), json!(number)));
    assert_eq!(names, wanted.each_ref().map(|(image, number)| (image, number)));
    let few = room.token(Role::Read, "lab/*");
    let (_, some) = room.json(&few, "GET", "/api/v1/versions", &json!(null)).await;
    let seen: Vec<_> = some.as_array().unwrap().iter().map(|it| it["image"].as_str().unwrap()).collect();
    assert_eq!(seen, ["lab/a", "lab/d"]);
    assert_eq!(ask("GET", "/api/v1/versions?image=LAB", json!(null)).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(ask("GET", "/api/v1/resolve?name=%20", json!(null)).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn nodes_report_themselves_and_learn_of_others() {
    let room = Room::new();
    let (all, lab) = (room.token(Role::Read, "*"), room.token(Role::Read, "lab/*"));
    let node = |digit: &str| {
        json!({
            "id": digit.repeat(32), "name": "host", "peer_address": "[2001:db8::1]:7442",
            "fingerprint": "0".repeat(64), "hoard_revision": 3, "counters": { "hits": 7 },
            "disks": [{ "name": "d", "image": "lab/a@1", "writable": true, "edit_lock_holder": "me" }], "new": [],
        })
    };
    let report = async |token: &str, node: Value| room.json(token, "POST", "/api/v1/nodes", &node).await;
    let none = json!({ "nodes": [], "hoard_revision": 0, "role": "read" });
    assert_eq!(report(&all, node("1")).await, (StatusCode::OK, none.clone()));
    let (_, heard) = report(&all, node("2")).await;
    assert_eq!(heard["nodes"][0]["peer_address"], json!("[2001:db8::1]:7442"), "{heard}");
    assert_eq!(heard["nodes"][0]["disks"], Value::Null, "other nodes need not know its disks");
    assert_eq!(report(&lab, node("3")).await, (StatusCode::OK, none));
    assert_eq!(report(&all, node("1")).await.1["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(report(&lab, node("1")).await.0, StatusCode::CONFLICT);
    for bad in
        [json!({}), json!({ "id": "x", "name": "n" }), json!({ "id": "0".repeat(32), "name": 1 }), json!([])]
    {
        assert_eq!(report(&all, bad).await.0, StatusCode::BAD_REQUEST);
    }
    let long = json!({ "id": "4".repeat(32), "name": "n", "x": "y".repeat(64 << 10) });
    assert_eq!(report(&all, long).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let (status, list) = room.json(&all, "GET", "/api/v1/nodes", &Value::Null).await;
    assert_eq!((status, list["nodes"].as_array().unwrap().len()), (StatusCode::OK, 3));
    assert_eq!(list["nodes"][0]["disks"][0]["image"], json!("lab/a@1"));
    let shares = |at: usize| (&list["nodes"][at]["is_there"], &list["nodes"][at]["shares"]);
    assert_eq!((shares(0), shares(2)), ((&json!(true), &json!(true)), (&json!(true), &json!(true))));
    assert_eq!(
        report(&lab, node("5")).await.1["nodes"][0]["id"],
        json!("3".repeat(32)),
        "its own group only"
    );
    let group = async |token: &str| {
        let (_, store) = room.json(token, "GET", "/api/v1/store", &Value::Null).await;
        (store["sharing_group"].clone(), store["reads_all_images"].clone())
    };
    let (of_all, of_lab) = (group(&all).await, group(&lab).await);
    assert!(of_all.0 != of_lab.0 && of_all.1 == json!(true) && of_lab.1 == json!(false));
    let (status, _) = room.json(&lab, "GET", "/api/v1/nodes", &Value::Null).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

/// The log of changes counts everybody's changes, a restricted token sees numbers of its own.
#[tokio::test]
async fn numbers_of_changes_do_not_count_those_of_others() {
    let room = Room::new();
    let (all, lab) = (room.token(Role::Admin, "*"), room.token(Role::Admin, "lab/*"));
    let log = async |token: &str, after: u64| {
        let (status, log) =
            room.json(token, "GET", &format!("/api/v1/changes?after={after}"), &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{log}");
        let numbers =
            log["changes"].as_array().unwrap().iter().map(|change| change["number"].as_u64().unwrap());
        (numbers.collect::<Vec<_>>(), log["up_to"].as_u64().unwrap(), log["last"].as_u64().unwrap())
    };
    let clone = async |from: &str, to: &str| {
        let wish = json!({ "from": from, "to": to });
        assert_eq!(room.json(&all, "POST", "/api/v1/clone", &wish).await.0, StatusCode::OK);
    };
    let (_, _, before) = log(&all, 0).await;
    assert_eq!(log(&lab, 0).await, (vec![1], 1, 1));
    for name in ["other/c", "other/d", "other/e"] {
        clone("other/b", name).await;
    }
    assert_eq!(log(&lab, 0).await, (vec![1], 1, 1), "nothing has happened");
    clone("lab/a", "lab/c").await;
    assert_eq!(log(&lab, 0).await, (vec![1, 2], 2, 2));
    assert_eq!(log(&lab, 1).await, (vec![2], 2, 2));
    assert_eq!(log(&lab, 2).await, (vec![], 2, 2));
    assert_eq!(log(&all, before).await.2, before + 4);
}
