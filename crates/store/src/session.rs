//! A session adds frames to the store, in packs of its own. It ends with a new version or with frames only.
//!
//! The order of steps (design: durable): the packs with the frames are sealed and synced, including their names. The version
//! record and the entries of the change log that no pack has are the last frames of the last pack. Then one commit of the catalog makes the packs valid and the version exist. So when
//! a pack has a version record, all data of that version was durable before the record. If a crash comes before the commit, the
//! next writer completes it (see `salvage`). After the first error of any kind the store accepts no more writes.

mod closure;
mod lending;
mod parked;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder, RAW_LENGTH_DEFAULT, Verify};
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, Domain, Error, FrameAddress, FrameIndex, FrameSource, FrameStore, Kind, Lease, Pin,
    PinSet, Result,
};

use crate::catalog::{
    Change, PackState, Register, change_blocks, encode_changes, read_all_texts, read_texts,
};
use crate::clock::now_unix_ms;
use crate::health::Observation;
use crate::known::{KnownCheck, KnownFrames};
use crate::pack_writer::{PackWriter, SealedPack};
use crate::published::Published;
use crate::quarantine::condition_of;
use crate::quota::{Growth, Limit, QuotaCheck};
use crate::standing::refusal;
use crate::store::{Shared, Store, page_of};
use platter_index::Index;
use platter_pack::ids;
use platter_pack::lay_ids;
use platter_records::PackChange;
use platter_records::Version;
use platter_records::VersionRecord;
use platter_records::edit_lock_refusal;
use platter_records::{Action, Actor, PackId};

pub(crate) use closure::unless_damaged;
pub(crate) use lending::SessionsUnderWay;
pub use parked::{ParkedPack, Resumed};
pub(crate) use parked::{discard_parked, list_parked};

/// zstd level of the record's frame.
pub(crate) const RECORD_LEVEL: i32 = 3;

/// Adds to a store. Several threads may use it at once. If it is dropped without publishing, its frames stay in the store, where
/// the next session finds them.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    /// Who adds to the store.
    actor: Arc<Actor>,
    /// Other sessions of this process borrow from it.
    state: Arc<Mutex<State>>,
    /// The packs of others on which this session relies, until its commit.
    pins: Mutex<PinSet>,
    /// Ordinals of packs of other sessions under way on which this session relies.
    borrowed: Mutex<HashSet<u32>>,
    known: KnownFrames,
    /// It neither lends to other sessions nor borrows from them.
    is_alone: bool,
    /// It changes no names, so a follower accepts it.
    is_upkeep: bool,
    /// Limits besides the quotas of the store.
    limits: Vec<Limit>,
}

/// What a session has added so far.
#[derive(Debug, Default)]
pub(crate) struct State {
    open: Option<OpenPack>,
    sealed: Vec<(u32, SealedPack)>,
    /// Packs of interrupted sessions that the commit makes part of the store.
    referred: Vec<(u32, SealedPack)>,
    /// Ordinals of packs from earlier, parked sessions. Their frames are read back before this session relies on them.
    resumed: HashSet<u32>,
    /// Ordinals of packs on which other sessions rely: they become part of the store, whatever becomes of this session.
    lent: HashSet<u32>,
    /// Ids of all packs that were begun. Until a commit is tried, no other process can refer to them.
    begun: Vec<PackId>,
    commit_tried: bool,
    /// The blocks of this session. Other sessions cannot find them until they are published.
    index: Index,
    new_raw_bytes: u64,
    new_stored_bytes: u64,
    /// Blocks in committed packs of this session that had no sound copy before.
    repaired: Vec<BlockId>,
}

