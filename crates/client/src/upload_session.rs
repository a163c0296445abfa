//! A session that adds a version to an origin's store. Capture uses it like a session of a local store.
//!
//! ```text
//! lookup of many ids ─▶ need ─▶ known or new        append ─▶ batch ─full─▶ request ×n, each resumed by asking need again
//! ```
//!
//! Stores which blocks the origin needs and which were sent; nothing else of the disk. A session can be lost, because a
//! restarted origin does not know it. The origin keeps the received data, so a new session sends only the rest.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use platter_api::{ImportReply, ImportRequest};
use platter_image::frame::EncodedFrame;
use platter_image::{
    BlockId, BlockPlace, Error, ErrorKind, FrameAddress, FrameIndex, FrameSource, FrameStore, Lease, Pin,
    Result,
};
use platter_records::{ImageName, Imported, PublishedVersion, Repairs, Version, VersionRecord};
use serde::{Deserialize, Serialize};

use super::sending::{Sending, need};
use crate::client::{Client, PUBLISH_TIME_MAX, retried};
use crate::origin_store::{OriginStore, version_of};

/// Concurrent requests about blocks, which fill a link with a long round trip.
const LOOKUPS_UNDER_WAY: usize = 8;
/// How long requests are retried while the origin is down.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);

/// The state of a block that the origin needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Needed,
    Sent,
}

/// Adds to an origin's store. May be used by many threads at once. If dropped without publishing, the origin keeps the
/// sent data for the next session.
pub struct UploadSession {
    client: Arc<Client>,
    path: String,
    sending: Mutex<Option<Sending>>,
    blocks: Mutex<HashMap<BlockId, State>>,
    pin: Pin,
    /// The origin no longer knows the session, or lacks blocks on which it relied.
    lost: AtomicBool,
    /// It was published, or the origin does not answer.
    ended: AtomicBool,
}

#[derive(Deserialize)]
struct Begun {
    id: String,
}

/// The origin's reply to a publication.
#[derive(Deserialize)]
struct Published {
    #[serde(flatten)]
    record: VersionRecord,
    #[serde(flatten)]
    repairs: Repairs,
}

#[derive(Serialize)]
struct Publish<'a> {
    record: &'a VersionRecord,
    expect: Option<u64>,
}

impl UploadSession {
    /// Begins a session that is to publish a version of `image`; with
    /// `verify_known`, the origin reads every frame that the version relies on.
    ///
    /// # Errors
    /// The origin's errors.
    pub(crate) fn begin(client: Arc<Client>, image: &ImageName, verify_known: bool) -> Result<Self> {
        let path = format!("/api/v1/uploads?image={image}&verify_known={verify_known}");
        let begun: Begun = retried(RETRY_TIME_MAX, || client.post(&path, &serde_json::json!({})))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if begun.id.is_empty() || begun.id.len() > 128 || !begun.id.chars().all(is_plain) {
            return Err(Error::corrupt(format!("{}: an upload with an invalid id", client.name())));
        }
        let path = format!("/api/v1/uploads/{}", begun.id);
        let sending = Sending::start(client.clone(), path.clone())?;
        Ok(Self {
            client,
            path,
            sending: Mutex::new(Some(sending)),
            blocks: Mutex::default(),
            pin: Pin::new(Arc::new(())),
            lost: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })
    }

