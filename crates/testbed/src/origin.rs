//! An origin for tests: one thread per connection, one request per connection.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use platter_api::StoreFacts;
use platter_image::frame::stream::{self, FrameStreamReader, FramesRequest};
use platter_image::frame::{EncodedFrame, FrameDecoder, Verify};
use platter_image::{BlockId, ErrorKind, FrameIndex, FrameStore, Result};
use platter_records::{EditLock, NumberChoice, VersionRecord};
use platter_store::{Session, Store};
use serde_json::{Value, json};

use super::lab::Lab;

/// Changes a reply, all its bytes with the head, before it is sent.
pub type Spoil = dyn Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync;

/// Called before a version is published.
pub type BeforePublish = dyn Fn(&Store, &VersionRecord) + Send + Sync;

/// Statistics of the requests.
#[derive(Default)]
pub struct Seen {
    /// Requests for frames.
    pub frames: AtomicUsize,
    /// Bytes of the replies to these.
    pub frame_bytes: AtomicUsize,
    /// Requests for frames that ask for the named blocks only. This origin sends whole frames nevertheless.
    pub exact: AtomicUsize,
    /// Requests that ask which blocks are needed.
    pub needs: AtomicUsize,
    /// Uploads that were begun.
    pub uploads: AtomicUsize,
    /// Bytes of frames received in uploads.
    pub upload_bytes: AtomicUsize,
    /// Number of concurrent requests for frames: now, and in `most` the maximum.
    now: AtomicUsize,
    /// See `now`.
    pub most: AtomicUsize,
}

/// An origin that does not run yet.
pub struct Origin {
    /// The store that it serves.
    pub store: Store,
    /// The uploads, by id.
    pub sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// What was requested.
    pub seen: Seen,
    /// See [`Spoil`].
    pub spoil: Box<Spoil>,
    /// Delay of replies to requests for frames.
    pub delay: Duration,
    /// Number of the request with uploaded frames at which all uploads are lost.
    pub lose_at: Option<usize>,
    /// Called before a version is published.
    pub before_publish: Box<BeforePublish>,
    /// Whether it accepts no more connections.
    pub ended: AtomicBool,
}

/// A running origin. It ends when this is dropped.
pub struct Running(pub Arc<Origin>, std::path::PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.1);
    }
}

impl Origin {
    /// An origin of the lab's store, without errors.
    pub fn new(lab: &Lab) -> Self {
        Self {
            store: Store::open_writer(&lab.place).unwrap(),
            sessions: Mutex::default(),
            seen: Seen::default(),
            spoil: Box::new(|_, answer| answer),
            delay: Duration::ZERO,
            lose_at: None,
            before_publish: Box::new(|_, _| {}),
            ended: AtomicBool::new(false),
        }
    }