#[derive(Debug)]
struct OpenPack {
    ordinal: u32,
    writer: PackWriter,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, actor: Arc<Actor>) -> Self {
        let known = KnownFrames::new(KnownCheck::Sample);
        let (state, pins, borrowed) = (Arc::default(), Mutex::default(), Mutex::default());
        if let Some(writer) = &shared.writer {
            writer.under_way.add(&state);
        }
        let limits = Vec::new();
        Self { shared, actor, state, pins, borrowed, known, is_alone: false, is_upkeep: false, limits }
    }

    /// The same session, without any effect on other sessions under way, or of them on it. Call this before anything is added.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.is_alone = true;
        if let Some(writer) = &self.shared.writer {
            writer.under_way.remove(&self.state);
        }
        self
    }

    /// The same session, for a change that a follower accepts.
    pub(crate) fn for_upkeep(mut self) -> Self {
        self.is_upkeep = true;
        self
    }

    /// Sets limits, besides the quotas of the store, for the versions that the session adds.
    #[must_use]
    pub fn with_limits(mut self, limits: Vec<Limit>) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the identity domain of the store's blocks.
    pub fn domain(&self) -> Domain {
        self.shared.domain
    }

    /// Sets how many of the frames that the session relies on are read back; by default a sample.
    #[must_use]
    pub fn with_known_check(mut self, check: KnownCheck) -> Self {
        self.known = KnownFrames::new(check);
        self
    }

    /// Returns whether this session has stored that block itself.
    pub(crate) fn has_stored(&self, id: &BlockId) -> bool {
        self.state().index.locate(id).is_some()
    }

    /// Publishes a version: on return it is durable and visible to everybody. It gets the next number of its image, and the
    /// image's newest version as its parent. It is published under the edit lock that `draft.edit_lock` names: at the commit, the
    /// image's current edit lock must have that number. If none is named, nobody may hold an edit lock.
    ///
    /// # Errors
    /// `Refused` when the edit lock is not current, the record would be too long, or a write has failed before; the session's frames
    /// are then kept, and the store stays usable. After any other error the store accepts no more writes until it is opened
    /// again; the version then exists completely or not at all.
    pub fn publish(self, draft: VersionRecord) -> Result<Version> {
        self.publish_after(draft, None).map(|published| published.version)
    }

    /// As [`Session::publish`], but only if the newest version of the image has number `newest` at the commit (0: no version
    /// exists). Also returns which damaged blocks the session has stored again. After a refusal the session is unchanged; after a
    /// publication it is empty.
    ///
    /// # Errors
    /// As [`Session::publish`]; also `Refused` when the newest version has another number.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a draft is published once; only a check of quotas repeats"
    )]
    pub fn publish_after(&self, draft: VersionRecord, newest: Option<u64>) -> Result<Published> {
        draft.longest().encode()?;
        self.take_borrowed()?;
        let store = Store(Arc::clone(&self.shared), Arc::clone(&self.actor));
        // Holding the recipe takes time, which would tell a session alone whether anybody has a version with this score.
        let has_version = !self.is_alone && store.catalog()?.oldest_of(draft.score)?.is_some();
        if !has_version {
            self.hold_recipe(draft.score)?;
        }
        let growth = Growth::Version(&draft.image, draft.score);
        let version = self.within_quotas(growth, |check| {
            self.commit_version(VersionRecord::clone(&draft), newest, has_version, check)
        })?;
        let repaired = std::mem::take(&mut self.state().repaired);
        Ok(Published { version, repaired, known_frames_read: self.known.read() })
    }

    /// Runs a change that adds a version, after the check of the quotas.
    pub(crate) fn within_quotas<T>(
        &self,
        growth: Growth<'_>,
        attempt: impl FnMut(&QuotaCheck<'_>) -> Result<T>,
    ) -> Result<T> {
        let store = Store(Arc::clone(&self.shared), Arc::clone(&self.actor));
        store.within_quotas(self, growth, &self.limits, attempt)
    }

    fn commit_version(
        &self,
        draft: VersionRecord,
        newest: Option<u64>,
        has_version: bool,
        check: &QuotaCheck<'_>,
    ) -> Result<Version> {
        let mut compressor = Compressor::new(RECORD_LEVEL)?;
        self.commit(|change, state, session| {
            if has_version && !change.has_score(draft.score)? {
                let score = draft.score;
                return Ok(Err(Error::transient(format!(
                    "the disk {score} was forgotten meanwhile: try again"
                ))));
            }
            if let Some(refusal) =
                edit_lock_refusal(&draft.image, draft.edit_lock, change.edit_lock(&draft.image)?.as_ref())
            {
                return Ok(Err(refusal));
            }
            let mut record = draft;
            (record.number, record.parent) = change.next_number(&record.image)?;
            // A signature names the number, so no draft has a valid one.
            record.signatures.clear();
            let found = record.parent.as_ref().map_or(0, |parent| parent.number);
            if let Some(newest) = newest.filter(|newest| *newest != found) {
                let what = format!("the newest version of {} is number {found}, not {newest}", record.image);
                return Ok(Err(Error::refused(what)));
            }
            if let Some(refusal) = check.refusal(change)? {
                return Ok(Err(refusal));
            }
            (record.new_raw_bytes, record.new_stored_bytes) = (state.new_raw_bytes, state.new_stored_bytes);
            let (record_id, frame) = encode_record(&record, &mut compressor)?;
            // Without frames there is no pack to which the record could be added: the catalog and its log have it.
            if !state.is_empty() {
                session.append_to(state, &frame)?;
            }
            if !change.add_version(record_id, &record)? {
                return Err(Error::corrupt(format!(
                    "{} already exists: check the store with `platter check`",
                    record.name()
                )));
            }
            change.does(Action::Publish {
                version: record.name(),
                score: record.score.to_string(),
                lock: record.edit_lock,
                cloned_from: record.cloned_from.clone(),
            });
            Ok(Ok(Version { name: record.name(), record_id, record }))
        })
    }

    /// Ends the session without a version and keeps its frames: the next session finds what this one stored.
    ///
    /// # Errors
    /// As [`Session::publish`].
    pub fn keep(self) -> Result<()> {
        self.keep_frames()
    }

    /// As [`Session::keep`], and stores records again that only damaged frames have, even if nothing else was added.
    pub(crate) fn keep_mended(&self) -> Result<()> {
        if self.state().is_empty() && self.shared.unsound().is_empty() {
            return Ok(());
        }
        self.commit(|_, _, _| Ok(Ok(())))
    }

    fn keep_frames(&self) -> Result<()> {
        if self.state().is_empty() {
            return Ok(());
        }
        self.commit(|_, _, _| Ok(Ok(())))
    }

    /// Runs `last`, which may append frames, then seals, syncs and commits the session. `last` may refuse with an inner error
    /// before it changes anything: the session is then unchanged, and the store stays usable.
    pub(crate) fn commit<T>(
        &self,
        last: impl FnOnce(&mut Change<'_>, &mut State, &Self) -> Result<Result<T>>,
    ) -> Result<T> {
        let done = self.commit_packs(last);
        if done.is_ok() {
            self.shared.cover_packs();
        }
        done
    }

    /// Asks the catalog, in a transaction that changes nothing.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&Change<'_>) -> Result<T>) -> Result<T> {
        let writer = self.shared.writer()?;
        writer.check()?;
        writer.catalog().change(&self.actor, |change| ask(change))
    }

    fn commit_packs<T>(
        &self,
        last: impl FnOnce(&mut Change<'_>, &mut State, &Self) -> Result<Result<T>>,
    ) -> Result<T> {
        self.take_borrowed()?;
        let writer = self.shared.writer()?;
        let mut state = self.state();
        writer.check()?;
        let was_tried = std::mem::replace(&mut state.commit_tried, true);
        // Most data is synced before the catalog is locked, so that other sessions can publish meanwhile.
        if let Some(open) = &state.open {
            writer.poison(open.writer.sync())?;
        }
        let mut catalog = writer.catalog();
        writer.check()?;
        let state = &mut *state;
        let (mut repaired, mut rescued) = (Vec::new(), BTreeSet::new());
        let done = writer.poison(catalog.change(&self.actor, |change| {
            if let Some(refusal) = refusal(change)?.filter(|_| !self.is_upkeep) {
                return Ok(Err(refusal));
            }
            let done = match last(change, state, self)? {
                Err(refusal) => return Ok(Err(refusal)),
                Ok(done) => done,
            };
            let unsound = self.shared.unsound();
            self.mend_records(change, state, &unsound)?;
            self.pack_changes(change, state, &unsound)?;
            state.seal()?;
            let referred = writer.interrupted().referred();
            for (_, pack) in state.sealed.iter().chain(&referred) {
                change.add_live_pack(pack)?;
            }
            change.does_by_default(Action::AddPacks { packs: (state.sealed.len() + referred.len()) as u64 });
            rescued.clone_from(&writer.rescued.lock());
            for pack in &rescued {
                change.set_pack_state(&PackChange { pack: *pack, state: PackState::Live, epoch: 0 })?;
            }
            state.referred = referred;
            // Before the commit, so that whoever sees the version finds its blocks. If the commit fails, the store accepts no
            // more writes, and nothing that refers to these blocks can be published.
            let index = std::mem::take(&mut state.index);
            repaired.extend(unsound.into_iter().filter(|id| index.locate_sound(id).is_some()));
            self.shared.absorb(index)?;
            Ok(Ok(done))
        }))?;
        if done.is_err() {
            state.commit_tried = was_tried;
            return done;
        }
        writer.rescued.lock().retain(|pack| !rescued.contains(pack));
        // The catalog refers to them now.
        *self.pins.lock() = PinSet::default();
        let done_with = std::mem::take(state);
        state.repaired = repaired;
        writer.interrupted().listed(&done_with.referred);
        for (ordinal, _) in done_with.sealed.into_iter().chain(done_with.referred) {
            self.shared.packs.get(ordinal)?.set_state(PackState::Live);
        }
        done
    }

    /// Adds the entries of the change log that no pack has to the session's last pack, and those that only damaged frames have.
    /// The entry of the commit under way follows with the next session.
    fn pack_changes(&self, change: &mut Change<'_>, state: &mut State, unsound: &[BlockId]) -> Result<()> {
        let (head, place) = (change.read()?, &self.shared.place);
        let mut blocks = Vec::new();
        if state.open.is_some() {
            // A damaged log is reported by `check`, and does not keep a version from being published.
            let texts = read_texts(place, &head, change.packed()?.as_ref(), usize::MAX)?;
            blocks.extend(texts.unwrap_or_default().iter().flat_map(|text| change_blocks(text)));
            change.set_packed(&head.position())?;
        }
        // The whole log is read only if that can help.
        if self.shared.is_any_of(Kind::Change, unsound) {
            let known: HashSet<BlockId> = blocks.iter().map(|(id, _)| *id).collect();
            let texts = read_all_texts(place, &head)?;
            let all = texts.iter().flat_map(|text| change_blocks(text));
            blocks.extend(all.filter(|(id, _)| unsound.binary_search(id).is_ok() && !known.contains(id)));
        }
        for frame in encode_changes(&blocks)? {
            self.append_to(state, &frame)?;
        }
        Ok(())
    }

    /// Writes version records again whose frames are damaged. Packs keep those of former versions, too.
    fn mend_records(&self, change: &Change<'_>, state: &mut State, unsound: &[BlockId]) -> Result<()> {
        if !self.shared.is_any_of(Kind::Version, unsound) {
            return Ok(());
        }
        let mut compressor = Compressor::new(RECORD_LEVEL)?;
        for version in change.versions_by_time()?.into_iter().chain(change.former()?) {
            let is_bad = unsound.binary_search(&version.record_id).is_ok();
            if !is_bad || state.index.locate(&version.record_id).is_some() {
                continue;
            }
            // A record that another version of Platter serialized differently has another id: keep it as it is.
            if let Some(record) = version.record.form_with_id(&version.record_id)? {
                self.append_to(state, &encode_record(&record, &mut compressor)?.1)?;
            }
        }
        Ok(())
    }

    pub(crate) fn append_to(&self, state: &mut State, frame: &EncodedFrame) -> Result<u32> {
        let is_data = matches!(frame.kind, Kind::Data | Kind::Page);
        if is_data && frame.domain()? != self.shared.domain {
            return Err(Error::refused(
                "the data is of another identity domain: encrypted stores exchange data only with stores that have the same key",
            ));
        }
        if state.open.as_ref().is_some_and(|open| open.writer.is_full_for(frame)) {
            state.seal()?;
        }
        if state.open.is_none() {
            let writer = PackWriter::create(&self.shared.place, self.shared.id)?;
            state.begun.push(writer.id());
            let ordinal = self.shared.packs.add(writer.id(), PackState::Open);
            state.open = Some(OpenPack { ordinal, writer });
        }
        let Some(open) = state.open.as_mut() else {
            return Err(Error::bug("the session has no pack although it just began one"));
        };
        let offset = open.writer.append(frame)?;
        let address = FrameAddress { pack: open.ordinal, length: frame.stored.len() as u32, offset };
        state.index.push_frame(address, ids(&frame.blocks))?;
        state.new_raw_bytes += u64::from(frame.raw_length);
        state.new_stored_bytes += frame.stored.len() as u64;
        Ok(open.ordinal)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Session {
    /// Returns a pin for a block that this session has added. Frames from a parked session are read back first.
    fn pin_own(&self, id: &BlockId) -> Result<Option<Pin>> {
        loop {
            let (place, is_resumed) = {
                let state = self.state();
                let Some(place) = state.index.locate_sound(id) else { return Ok(None) };
                (place, state.resumed.contains(&place.frame.pack))
            };
            if !is_resumed || self.known.is_sound(place.frame, || self.prove_own(place.frame)) {
                return Ok(Some(self.shared.packs.get(place.frame.pack)?.pin()));
            }
            // From now on this frame is not found; another frame may have the block.
            self.state().index.condemn(&[place.frame]);
        }
    }

    /// Pins a block of the store, even if its frame is bad, until the commit. Usable while the session is being committed.
    pub(crate) fn pin_shared(&self, id: &BlockId) -> Result<Option<Pin>> {
        let pin = self.shared.pin_stored(id)?;
        pin.iter().for_each(|pin| self.pins.lock().insert(pin.clone()));
        Ok(pin)
    }

    /// Reads back a frame of this session and returns whether it is sound. A frame that fails twice is quarantined.
    fn prove_own(&self, address: FrameAddress) -> bool {
        let prove = || {
            let mut stored = Vec::new();
            self.read_frame(address, &mut stored)?;
            self.shared.decoders.with(|decoder| decoder.decode(&stored, Verify::Hashes).map(drop))
        };
        let Err(error) = prove().or_else(|_| prove()) else { return true };
        if let (Some(condition), Ok(pack)) = (condition_of(&error), self.shared.packs.get(address.pack)) {
            let (pack, offset) = (pack.id, address.offset);
            self.shared.quarantine(&[Observation { pack, offset, condition, time_unix_ms: now_unix_ms() }]);
        }
        false
    }
}

impl State {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_none() && self.sealed.is_empty()
    }

    fn seal(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            self.sealed.push((open.ordinal, open.writer.seal()?));
        }
        Ok(())
    }
}

impl FrameSource for Session {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }

    fn found_damaged(&self, address: FrameAddress) {
        self.shared.examine(address);
    }
}