    /// Whether the origin no longer knows the session, because it was restarted or was down for too long. Another
    /// session finds the data that the origin has.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until everything was accepted, and publishes a version. On return it is durable and visible to everybody.
    /// If given, `expect` is the number that the newest version must have (0: no version exists); then a retry, in this
    /// session or another, never creates two versions.
    ///
    /// # Errors
    /// The origin's errors. `Transient` when it went down and has no such version.
    pub fn publish(&self, record: &VersionRecord, expect: Option<u64>) -> Result<PublishedVersion> {
        self.finish()?;
        let before = match expect {
            Some(number) => number,
            None => self.newest(record)?.map_or(0, |version| version.name.number),
        };
        let request = Publish { record, expect };
        let published = self.client.change_patiently(&format!("{}/publish", self.path), &request);
        let published: Result<Published> = self.noted(published);
        match published {
            Ok(published) => {
                // Publishing ended the session.
                self.end();
                let version = self.check(version_of(&published.record)?, record)?;
                Ok(PublishedVersion { version, repairs: published.repairs })
            }
            // Perhaps only the response was lost; if a number is expected, an earlier attempt may have arrived late.
            Err(error)
                if error.kind() == ErrorKind::Transient
                    || self.is_lost()
                    || expect.is_some() && error.kind() == ErrorKind::Refused =>
            {
                if error.kind() == ErrorKind::Transient {
                    self.end();
                }
                let newest = self.newest(record).ok().flatten();
                let version = newest.filter(|version| is_of(version, record, before)).ok_or(error)?;
                Ok(PublishedVersion { version, repairs: Repairs::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns what importing a version would do.
    ///
    /// # Errors
    /// The origin's errors.
    pub fn foresee_import(&self, record: &VersionRecord, restore: bool) -> Result<Imported> {
        let request = ImportRequest { record: record.clone(), restore, ask: true };
        let foreseen =
            self.client.post_patiently(&format!("{}/import", self.path), &request, PUBLISH_TIME_MAX);
        let foreseen: ImportReply = self.noted(foreseen)?;
        Ok(foreseen.imported)
    }

    /// Waits until everything was accepted, and imports a version of another store. On return it is durable. With `restore`,
    /// also a version that was forgotten or renamed there. May be repeated, in this session or another.
    ///
    /// # Errors
    /// The origin's errors; `Transient` when it went down.
    pub fn import(&self, record: &VersionRecord, restore: bool) -> Result<Imported> {
        self.finish()?;
        let request = ImportRequest { record: record.clone(), restore, ask: false };
        let imported = self.client.change_patiently(&format!("{}/import", self.path), &request);
        let imported: ImportReply = self.noted(imported).inspect_err(|error| {
            if error.kind() == ErrorKind::Transient {
                self.end();
            }
        })?;
        // Importing ended the session.
        self.end();
        Ok(imported.imported)
    }

    /// Sends the remaining frames, and waits until all were accepted.
    ///
    /// # Errors
    /// The origin's errors.
    pub fn finish(&self) -> Result<()> {
        let sending = self.sending.lock().take();
        let finished = sending.map_or(Ok(()), |mut sending| sending.finish());
        self.noted(finished)
    }

    /// Returns the newest version of the record's image.
    fn newest(&self, record: &VersionRecord) -> Result<Option<Version>> {
        OriginStore::of(self.client.clone()).newest_after_loss(&record.image)
    }

    /// Checks that the origin published what was requested.
    fn check(&self, version: Version, record: &VersionRecord) -> Result<Version> {
        let found = &version.record;
        if (&found.image, found.score) == (&record.image, record.score) {
            return Ok(version);
        }
        Err(Error::corrupt(format!(
            "{}: it published {} with score {} instead of {} with score {}",
            self.client.name(),
            version.name,
            found.score,
            record.image,
            record.score
        )))
    }

    fn blocks(&self) -> MutexGuard<'_, HashMap<BlockId, State>> {
        self.blocks.lock()
    }

    /// The session cannot be used any more, and the origin need not be told.
    fn end(&self) {
        self.lost.store(true, Ordering::Relaxed);
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Returns the result, and notes if it means that the session does not exist, or another is needed.
    fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Missing) {
            self.lost.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Whether a version was created from this draft, after the version of number `before`.
fn is_of(version: &Version, draft: &VersionRecord, before: u64) -> bool {
    let found = &version.record;
    found.number > before
        && (found.score, found.edit_lock, &found.source, &found.notes, &found.labels)
            == (draft.score, draft.edit_lock, &draft.source, &draft.notes, &draft.labels)
}

impl Drop for UploadSession {
    fn drop(&mut self) {
        // First stops sending, then ends the upload at the origin, which keeps the received data.
        drop(self.sending.lock().take());
        if !self.ended.swap(true, Ordering::Relaxed) {
            let _ = self.client.delete(&self.path);
        }
    }
}

impl FrameSource for UploadSession {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }
}

impl FrameIndex for UploadSession {
    /// A session is write-only.
    fn locate(&self, _id: &BlockId) -> Result<Option<BlockPlace>> {
        Ok(None)
    }

    fn read_frame(&self, _address: FrameAddress, _stored: &mut Vec<u8>) -> Result<()> {
        Err(Error::bug("reading a frame from a session of an origin"))
    }
}

impl FrameStore for UploadSession {
    fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<Pin>> {
        Ok(self.lookup_and_pin_all(&[*id])?.into_iter().next().flatten())
    }

    fn lookup_and_pin_all(&self, ids: &[BlockId]) -> Result<Vec<Option<Pin>>> {
        let unknown: Vec<BlockId> = {
            let blocks = self.blocks();
            ids.iter().filter(|id| !blocks.contains_key(id)).copied().collect()
        };
        let needed = match unknown.is_empty() {
            true => Vec::new(),
            false => self.noted(retried(RETRY_TIME_MAX, || need(&self.client, &self.path, &unknown)))?,
        };
        let mut blocks = self.blocks();
        for (id, _) in unknown.iter().zip(needed).filter(|(_, needed)| *needed) {
            // It may have been sent while the request was under way.
            blocks.entry(*id).or_insert(State::Needed);
        }
        let pin = |id| (blocks.get(id) != Some(&State::Needed)).then(|| self.pin.clone());
        Ok(ids.iter().map(pin).collect())
    }

    fn pin_stored(&self, id: &BlockId) -> Result<Option<Pin>> {
        // The lookup pins blocks that the origin has, including those it needs because its copy is damaged. Blocks that
        // it lacks are reported missing at publishing.
        self.lookup_and_pin(id).map(|_| Some(self.pin.clone()))
    }

    fn append(&self, frame: &EncodedFrame) -> Result<Pin> {
        let sending = self.sending.lock();
        let sending =
            sending.as_ref().ok_or_else(|| Error::bug("adding a frame to an upload that has ended"))?;
        self.noted(sending.push(frame))?;
        let mut blocks = self.blocks();
        blocks.extend(frame.blocks.iter().map(|block| (block.id, State::Sent)));
        Ok(self.pin.clone())
    }

    fn lookups_under_way(&self) -> usize {
        LOOKUPS_UNDER_WAY
    }
}
