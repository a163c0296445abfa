//! Uploads: sessions of the store that remote clients fill, several at once, until they are published or abandoned.
//!
//! Guarantees that an upload makes nothing readable that its sender could not read or did not send. A restricted token
//! has to send every block that is not in an image it may read, and its version may refer to nothing else, whatever ids
//! it knows. Every block is decoded and hashed before it is appended.
//!
//! Data that was sent but not published is not part of the store. It is kept for some days, up to a limit of bytes, for
//! the next upload of the same token, and then discarded.

mod activity;
mod leftovers;
mod promises;
mod proof;

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use platter_image::frame::stream::FrameStreamReader;
use platter_image::frame::{EncodedFrame, FrameDecoder, Verify};
use platter_image::{BlockId, Error, ErrorKind, FrameStore, Kind, PinSet, Result};
use platter_records::{Actor, Imported, VersionRecord};
use platter_store::{KnownCheck, Published, Session, Store};

use crate::access::Principal;
use crate::clock::unix_ms;
use crate::config::{
    DISCARD_PAUSE, LEFTOVER_IDS_MAX, SENT_IDS_MAX, UNFINISHED_KEPT, UNFINISHED_PACKS_MAX, UPLOADS_MAX,
    UPLOADS_OF_ONE_MAX,
};
use crate::id_sets::IdSet;
use crate::writer::is_usable;
use activity::Activity;
use leftovers::{Claim, Leftovers, Usage, Usages, limit_of, owner_name, with_headers};
use platter_transport::random_hex;
use promises::{Answer, Promises};
pub(crate) use proof::PublishError;
use proof::prove;

/// Pages of recipes may exceed the limit by this fraction of it.
const PAGES_SHARE: u64 = 16;

/// All uploads of an origin.
#[derive(Debug)]
pub(crate) struct Uploads {
    /// Most bytes of one token's unfinished uploads.
    limit: u64,
    usages: Usages,
    promises: Arc<Promises>,
    /// Time of the last search for data to discard.
    discarded: Mutex<Option<Instant>>,
    table: Mutex<HashMap<String, Arc<Upload>>>,
    /// The owners of uploads that are being created; these count like those in `table`.
    beginning: Mutex<Vec<String>>,
}

/// Reserves a place for an upload that is being created.
struct Beginning<'a> {
    uploads: &'a Uploads,
    owner: &'a str,
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        let mut beginning = lock(&self.uploads.beginning);
        if let Some(at) = beginning.iter().position(|owner| owner == self.owner) {
            beginning.swap_remove(at);
        }
    }
}

/// An upload.
#[derive(Debug)]
pub(crate) struct Upload {
    id: String,
    owner: String,
    /// Promises hold it weakly, so it ends with the upload.
    activity: Arc<Activity>,
    /// `None` after publishing.
    session: RwLock<Option<Session>>,
    pins: Mutex<PinSet>,
    leftovers: Mutex<Leftovers>,
    promises: Arc<Promises>,
    /// Blocks that other uploads have promised to send.
    awaited: Mutex<HashSet<BlockId>>,
    /// Bytes of all unfinished uploads of the owner; `bytes` of them belong to this one.
    usage: Usage,
    bytes: AtomicU64,
    bytes_max: u64,
    /// Of a token with a quota: most bytes of its uploads between two collections of garbage. New data then replaces the oldest that
    /// its uploads left.
    stored_max: Option<u64>,
    /// The ids that its sender may refer to; `None` when the sender reads everything.
    known: Option<Known>,
    /// Declared after `session`, so it is dropped after it: it holds the store's lock.
    writer: Arc<Store>,
}

#[derive(Debug, Default)]
struct Known {
    /// Ids that were sent in this upload.
    sent: Mutex<HashSet<BlockId>>,
    /// Ids of images that the sender may read, as of its first request.
    readable: OnceLock<Vec<Arc<IdSet>>>,
}

impl Known {
    fn has(&self, id: &BlockId) -> bool {
        lock(&self.sent).contains(id) || self.is_readable(id)
    }

    fn is_readable(&self, id: &BlockId) -> bool {
        self.readable.get().is_some_and(|sets| sets.iter().any(|set| set.contains_any(id)))
    }
}