    /// Runs it at the lab's socket.
    pub fn run(self, lab: &Lab) -> Running {
        let socket = lab.socket();
        let listener = UnixListener::bind(&socket).unwrap();
        let origin = Arc::new(self);
        let serving = origin.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.ended.load(Ordering::SeqCst) {
                    return;
                }
                let serving = serving.clone();
                thread::spawn(move || serving.answer(stream.unwrap()));
            }
        });
        Running(origin, socket)
    }

    fn answer(&self, mut stream: UnixStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim().to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if header.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, answer) = self.act(&method, &path, &body);
        let head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\n\r\n");
        let whole = (self.spoil)(&path, [head.as_bytes(), &answer].concat());
        stream.write_all(&whole).ok()
    }

    fn act(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        if let Some(query) = path.strip_prefix("/api/v1/resolve?name=") {
            // This origin never reports missing blocks.
            let name = query.split('&').next().unwrap_or_default();
            return match self.store.resolve(name) {
                Ok(resolved) => {
                    let version = resolved.version.map(|version| version.record);
                    yes(&json!({ "score": resolved.score.to_string(), "version": version }))
                }
                Err(error) => no(404, "missing", &error.to_string()),
            };
        }
        match (method, path) {
            ("GET", "/api/v1/edit-locks") => yes(&json!(self.store.edit_locks().unwrap())),
            ("GET", "/api/v1/store") => yes(&json!(self.facts())),
            ("GET", "/api/v1/versions") => {
                let versions = self.store.versions().unwrap().into_iter().map(|version| version.record);
                yes(&json!(versions.collect::<Vec<_>>()))
            }
            ("POST", "/api/v1/edit-locks") => self.take_edit_lock(body),
            ("DELETE", _) if path.starts_with("/api/v1/edit-locks/") => {
                let (image, number) = path["/api/v1/edit-locks/".len()..].split_once('/').unwrap();
                let image = image.replace("%2F", "/").parse().unwrap();
                match self.store.edit_lock(&image).unwrap() {
                    Some(held) => {
                        let edit_lock = EditLock { number: number.parse().unwrap(), ..held };
                        answer(self.store.release_edit_lock(&edit_lock))
                    }
                    None => no(404, "missing", "nobody holds it"),
                }
            }
            ("POST", "/api/v1/forget") => {
                let wish: Value = serde_json::from_slice(body).unwrap();
                let image = wish["image"].as_str().unwrap().parse().unwrap();
                let forgotten = self.store.forget(&image, wish["number"].as_u64());
                answer(forgotten.map(
                    |names| json!({ "forgotten": names.iter().map(ToString::to_string).collect::<Vec<_>>() }),
                ))
            }
            ("POST", "/api/v1/rename") => {
                let wish: Value = serde_json::from_slice(body).unwrap();
                let name = |key: &str| wish[key].as_str().unwrap().parse().unwrap();
                answer(self.store.rename(&name("from"), &name("to")).map(|_| json!({ "renamed": [] })))
            }
            ("GET", "/api/v1/images") => {
                let images = self.store.images().unwrap().into_iter().map(|version| version.record);
                yes(&json!(images.collect::<Vec<_>>()))
            }
            ("POST", "/api/v1/frames") => {
                let now = self.seen.now.fetch_add(1, Ordering::SeqCst) + 1;
                self.seen.most.fetch_max(now, Ordering::SeqCst);
                thread::sleep(self.delay);
                let answer = self.frames(body);
                self.seen.now.fetch_sub(1, Ordering::SeqCst);
                (200, answer)
            }
            ("POST", begin) if begin.starts_with("/api/v1/uploads?image=") => {
                let id = format!("upload-{}", self.seen.uploads.fetch_add(1, Ordering::SeqCst));
                let session = Arc::new(self.store.session().unwrap());
                self.sessions.lock().insert(id.clone(), session);
                yes(&json!({ "id": id }))
            }
            _ => self.upload(method, path, body),
        }
    }

    fn take_edit_lock(&self, body: &[u8]) -> (u16, Vec<u8>) {
        let wish: Value = serde_json::from_slice(body).unwrap();
        let image = wish["image"].as_str().unwrap().parse().unwrap();
        let holder = wish["holder"].as_str().unwrap();
        answer(match wish["steal"] == json!(true) {
            true => self.store.steal_edit_lock(&image, holder, 1),
            false => self.store.take_edit_lock(&image, holder, 1),
        })
    }

    fn facts(&self) -> StoreFacts {
        StoreFacts {
            domain: None,
            id: self.store.id().to_string(),
            sharing_group: "5".repeat(32),
            reads_all_images: true,
            version: String::new(),
            images: 0,
            versions: 0,
            stored_bytes: 0,
            blocks: None,
            collection_needs_confirmation: None,
            health: None,
        }
    }

    fn frames(&self, body: &[u8]) -> Vec<u8> {
        self.seen.frames.fetch_add(1, Ordering::SeqCst);
        let request = FramesRequest::parse(body).unwrap();
        self.seen.exact.fetch_add(usize::from(request.exact), Ordering::SeqCst);
        let (mut out, mut sent, mut missing, mut stored) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        stream::write_head(&mut out);
        for id in &request.ids {
            match self.store.locate(id).unwrap() {
                None => missing.push(*id),
                Some(place) if sent.contains(&place.frame) => {}
                Some(place) => {
                    self.store.read_frame(place.frame, &mut stored).unwrap();
                    stream::write_frame(&stored, &mut out);
                    sent.push(place.frame);
                }
            }
        }
        stream::write_end(&missing, &mut out);
        self.seen.frame_bytes.fetch_add(out.len(), Ordering::SeqCst);
        out
    }

    fn upload(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let Some(rest) = path.strip_prefix("/api/v1/uploads/") else {
            return no(404, "missing", "no such endpoint");
        };
        let (id, what) = rest.split_once('/').unwrap_or((rest, ""));
        let session = match self.sessions.lock().get(id) {
            Some(session) => session.clone(),
            None => return no(404, "missing", "there is no such upload"),
        };
        match (method, what) {
            ("DELETE", "") => {
                self.sessions.lock().remove(id);
                (204, Vec::new())
            }
            (_, "need") => {
                self.seen.needs.fetch_add(1, Ordering::SeqCst);
                let needed = |id: &BlockId| session.lookup_and_pin(id).unwrap().is_none();
                let needed: Vec<bool> = stream::ids(body).unwrap().iter().map(needed).collect();
                (200, stream::need_to_bytes(&needed))
            }
            (_, "frames") => {
                let before = self.seen.upload_bytes.fetch_add(body.len(), Ordering::SeqCst);
                if self.lose_at.is_some_and(|at| before < at && at <= before + body.len()) {
                    self.sessions.lock().clear();
                    return no(404, "missing", "there is no such upload");
                }
                yes(&json!({ "accepted": take(&session, body) }))
            }
            (_, "publish") => {
                let mut request: Value = serde_json::from_slice(body).unwrap();
                let mut draft: VersionRecord = serde_json::from_value(request["record"].take()).unwrap();
                draft.time_unix_ms = 1;
                (self.before_publish)(&self.store, &draft);
                let newest =
                    self.store.version(&draft.image, NumberChoice::Latest).map_or(0, |it| it.name.number);
                if request["expect"].as_u64().is_some_and(|expect| expect != newest) {
                    return no(409, "refused", &format!("the newest version has number {newest}"));
                }
                self.sessions.lock().remove(id);
                answer(Arc::into_inner(session).unwrap().publish(draft).map(|version| version.record))
            }
            _ => no(404, "missing", "no such endpoint"),
        }
    }
}

