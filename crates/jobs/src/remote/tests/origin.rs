//! An origin for tests: one thread a connection, one request a connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use platter_image::frame::stream::{self, FrameStreamReader, FramesRequest};
use platter_image::frame::{EncodedFrame, FrameDecoder, Verify};
use platter_image::{BlockId, FrameSource, FrameStore};
use platter_store::{Session, Store, VersionRecord};
use serde_json::{Value, json};

use super::Lab;

/// What an answer is made into, before it is sent: all bytes of it, head included. What comes out is sent.
pub(super) type Spoil = dyn Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync;

/// What was asked.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) frames: AtomicUsize,
    pub(super) frame_bytes: AtomicUsize,
    pub(super) needs: AtomicUsize,
    pub(super) uploads: AtomicUsize,
    pub(super) upload_bytes: AtomicUsize,
    /// Requests for frames at once, now and at most.
    now: AtomicUsize,
    pub(super) most: AtomicUsize,
}

pub(super) struct Origin {
    pub(super) store: Store,
    pub(super) sessions: Mutex<HashMap<String, Arc<Session>>>,
    pub(super) seen: Seen,
    pub(super) spoil: Box<Spoil>,
    /// Before an answer to a request for frames.
    pub(super) delay: Duration,
    /// Loses all uploads when it is asked for the so-many-th time to take frames.
    pub(super) lose_at: Option<usize>,
    pub(super) ended: AtomicBool,
}

/// Ends with it.
pub(super) struct Running(pub(super) Arc<Origin>, std::path::PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.1);
    }
}

impl Origin {
    pub(super) fn new(lab: &Lab) -> Self {
        Self {
            store: Store::open_writer(&lab.place).unwrap(),
            sessions: Mutex::default(),
            seen: Seen::default(),
            spoil: Box::new(|_, answer| answer),
            delay: Duration::ZERO,
            lose_at: None,
            ended: AtomicBool::new(false),
        }
    }

    pub(super) fn run(self, lab: &Lab) -> Running {
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
        if let Some(name) = path.strip_prefix("/api/v1/resolve?name=") {
            return match self.store.resolve(name) {
                Ok(resolved) => {
                    let version = resolved.version.map(|version| version.record);
                    yes(&json!({ "score": resolved.score.to_string(), "version": version }))
                }
                Err(error) => no(404, "missing", &error.to_string()),
            };
        }
        match (method, path) {
            ("GET", "/api/v1/edit-tokens") => yes(&json!(self.store.tokens().unwrap())),
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
            ("POST", "/api/v1/uploads") => {
                let id = format!("upload-{}", self.seen.uploads.fetch_add(1, Ordering::SeqCst));
                let session = Arc::new(self.store.session().unwrap());
                self.sessions.lock().unwrap().insert(id.clone(), session);
                yes(&json!({ "id": id }))
            }
            _ => self.upload(method, path, body),
        }
    }

    fn frames(&self, body: &[u8]) -> Vec<u8> {
        self.seen.frames.fetch_add(1, Ordering::SeqCst);
        let request = FramesRequest::parse(body).unwrap();
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
        let session = match self.sessions.lock().unwrap().get(id) {
            Some(session) => session.clone(),
            None => return no(404, "missing", "there is no such upload"),
        };
        match (method, what) {
            ("DELETE", "") => {
                self.sessions.lock().unwrap().remove(id);
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
                    self.sessions.lock().unwrap().clear();
                    return no(404, "missing", "there is no such upload");
                }
                yes(&json!({ "accepted": take(&session, body) }))
            }
            (_, "publish") => {
                self.sessions.lock().unwrap().remove(id);
                let mut request: Value = serde_json::from_slice(body).unwrap();
                let mut draft: VersionRecord = serde_json::from_value(request["record"].take()).unwrap();
                draft.time_unix_ms = 1;
                match Arc::into_inner(session).unwrap().publish(draft) {
                    Ok(version) => yes(&json!(version.record)),
                    Err(error) => no(409, "refused", &error.to_string()),
                }
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

fn yes(answer: &Value) -> (u16, Vec<u8>) {
    (200, serde_json::to_vec(answer).unwrap())
}

fn no(status: u16, kind: &str, detail: &str) -> (u16, Vec<u8>) {
    let problem =
        json!({ "type": "about:blank", "title": "no", "status": status, "detail": detail, "kind": kind });
    (status, serde_json::to_vec(&problem).unwrap())
}