impl Uploads {
    /// Creates an empty table. `limit`: most bytes of one token's unfinished uploads.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            usages: Usages::default(),
            promises: Arc::default(),
            discarded: Mutex::default(),
            table: Mutex::default(),
            beginning: Mutex::default(),
        }
    }

    /// Begins an upload, which reuses the data of the token's earlier unfinished uploads. `known` sets how much of the
    /// existing data that it relies on is read back.
    ///
    /// # Errors
    /// `Refused` when the token has too many uploads; `Transient` when there are too many in all; the store's errors.
    pub(crate) fn begin(
        &self,
        who: &Principal,
        by: &Actor,
        writer: Arc<Store>,
        known: KnownCheck,
    ) -> Result<Arc<Upload>> {
        let now = Instant::now();
        self.end_where(|upload| upload.owner == who.id && upload.activity.is_left(now));
        // Before anything is read, so a refused request costs nothing.
        let _place = self.place_for(&who.id)?;
        let owner = owner_name(&who.id);
        self.discard_beyond(&writer, owner, UNFINISHED_PACKS_MAX)?;
        self.usages.look_for_collection(&writer)?;
        let session =
            writer.acting_as(by.clone()).session()?.with_known_check(known).with_limits(who.limits());
        // Whether somebody borrowed from it would show in what is left of it, and what it could borrow in what it need not send.
        let session = if who.reads_everything() { session } else { session.alone() };
        let upload = Arc::new(Upload {
            id: random_hex::<16>()?,
            owner: who.id.clone(),
            activity: Arc::new(Activity::new(now)),
            leftovers: Mutex::new(Leftovers::of(&writer, owner, LEFTOVER_IDS_MAX)?),
            promises: Arc::clone(&self.promises),
            awaited: Mutex::default(),
            usage: self.usages.of(&writer, owner)?,
            bytes: AtomicU64::new(0),
            bytes_max: limit_of(who, self.limit),
            stored_max: who.quota_bytes.map(|quota| with_headers(quota).saturating_mul(2)),
            session: RwLock::new(Some(session)),
            pins: Mutex::default(),
            known: (!who.reads_everything()).then(Known::default),
            writer,
        });
        lock(&self.table).insert(upload.id.clone(), Arc::clone(&upload));
        Ok(upload)
    }

    /// Reserves a place for an upload of this owner.
    fn place_for<'a>(&'a self, owner: &'a str) -> Result<Beginning<'a>> {
        let table = lock(&self.table);
        let mut beginning = lock(&self.beginning);
        let own = table.values().filter(|other| other.owner == owner).count()
            + beginning.iter().filter(|other| *other == owner).count();
        // Commands of this machine share the unix socket.
        if own >= UPLOADS_OF_ONE_MAX && !owner.is_empty() {
            return Err(Error::refused(format!(
                "this access token has {own} uploads, and {UPLOADS_OF_ONE_MAX} are allowed: publish or end one"
            )));
        }
        let all = table.len() + beginning.len();
        if all >= UPLOADS_MAX {
            return Err(Error::transient(format!("there are {all} uploads: wait for one to end")));
        }
        beginning.push(owner.to_owned());
        Ok(Beginning { uploads: self, owner })
    }

    /// Returns the upload with this id, if it belongs to the principal.
    ///
    /// # Errors
    /// `Missing` when it does not exist, has ended, or belongs to another token.
    pub(crate) fn get(&self, id: &str, who: &Principal) -> Result<Arc<Upload>> {
        let table = lock(&self.table);
        let upload = table.get(id).filter(|upload| upload.owner == who.id);
        let upload =
            upload.ok_or_else(|| Error::missing(format!("there is no upload {id:?}: begin another")))?;
        Ok(Arc::clone(upload))
    }

    /// Returns the number of uploads.
    pub(crate) fn count(&self) -> usize {
        lock(&self.table).len()
    }

    /// Ends an upload. Its data is kept for the owner's next upload.
    pub(crate) fn end(&self, id: &str) {
        let ended = lock(&self.table).remove(id);
        // Dropped outside the lock, because this syncs the session's frames.
        drop(ended);
    }

    /// Ends uploads without requests for this long, and those whose store accepts no more writes. Returns their ids and
    /// owners.
    pub(crate) fn end_idle(&self, idle_max: Duration) -> Vec<(String, String)> {
        let now = Instant::now();
        self.end_where(|upload| upload.activity.idle(now) >= idle_max || !is_usable(&upload.writer))
    }

    /// Ends all: their blocks are kept aside. Gives their ids and owners.
    pub(crate) fn end_all(&self) -> Vec<(String, String)> {
        self.end_where(|_| true)
    }

    fn end_where(&self, is_over: impl Fn(&Upload) -> bool) -> Vec<(String, String)> {
        let mut ended = Vec::new();
        lock(&self.table).retain(|_, upload| {
            let goes_on = !is_over(upload);
            if !goes_on {
                ended.push(Arc::clone(upload));
            }
            goes_on
        });
        // `ended` is dropped outside the lock, because this syncs the sessions' frames.
        ended.iter().map(|upload| (upload.id.clone(), upload.owner.clone())).collect()
    }

    /// Notes that garbage was collected.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) fn note_collection(&self, store: &Store) -> Result<()> {
        self.usages.note_collection(store)
    }

    /// Discards expired data of unfinished uploads, at most once per [`DISCARD_PAUSE`].
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn discard_old(&self, store: &Store) -> Result<()> {
        {
            let mut discarded = lock(&self.discarded);
            if discarded.is_some_and(|time| time.elapsed() < DISCARD_PAUSE) {
                return Ok(());
            }
            *discarded = Some(Instant::now());
        }
        self.discard_before(store, unix_ms() - UNFINISHED_KEPT.as_millis() as i64)
    }

    /// Discards data that was left before this time.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn discard_before(&self, store: &Store, time_unix_ms: i64) -> Result<()> {
        self.usages.discard_before(store, time_unix_ms)
    }

    /// Discards the oldest packs of an owner's unfinished uploads, down to `packs_max`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn discard_beyond(&self, store: &Store, owner: &str, packs_max: usize) -> Result<()> {
        self.usages.discard_beyond(store, owner, packs_max)
    }

    /// Publishes the uploaded data as the next version of the draft's image. If `expect` is given, the newest version
    /// must have this number (0: no version exists). The upload ends when this succeeds or a write fails; after a
    /// refusal it continues.
    ///
    /// # Errors
    /// `Malformed` when the recipe is invalid; `Missing`, with the id that was not sent; `Refused`; the store's errors.
    pub(crate) fn publish(
        &self,
        upload: &Upload,
        draft: VersionRecord,
        expect: Option<u64>,
    ) -> Result<Published, PublishError> {
        // Before the expensive walk of the recipe.
        draft.room()?;
        let allocated_bytes = upload.check(&draft)?;
        let draft = VersionRecord { allocated_bytes, ..draft };
        upload.writer.check_edit_lock(&draft.image, draft.edit_lock)?;
        self.end_with(upload, |session| session.publish_after(draft, expect))
    }

    /// As [`Uploads::publish`], for a version of another store, whose record stays as it is.
    ///
    /// # Errors
    /// As [`Uploads::publish`].
    pub(crate) fn import(
        &self,
        upload: &Upload,
        record: &VersionRecord,
        restore: bool,
    ) -> Result<Imported, PublishError> {
        upload.check(record)?;
        self.end_with(upload, |session| session.import(record, restore))
    }

    fn end_with<T>(
        &self,
        upload: &Upload,
        last: impl FnOnce(&Session) -> Result<T>,
    ) -> Result<T, PublishError> {
        let mut held = upload.session.write();
        let session = held.as_ref().ok_or_else(|| ended(&upload.id))?;
        let done = last(session);
        if done.is_err() && is_usable(&upload.writer) {
            return Ok(done?);
        }
        // The session is over: it was published, or the store accepts no more writes.
        drop(held.take());
        upload.activity.end();
        let bytes = upload.bytes.swap(0, Ordering::Relaxed);
        upload.usage.add_stored(bytes);
        upload.usage.subtract(bytes);
        lock(&self.table).remove(&upload.id);
        Ok(done?)
    }
}