impl FrameIndex for Session {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        let own = self.state().index.locate(id);
        own.map_or_else(|| self.shared.locate(id), |own| Ok(Some(own)))
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame_start(address, address.length as usize, stored)
    }

    fn read_frame_start(&self, address: FrameAddress, length: usize, stored: &mut Vec<u8>) -> Result<()> {
        let length = length.min(address.length as usize);
        let own = self.state().index.ids_at(address).map(|ids| lay_ids(ids, length, stored));
        match own {
            Some(blocks) => self.shared.packs.read_frame(address, blocks, stored)?,
            None => self.shared.read_frame_start(address, length, stored)?,
        }
        stored.truncate(length);
        Ok(())
    }
}

impl FrameStore for Session {
    fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<Pin>> {
        // What a session alone has itself must not be looked for elsewhere: whether others have it would show in the time.
        if self.is_alone
            && let Some(pin) = self.pin_own(id)?
        {
            return Ok(Some(pin));
        }
        if let Some(pin) = self.pin_published(id)? {
            return Ok(Some(pin));
        }
        match self.pin_own(id)? {
            None => self.borrow(id),
            own => Ok(own),
        }
    }

    fn pin_stored(&self, id: &BlockId) -> Result<Option<Pin>> {
        if let Some(pin) = self.pin_shared(id)? {
            return Ok(Some(pin));
        }
        let place = self.state().index.locate(id);
        place.map(|place| Ok(self.shared.packs.get(place.frame.pack)?.pin())).transpose()
    }