fn take(session: &Session, body: &[u8]) -> usize {
    let mut reader = FrameStreamReader::new(body, usize::MAX);
    let (mut stored, mut accepted) = (Vec::new(), 0);
    while let Some(header) = reader.next_frame(&mut stored).unwrap() {
        FrameDecoder::new().unwrap().decode(&stored, Verify::Hashes).unwrap();
        accepted += header.blocks.len();
        let (raw_length, kind) = (header.raw_length, header.kind);
        session
            .append(&EncodedFrame { kind, stored: stored.clone(), blocks: header.blocks, raw_length })
            .unwrap();
    }
    accepted
}

fn answer<T: serde::Serialize>(result: Result<T>) -> (u16, Vec<u8>) {
    match result {
        Ok(answer) => yes(&json!(answer)),
        Err(error) if error.kind() == ErrorKind::Missing => no(404, "missing", &error.to_string()),
        Err(error) => no(409, "refused", &error.to_string()),
    }
}

fn yes(answer: &Value) -> (u16, Vec<u8>) {
    (200, serde_json::to_vec(answer).unwrap())
}

fn no(status: u16, kind: &str, detail: &str) -> (u16, Vec<u8>) {
    let problem =
        json!({ "type": "about:blank", "title": "no", "status": status, "detail": detail, "kind": kind });
    (status, serde_json::to_vec(&problem).unwrap())
}