impl Upload {
    /// Its id: 32 random hexadecimal digits, which cannot be guessed.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns what importing a version would do.
    ///
    /// # Errors
    /// As [`Session::foresee_import`].
    pub(crate) fn foresee_import(&self, record: &VersionRecord, restore: bool) -> Result<Imported> {
        let held = self.session.read();
        held.as_ref().ok_or_else(|| ended(&self.id))?.foresee_import(record, restore)
    }

    /// Notes a request for it, with its connection if that is known.
    pub(crate) fn touch(&self, connection: Option<&Weak<()>>) {
        self.activity.note(connection, Instant::now());
    }

    /// The store that it writes to.
    pub(crate) fn store(&self) -> &Store {
        &self.writer
    }

    /// Whether [`Upload::set_readable`] has to be called before [`Upload::need`] and [`Uploads::publish`].
    pub(crate) fn lacks_readable(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.readable.get().is_none())
    }

    /// Sets the ids of images that the sender may read. Only the first call has an effect.
    pub(crate) fn set_readable(&self, sets: Vec<Arc<IdSet>>) {
        if let Some(known) = &self.known {
            // A concurrent request may have set the same ids first.
            let _ = known.readable.set(sets);
        }
    }

    /// Returns which of these blocks must be sent. The others are pinned until the upload ends, or another upload has promised to
    /// send them ([`Upload::is_waiting`]).
    ///
    /// # Errors
    /// `Missing` when the upload has ended; the store's errors.
    pub(crate) fn need(&self, ids: &[BlockId]) -> Result<Vec<bool>> {
        let session = self.session.read();
        let session = session.as_ref().ok_or_else(|| ended(&self.id))?;
        let (mut pins, now) = (lock(&self.pins), Instant::now());
        let mut is_needed = |id: &BlockId| -> Result<bool> {
            self.claim(session, id)?;
            if self.known.as_ref().is_some_and(|known| !known.has(id)) {
                return Ok(true);
            }
            let sound = session.lookup_and_pin(id)?;
            let is_needed = sound.is_none();
            // A version may refer to a damaged block of its base: it is pinned, but still needed.
            let pin = if is_needed { session.pin_stored(id)? } else { sound };
            pin.into_iter().for_each(|pin| pins.insert(pin));
            // The upload of a restricted token relies on no other one.
            let may_rely = is_needed && self.known.is_none();
            if may_rely && self.promises.ask(id, &self.activity, now) == Answer::Promised {
                lock(&self.awaited).insert(*id);
                return Ok(false);
            }
            Ok(is_needed)
        };
        ids.iter().map(&mut is_needed).collect()
    }

    /// Stores a stream of frames. Returns the number of blocks in it. Frames before an error stay.
    ///
    /// # Errors
    /// `Corrupt` when a frame is damaged or its blocks do not match its header; `Refused` for frames that may not be
    /// sent; `Missing` when the upload has ended; the store's errors.
    pub(crate) fn receive(&self, stream: &[u8]) -> Result<u64> {
        let session = self.session.read();
        let session = session.as_ref().ok_or_else(|| ended(&self.id))?;
        let mut reader = FrameStreamReader::new(stream, usize::MAX);
        let (mut decoder, mut stored, mut accepted) = (FrameDecoder::new()?, Vec::new(), 0);
        while let Some(header) = reader.next_frame(&mut stored).map_err(sender_is_wrong)? {
            // Only publishing creates version records: a record that a client sent would be a version that nobody
            // published.
            let is_taken = matches!(header.kind, Kind::Data | Kind::Page);
            if !is_taken || header.domain != session.domain() || header.blocks.is_empty() {
                return Err(Error::refused(
                    "only frames of blocks and pages of this store's domain are accepted",
                ));
            }
            decoder.decode(&stored, Verify::Hashes)?;
            accepted += header.blocks.len() as u64;
            header.blocks.iter().try_for_each(|block| self.claim(session, &block.id))?;
            let is_new = match &self.known {
                // Stored again even if the store has it, because the version's count of new bytes would reveal whether
                // it has. A block that was sent before may have become damaged since.
                Some(known) => {
                    note_sent(&mut lock(&known.sent), header.blocks.iter().map(|block| block.id))?
                        || self.need_any(session, header.blocks.iter().map(|block| block.id))?
                }
                None => self.need_any(session, header.blocks.iter().map(|block| block.id))?,
            };
            if is_new {
                let (length, limit) = (stored.len() as u64, self.limit_for(header.kind));
                match self.stored_max {
                    Some(stored_max) => {
                        let limits = (limit, stored_max);
                        self.usage.add_to_latest(length, limits, &self.writer, owner_name(&self.owner))?;
                    }
                    None => self.usage.add(length, limit)?,
                }
                self.bytes.fetch_add(stored.len() as u64, Ordering::Relaxed);
                let frame = EncodedFrame {
                    kind: header.kind,
                    stored: std::mem::take(&mut stored),
                    raw_length: header.raw_length,
                    blocks: header.blocks,
                };
                let pin = session.append(&frame)?;
                lock(&self.pins).insert(pin);
                // Others cannot rely on what the upload of a restricted token has.
                if self.known.is_none() {
                    self.promises.keep(frame.blocks.iter().map(|block| block.id));
                }
                stored = frame.stored;
            }
        }
        Ok(accepted)
    }

    /// Returns whether other uploads are still expected to send blocks on which this one relies. When it returns `false`, either all
    /// have arrived, or publishing fails with `Missing`: the client then begins another upload.
    ///
    /// # Errors
    /// `Missing` when the upload has ended; the store's errors.
    pub(crate) fn is_waiting(&self) -> Result<bool> {
        let session = self.session.read();
        let session = session.as_ref().ok_or_else(|| ended(&self.id))?;
        // In the order in which `need` locks them.
        let (mut pins, mut awaited) = (lock(&self.pins), lock(&self.awaited));
        let (mut arrived, now) = (HashSet::new(), Instant::now());
        for id in awaited.iter() {
            // A block arrives before its promise ends. So one that is neither there nor promised is not sent by anybody.
            let is_promised = self.promises.is_promised(id, now);
            match session.lookup_and_pin(id)? {
                Some(pin) => {
                    pins.insert(pin);
                    arrived.insert(*id);
                }
                None if is_promised => break,
                None => return Ok(false),
            }
        }
        awaited.retain(|id| !arrived.contains(id));
        Ok(!awaited.is_empty())
    }

    /// Pages may exceed the limit a little, so data that was uploaded up to the limit can still be published.
    fn limit_for(&self, kind: Kind) -> u64 {
        let extra = if kind == Kind::Page { self.bytes_max / PAGES_SHARE } else { 0 };
        self.bytes_max.saturating_add(extra)
    }

    /// Adds the pack of an earlier unfinished upload that contains this block, if there is one.
    fn claim(&self, session: &Session, id: &BlockId) -> Result<()> {
        let room = || match &self.known {
            Some(known) => SENT_IDS_MAX.saturating_sub(lock(&known.sent).len()),
            None => usize::MAX,
        };
        match lock(&self.leftovers).claim(session, id, &room)? {
            Claim::Nothing => {}
            Claim::Lost { length } => self.usage.subtract(length),
            Claim::Pack { length, ids } => {
                // `usage` counted these bytes when they were sent.
                self.bytes.fetch_add(length, Ordering::Relaxed);
                if let Some(known) = &self.known {
                    lock(&known.sent).extend(ids);
                }
            }
        }
        Ok(())
    }

    fn need_any(&self, session: &Session, ids: impl Iterator<Item = BlockId>) -> Result<bool> {
        let mut pins = lock(&self.pins);
        for id in ids {
            match session.lookup_and_pin(&id)? {
                Some(pin) => pins.insert(pin),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// As [`prove`], for the data of this upload.
    fn check(&self, draft: &VersionRecord) -> Result<u64, PublishError> {
        let session = self.session.read();
        let session = session.as_ref().ok_or_else(|| ended(&self.id))?;
        session.take_borrowed()?;
        let may_use = |id: &BlockId| self.known.as_ref().is_none_or(|known| known.has(id));
        prove(draft, &self.writer, session, &may_use)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let session = self.session.get_mut().take();
        let Some(session) = session else { return };
        let bytes = self.bytes.load(Ordering::Relaxed);
        let parked = session.park(owner_name(&self.owner), unix_ms());
        if let Ok(kept) = parked {
            // What other sessions rely on is part of the store now.
            self.usage.add_stored(bytes.saturating_sub(kept));
        }
        // After a failed write, no data is kept.
        self.usage.change(bytes, parked.unwrap_or(0));
    }
}

/// Remembers ids as sent. Returns whether any of them is new.
fn note_sent(sent: &mut HashSet<BlockId>, ids: impl Iterator<Item = BlockId>) -> Result<bool> {
    let before = sent.len();
    sent.extend(ids);
    if sent.len() > SENT_IDS_MAX {
        return Err(Error::refused(format!(
            "more than {SENT_IDS_MAX} blocks in one upload: an access token for all images has no such limit"
        )));
    }
    Ok(sent.len() > before)
}

/// Maps errors of the request's stream. The body was received in full, so a truncated stream, or one that ends with a
/// failure, is the sender's error and not transient.
fn sender_is_wrong(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Refused => error,
        _ => Error::corrupt(error.to_string()),
    }
}

fn ended(id: &str) -> Error {
    Error::missing(format!("there is no upload {id:?}: begin another"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