    fn append(&self, frame: &EncodedFrame) -> Result<Pin> {
        let writer = self.shared.writer()?;
        let mut state = self.state();
        writer.check()?;
        let ordinal = writer.poison(self.append_to(&mut state, frame))?;
        Ok(self.shared.packs.get(ordinal)?.pin())
    }
}

impl PageSource for Session {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        page_of(self.shared.read_block(self, Kind::Page, id))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let usable = self.shared.writer().is_ok_and(|writer| writer.check().is_ok());
        if usable && !std::thread::panicking() {
            // If this fails, the store accepts no more writes, and the next writer takes over the frames: nothing is lost.
            let _ = self.keep_frames();
        } else if !self.state().commit_tried {
            self.give_space_back();
        }
    }
}

impl Session {
    /// Returns a pin for a block that the store has, unless a sample of it was found damaged.
    fn pin_published(&self, id: &BlockId) -> Result<Option<Pin>> {
        while let Some((place, pin)) = self.shared.lookup_and_pin(id)? {
            let prove = || self.shared.prove_known(place.frame);
            if self.known.is_sound(place.frame, prove) {
                self.pins.lock().insert(pin.clone());
                return Ok(Some(pin));
            }
            if !self.shared.is_bad(place.frame) {
                // The read failed for a reason that proves no damage. Storing the block again is safe.
                break;
            }
        }
        Ok(None)
    }

    /// Removes the packs of a session after a failed write. On a full disk the space is worth more than blocks to which nobody
    /// refers: taking them over would need the same space again. Nothing is removed if other sessions rely on some of them.
    fn give_space_back(&self) {
        let mut state = self.state();
        state.open = None;
        if !state.lent.is_empty() {
            return;
        }
        for pack in std::mem::take(&mut state.begun) {
            // The next writer takes over a pack that cannot be removed.
            let _ = self.shared.place.remove_if_there(&self.shared.place.pack(pack));
        }
    }
}

pub(crate) fn encode_record(
    record: &VersionRecord,
    compressor: &mut Compressor,
) -> Result<(BlockId, EncodedFrame)> {
    let bytes = record.encode()?;
    let id = BlockId::of(Kind::Version, &bytes);
    let mut builder = FrameBuilder::new(Kind::Version, Domain::SHARED, RAW_LENGTH_DEFAULT);
    builder.push(id, &bytes);
    Ok((id, builder.encode(compressor)?))
}
