//! An opened store: reading, and the state that all sessions of the writing process share.
//!
//! Many processes can read a store, but only one can write it: the one that holds the lock. A reader sees what was published when
//! it last read the catalog. Every question to the catalog first looks for newer changes.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use platter_image::frame::DecoderPool;
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, Domain, Error, ErrorKind, FrameAddress, FrameIndex, FrameSource, IoContext, Kind,
    Lease, Pin, Result,
};
use platter_vfs::VfsFile;

use crate::accounts::Accounts;
use crate::block_index::BlockIndex;
use crate::catalog::{Beginning, Catalog, PackRow, PackState, create_log, remove_catalog};
use crate::health::Health;
use crate::home;
use crate::pack_set::{Pack, PackSet};
use crate::place::{Format, StorePlace};
use crate::readers::Registration;
use crate::reserve::set_aside;
use crate::salvage::{Adopt, Interrupted, Salvaged, salvage};
use crate::session::{Session, SessionsUnderWay};
use crate::suitable::{refuse_others, refuse_strangers};
use platter_collection::{LookupAnswer, lookup};
use platter_encryption::KeyFile;
use platter_index::{Directories, Index};
use platter_pack::lay_ids;
use platter_records::{Action, Actor, PackId, StoreId};

/// How long everything that writes the store waits for another process that does, unless the place names another time
/// ([`StorePlace::with_lock_wait`]).
pub const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Bytes of the lock's file: a process id, spaces and a line break.
const LOCK_LENGTH: usize = 16;
/// Pause between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of messages about damage.
const DAMAGE_MAX: usize = 1_000;

/// An opened store, and who makes changes through this handle. Clones share one state.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<Shared>, pub(crate) Arc<Actor>);

/// The state that all clones and sessions of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) place: StorePlace,
    pub(crate) id: StoreId,
    /// The identity domain of its blocks.
    pub(crate) domain: Domain,
    pub(crate) packs: PackSet,
    /// A pin is taken under the read lock, so collection must hold the write lock when it condemns a pack (design: pins).
    pub(crate) index: RwLock<BlockIndex>,
    pub(crate) directories: Directories,
    /// The index on disk is damaged: a writer makes a new one.
    pub(crate) index_is_broken: AtomicBool,
    catalog: Mutex<CatalogView>,
    pub(crate) decoders: DecoderPool,
    /// Damage that was found when packs were opened, and why the block index could not be written: different messages.
    damage: Mutex<Vec<String>>,
    pub(crate) health: Mutex<Health>,
    /// What quotas count, as of the last check.
    pub(crate) accounts: Mutex<Accounts>,
    /// What this process reads, for the collector in another one.
    pub(crate) registration: Mutex<Option<Registration>>,
    pub(crate) writer: Option<Writer>,
}

/// The catalog for reading.
#[derive(Debug)]
struct CatalogView {
    catalog: Catalog,
    /// Which file it is: `platter rebuild` puts another one in its place.
    file: Option<(u64, u64)>,
    /// The data version at which the packs were last opened.
    data_version: Option<i64>,
    /// How often they were opened.
    generation: i64,
}

/// The state that only the writing process has.
#[derive(Debug)]
pub(crate) struct Writer {
    catalog: Mutex<Catalog>,
    /// The first failed write. Nothing is accepted after it (design: durable).
    failure: Mutex<Option<String>>,
    salvaged: OnceLock<Salvaged>,
    interrupted: Mutex<Interrupted>,
    pub(crate) under_way: SessionsUnderWay,
    /// Condemned packs that a lookup or a read returned to live. The next commit tells the catalog.
    pub(crate) rescued: Mutex<BTreeSet<PackId>>,
    /// Held by the one collection.
    pub(crate) collecting: Mutex<()>,
    /// Held by the one that adds packs to the index on disk.
    pub(crate) indexing: Mutex<()>,
    _lock: Arc<dyn VfsFile>,
}

impl Store {
    /// Makes a directory a store. Creates the directory and its parents if missing.
    ///
    /// # Errors
    /// `Refused` when it is a store already or holds other files; `Io`.
    pub fn init(place: &StorePlace) -> Result<StoreId> {
        Self::init_with(place, None)
    }

    /// As [`Store::init`], for a store whose data is encrypted with the key in these slots.
    ///
    /// # Errors
    /// As [`Store::init`].
    pub fn init_encrypted(place: &StorePlace, keys: &KeyFile) -> Result<StoreId> {
        Self::init_with(place, Some(keys))
    }

    fn init_with(place: &StorePlace, keys: Option<&KeyFile>) -> Result<StoreId> {
        place.create_dirs(place.dir())?;
        refuse_others(place, place.dir())?;
        // Checked before the lock is taken, because the lock is a file: an unsuitable directory stays untouched.
        if !place.is_store()? {
            refuse_strangers(place)?;
        }
        let _lock = take_lock(place)?;
        if !place.is_store()? {
            let closing = || format!("closing {} to other users", place.dir().display());
            place.vfs().close_to_others(place.dir()).context(closing)?;
        }
        if place.is_store()? {
            return Err(Error::refused(format!("{} is already a store", place.dir().display())));
        }
        refuse_strangers(place)?;
        place.create_dirs(&place.packs_dir())?;
        refuse_others(place, &place.packs_dir())?;
        let id = StoreId(place.vfs().random_id().context(|| "choosing the store's id".into())?);
        remove_catalog(place, &place.catalog())?;
        place.remove_if_there(&place.change_log())?;
        let format = Format { id, domain: keys.map_or(Domain::SHARED, KeyFile::domain) };
        Catalog::create(place, &place.catalog(), format, |change| {
            let (by, time_unix_ms) = (Actor::clone(place.actor()), change.time_unix_ms());
            let beginning = Beginning { last: (0, String::new()), by, time_unix_ms, action: Action::Init {} };
            create_log(place.vfs(), &place.change_log(), &change.state()?, &beginning)
        })?;
        place.sync_dir(place.dir())?;
        set_aside(place);
        match keys {
            Some(keys) => place.write_key_file(keys)?,
            None => place.remove_if_there(&place.key_file()).and_then(|()| place.sync_dir(place.dir()))?,
        }
        // Last, so that an interrupted init leaves no store and can be repeated.
        place.write_format(format)?;
        Ok(id)
    }

    /// Opens a store for reading. Works beside a writer.
    ///
    /// # Errors
    /// `Missing` when there is no store; `Corrupt`, `Io`.
    pub fn open_reader(place: &StorePlace) -> Result<Self> {
        Self::open(place, None)
    }

    /// Opens a store for writing: takes its lock, and takes over the packs that interrupted sessions left.
    ///
    /// # Errors
    /// `Transient` when another process writes the store; `Missing` when there is no store; `Refused` when it is encrypted and
    /// this process lacks its key; `Corrupt`, `Io`.
    pub fn open_writer(place: &StorePlace) -> Result<Self> {
        place.read_format()?;
        let lock = take_lock(place)?;
        let store = Self::open_writer_adopting(place, Arc::from(lock), &Adopt::Interrupted)?;
        home::note(place);
        Ok(store)
    }

    /// As [`Store::open_writer`], with a lock that the caller holds.
    pub(crate) fn open_writer_adopting(
        place: &StorePlace,
        lock: Arc<dyn VfsFile>,
        adopt: &Adopt,
    ) -> Result<Self> {
        let format = place.read_format()?;
        let catalog = Catalog::open_writer(place, |catalog| {
            check_store(catalog, format)?;
            // Interrupted sessions are proven by their contents, and what is stored is encrypted.
            format.domain.check_open()
        })?;
        let writer = Writer {
            catalog: Mutex::new(catalog),
            failure: Mutex::new(None),
            salvaged: OnceLock::new(),
            interrupted: Mutex::default(),
            under_way: SessionsUnderWay::default(),
            rescued: Mutex::default(),
            collecting: Mutex::default(),
            indexing: Mutex::default(),
            _lock: lock,
        };
        let store = Self::open(place, Some(writer))?;
        store.0.merge_health()?;
        let salvaged = salvage(&store, adopt)?;
        store.0.writer()?.salvaged.get_or_init(|| salvaged);
        store.refresh()?;
        store.0.cover_packs();
        store.restore_standing_copy()?;
        Ok(store)
    }

    fn open(place: &StorePlace, writer: Option<Writer>) -> Result<Self> {
        let format = place.read_format()?;
        let Format { id, domain } = format;
        // Before it is opened: if it is replaced in between, it is opened again.
        let file = catalog_file(place);
        let catalog = match writer {
            // The writer has verified it, under the lock.
            Some(_) => Catalog::open_unverified(place)?,
            None => Catalog::open_reader(place)?,
        };
        check_store(&catalog, format)?;
        let shared = Arc::new(Shared {
            place: place.clone(),
            id,
            domain,
            packs: PackSet::new(place.clone()),
            index: RwLock::default(),
            directories: Directories::default(),
            index_is_broken: AtomicBool::new(false),
            catalog: Mutex::new(CatalogView { catalog, file, data_version: None, generation: 0 }),
            decoders: DecoderPool::default(),
            damage: Mutex::default(),
            health: Mutex::default(),
            accounts: Mutex::default(),
            registration: Mutex::default(),
            writer,
        });
        let store = Self(shared, Arc::clone(place.actor()));
        // Before the packs are opened, so that their bad frames are known. A writer fails if it cannot read the quarantine. A
        // reader goes on: it stores nothing, and it notices damaged frames when it reads them.
        match store.0.learn_health() {
            Err(error) if store.0.writer.is_none() => store.0.note_damage(error.with_causes()),
            learned => learned?,
        }
        store.refresh()?;
        Ok(store)
    }

    /// Starts a session, which adds to the store.
    ///
    /// # Errors
    /// `Refused` when the store was opened for reading, a write has failed since it was opened, or the store is a follower or was
    /// replaced.
    pub fn session(&self) -> Result<Session> {
        self.standing()?.refusal().map_or(Ok(()), Err)?;
        self.any_session()
    }

    /// As [`Store::session`], whatever the store is among its copies.
    pub(crate) fn any_session(&self) -> Result<Session> {
        self.0.writer()?.check()?;
        self.0.learn_health()?;
        Ok(Session::new(self.0.clone(), Arc::clone(&self.1)))
    }

    /// Returns the same store with another actor: changes made through the new handle, and through sessions that it starts, are
    /// logged as that actor's.
    #[must_use]
    pub fn acting_as(&self, actor: Actor) -> Self {
        Self(Arc::clone(&self.0), Arc::new(actor))
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.1
    }

    /// Returns whether sessions can be started: the store is open for writing and no write has failed. Does no I/O.
    pub fn takes_writes(&self) -> bool {
        self.0.writer().and_then(Writer::check).is_ok()
    }

    /// Returns the store's directory.
    pub fn place(&self) -> &StorePlace {
        &self.0.place
    }

    /// Returns the store's id.
    pub fn id(&self) -> StoreId {
        self.0.id
    }

    /// Returns the identity domain of the store's blocks.
    pub fn domain(&self) -> Domain {
        self.0.domain
    }

    /// Refuses what needs the key of an encrypted store if this process does not have it.
    ///
    /// # Errors
    /// `Refused`.
    pub fn need_key(&self) -> Result<()> {
        self.0.domain.check_open()
    }

    /// Returns the number of blocks that can be read. A block that several packs have may count several times.
    pub fn blocks(&self) -> usize {
        self.0.index.read().len()
    }

    /// Returns messages about damage that was found when packs were opened, and about the block index. Sound frames of these packs are served.
    pub fn damage(&self) -> Vec<String> {
        self.0.damage.lock().clone()
    }

    /// Returns what was taken over from interrupted sessions when the store was opened for writing; `None` for readers.
    pub fn salvaged(&self) -> Option<&Salvaged> {
        self.0.writer.as_ref().and_then(|writer| writer.salvaged.get())
    }

    /// Makes what other processes have published visible. Questions to the catalog do this themselves.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn refresh(&self) -> Result<()> {
        self.catalog().map(|_| ())
    }

    /// Reads a block, page or record and verifies its hash.
    ///
    /// # Errors
    /// `Missing` when it is not in the store; `Corrupt` when it is damaged; `Io`.
    pub fn read_block(&self, kind: Kind, id: &BlockId) -> Result<Vec<u8>> {
        self.0.read_block(self, kind, id)
    }

    /// Returns the id of the pack that a frame's address refers to.
    ///
    /// # Errors
    /// `Bug` when the address is not of this store.
    pub fn pack_id(&self, address: FrameAddress) -> Result<PackId> {
        Ok(self.0.packs.get(address.pack)?.id)
    }

    /// Returns whether a block can be located. For messages only: deduplication uses
    /// [`platter_image::FrameStore::lookup_and_pin`].
    pub(crate) fn has(&self, id: &BlockId) -> Result<bool> {
        Ok(self.0.locate(id)?.is_some())
    }

    /// Returns the catalog for reading, after opening packs that are new in it.
    pub(crate) fn catalog(&self) -> Result<CatalogGuard<'_>> {
        self.0.fresh_catalog()
    }
}

/// The catalog for reading, locked.
pub(crate) struct CatalogGuard<'a>(MutexGuard<'a, CatalogView>);

impl CatalogGuard<'_> {
    /// As [`Store::generation`].
    pub(crate) fn generation(&self) -> Result<i64> {
        Ok(self.0.generation)
    }
}

impl std::ops::Deref for CatalogGuard<'_> {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        &self.0.catalog
    }
}

impl FrameSource for Store {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }

    fn found_damaged(&self, address: FrameAddress) {
        self.0.examine(address);
    }
}

impl FrameIndex for Store {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        self.0.locate(id)
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.0.read_frame(address, stored)
    }

    fn read_frame_start(&self, address: FrameAddress, length: usize, stored: &mut Vec<u8>) -> Result<()> {
        self.0.read_frame_start(address, length, stored)
    }
}

impl PageSource for Store {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        page_of(self.read_block(Kind::Page, id))
    }
}

/// Turns `Missing` into `Corrupt`: a page that another page names must be in the store.
pub(crate) fn page_of(read: Result<Vec<u8>>) -> Result<Vec<u8>> {
    read.map_err(|error| match error.kind() {
        ErrorKind::Missing => Error::corrupt(format!("{error}: a pack is missing; run `platter check`")),
        _ => error,
    })
}

/// Returns which file the catalog is; `None` if it is missing at the moment, or that is unknown.
pub(crate) fn catalog_file(place: &StorePlace) -> Option<(u64, u64)> {
    place.vfs().identity(&place.catalog()).ok().flatten()
}

impl Shared {
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or_else(|| Error::refused("this store was opened for reading only"))
    }

    /// As [`Store::catalog`].
    fn fresh_catalog(&self) -> Result<CatalogGuard<'_>> {
        let mut seen = self.catalog.lock();
        self.renew(&mut seen)?;
        Ok(CatalogGuard(seen))
    }

    /// Opens the catalog that a rebuild has put in place, and packs that are new in it.
    fn renew(&self, seen: &mut CatalogView) -> Result<()> {
        let file = catalog_file(&self.place);
        if file.is_some() && file != seen.file {
            let catalog = Catalog::open_reader(&self.place)?;
            check_store(&catalog, Format { id: self.id, domain: self.domain })?;
            (seen.catalog, seen.file, seen.data_version) = (catalog, file, None);
        }
        let data_version = Some(seen.catalog.data_version()?);
        if seen.data_version != data_version {
            self.open_packs(&seen.catalog.packs()?)?;
            seen.data_version = data_version;
            seen.generation += 1;
        }
        Ok(())
    }

    /// Looks for packs that another process has added since, which may have a sound copy of a block. Skipped while this process reads the
    /// catalog, and if that fails: the block is then damaged as before.
    fn look_for_repair(&self) {
        if let Some(mut seen) = self.catalog.try_lock() {
            let _ = self.renew(&mut seen);
        }
    }

    /// Returns the catalog's packs.
    pub(crate) fn packs_of_catalog(&self) -> Result<Vec<PackRow>> {
        self.fresh_catalog()?.packs()
    }

    /// Returns where a block is stored. If only a pack of an interrupted session has it and the store is open for writing, that
    /// pack becomes part of the store. A block whose only pack was deleted is stored nowhere.
    pub(crate) fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        let is_there = |place: &BlockPlace| {
            self.packs.get(place.frame.pack).is_ok_and(|pack| pack.state() != PackState::Deleted)
        };
        let listed = || Ok(self.asked(|index| index.locate(id))?.filter(is_there));
        match listed()? {
            None if self.refer_to_interrupted_with(id) => listed(),
            Some(place) if self.is_bad(place.frame) => {
                self.look_for_repair();
                listed()
            }
            found => Ok(found),
        }
    }

    /// Returns where a block is stored in a frame that was not found bad.
    pub(crate) fn locate_sound(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        self.asked(|index| index.locate_sound(id))
    }

    /// Returns a pack that had a block which is stored nowhere now, as far as the index on disk knows.
    pub(crate) fn pack_that_had(&self, id: &BlockId) -> Result<Option<PackId>> {
        self.asked(|index| index.pack_that_had(id))
    }

    /// Returns where a block is stored, if its frame is not known to be bad and its pack was not given up.
    pub(crate) fn locate_kept(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        self.asked(|index| index.locate_kept(id))
    }

    /// Adds all entries of another index.
    pub(crate) fn absorb(&self, index: Index) -> Result<()> {
        self.index.write().absorb(index)
    }

    /// Returns where a block is stored, with a pin, if its pack may be referred to and its frame is not known to be bad.
    pub(crate) fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<(BlockPlace, Pin)>> {
        match self.pin_sound(id)? {
            None if self.refer_to_interrupted_with(id) => self.pin_sound(id),
            found => Ok(found),
        }
    }

    fn pin_sound(&self, id: &BlockId) -> Result<Option<(BlockPlace, Pin)>> {
        // Both under the index lock.
        self.asked(|index| {
            let place = index.locate_sound(id)?;
            Ok(place.map(|place| Ok(self.pin_pack(place.frame.pack)?.map(|pin| (place, pin)))))
        })?
        .unwrap_or(Ok(None))
    }

    /// Pins a pack if new data may refer to it. The caller holds the index lock, so no collection changes the pack's state.
    fn pin_pack(&self, ordinal: u32) -> Result<Option<Pin>> {
        let pack = self.packs.get(ordinal)?;
        match lookup(pack.state()) {
            LookupAnswer::Pin => {}
            LookupAnswer::Rescue => self.rescue(&pack),
            LookupAnswer::Missing => return Ok(None),
        }
        Ok(Some(pack.pin()))
    }

    /// Returns a condemned pack to live. The next commit tells the catalog. A reader cannot do this: it changes nothing.
    fn rescue(&self, pack: &Pack) {
        let Some(writer) = &self.writer else { return };
        if pack.rescue() {
            writer.rescued.lock().insert(pack.id);
        }
    }

    /// Returns a pin for a block whose pack may be referred to, even if its frame is bad.
    pub(crate) fn pin_stored(&self, id: &BlockId) -> Result<Option<Pin>> {
        // Both under the index lock.
        self.asked(|index| Ok(index.locate(id)?.map(|place| self.pin_pack(place.frame.pack))))?
            .unwrap_or(Ok(None))
    }

    /// As [`FrameSource::read_frame`].
    pub(crate) fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame_start(address, address.length as usize, stored)
    }

    /// As [`FrameSource::read_frame_start`].
    pub(crate) fn read_frame_start(
        &self,
        address: FrameAddress,
        length: usize,
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        if matches!(self.read_by_outline(address, length, stored), Ok(true)) {
            return self.note_read(address);
        }
        let laid = self.lay_ids(address, length, stored);
        let blocks = laid.inspect_err(|error| {
            if error.kind() != ErrorKind::Bug {
                self.examine(address);
            }
        })?;
        match self.packs.read_frame(address, blocks, stored) {
            Ok(()) => self.note_read(address)?,
            Err(error) if self.was_collected(address, &error) => {
                self.read_twin(address, length, stored, error)?;
            }
            Err(error) => {
                self.examine(address);
                return Err(error);
            }
        }
        stored.truncate(length);
        Ok(())
    }

    /// A read of a condemned pack returns it to live: something needs it.
    fn note_read(&self, address: FrameAddress) -> Result<()> {
        let pack = self.packs.get(address.pack)?;
        if pack.state() == PackState::Condemned && self.writer.is_some() {
            // The lock orders this with the commit that declares condemned packs dead.
            let _index = self.index.read();
            self.rescue(&pack);
        }
        Ok(())
    }

    /// Returns whether a read failed because the pack was collected and its file deleted.
    fn was_collected(&self, address: FrameAddress, error: &Error) -> bool {
        let source =
            std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
        if source.is_none_or(|source| source.kind() != std::io::ErrorKind::NotFound) {
            return false;
        }
        // Another process may have collected it since the catalog was read.
        let is_collected = || self.packs.get(address.pack).is_ok_and(|pack| pack.is_collected());
        is_collected() || self.fresh_catalog().is_ok() && is_collected()
    }

    /// Reads a frame whose pack was collected from the pack to which compaction has copied it.
    fn read_twin(
        &self,
        address: FrameAddress,
        length: usize,
        stored: &mut Vec<u8>,
        error: Error,
    ) -> Result<()> {
        let Some(twin) = self.twin_of(address)? else {
            let what = "the frame was planned before its pack was collected: look its blocks up again";
            return Err(Error::transient(what).with_source(error));
        };
        let blocks = self.lay_ids(twin, length.min(twin.length as usize), stored)?;
        self.packs.read_frame(twin, blocks, stored)
    }

    /// Returns another frame with exactly the blocks of this one, in a pack that is not given up. Compaction moves frames verbatim
    /// or makes them shorter, so such a frame of the same length has the same bytes.
    fn twin_of(&self, address: FrameAddress) -> Result<Option<FrameAddress>> {
        let Some(ids) = self.with_ids(address, <[BlockId]>::to_vec)? else { return Ok(None) };
        for id in &ids {
            let Some(BlockPlace { frame: twin, .. }) = self.locate(id)? else { continue };
            let may_be_twin = twin.pack != address.pack && twin.length == address.length;
            if may_be_twin && self.with_ids(twin, |others| others == ids)? == Some(true) {
                return Ok(Some(twin));
            }
        }
        Ok(None)
    }

    /// As [`lay_ids`] for the frame at `address`.
    ///
    /// # Errors
    /// `Bug` when there is no such frame; `Corrupt` if the index on disk named it; when the pack's directory cannot be read.
    pub(crate) fn lay_ids(
        &self,
        address: FrameAddress,
        length: usize,
        stored: &mut Vec<u8>,
    ) -> Result<usize> {
        let lay = |ids: &[BlockId]| lay_ids(ids, length.min(address.length as usize), stored);
        self.with_ids(address, lay)?.ok_or_else(|| {
            let (offset, pack) = (address.offset, address.pack);
            let what = format!("no frame is known at offset {offset} of pack number {pack}");
            if self.index.read().covers(pack) { Error::corrupt(what) } else { Error::bug(what) }
        })
    }

    pub(crate) fn note_damage(&self, what: String) {
        let mut damage = self.damage.lock();
        if damage.len() < DAMAGE_MAX && !damage.contains(&what) {
            damage.push(what);
        }
    }
}

impl Writer {
    /// Returns an error if a write has failed since the store was opened.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failure.lock() {
            None => Ok(()),
            Some(first) => Err(Error::refused(format!(
                "the store accepts no more writes because one failed ({first}): open it again and check it"
            ))),
        }
    }

    /// Returns `result`. If it is an error, the store accepts no more writes.
    pub(crate) fn poison<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let mut failure = self.failure.lock();
            failure.get_or_insert_with(|| error.with_causes());
        }
        result
    }

    /// Returns the packs that interrupted sessions left.
    pub(crate) fn interrupted(&self) -> MutexGuard<'_, Interrupted> {
        self.interrupted.lock()
    }

    /// Returns the catalog for changing it.
    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock()
    }
}

/// Takes the writer's lock and writes our process id into its file. If the lock is held, waits for it ([`LOCK_WAIT`]).
pub(crate) fn take_lock(place: &StorePlace) -> Result<Box<dyn VfsFile>> {
    let path = place.lock_file();
    let lock = || place.vfs().lock(&path).context(|| format!("locking {}", path.display()));
    let mut taken = lock()?;
    let wait = place.lock_wait().unwrap_or(LOCK_WAIT);
    for _ in 0..wait.as_millis() / LOCK_PAUSE.as_millis() {
        if taken.is_some() {
            break;
        }
        thread::sleep(LOCK_PAUSE);
        taken = lock()?;
    }
    let Some(lock) = taken else {
        return Err(Error::transient(format!(
            "{} is being written by {}: wait for it to finish{}",
            place.dir().display(),
            lock_holder(place),
            place.lock_advice()
        )));
    };
    refuse_shared(place)?;
    // Always as long, so that the file is not truncated: ext4 then begins to write it to the device when it is closed.
    let text = format!("{:<width$}\n", std::process::id(), width = LOCK_LENGTH - 1);
    match lock.write_all_at(text.as_bytes(), 0) {
        // The process id is only informative: a full disk must not prevent opening the store, which may free space.
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {}
        written => written.context(|| format!("writing {}", path.display()))?,
    }
    Ok(lock)
}

/// Refuses to write a store that shares its catalog or log with a copy by hard links: each would list packs that only the other has.
fn refuse_shared(place: &StorePlace) -> Result<()> {
    let mut journal = place.catalog().into_os_string();
    journal.push("-journal");
    for path in [place.catalog(), journal.into(), place.change_log()] {
        if place.vfs().links(&path).is_ok_and(|links| links > 1) {
            return Err(Error::refused(format!(
                "{} has several names: the store was copied with hard links, and a change of one would damage the other: \
                 replace one of them by a copy of it that `cp -a` made",
                path.display()
            )));
        }
    }
    Ok(())
}

fn lock_holder(place: &StorePlace) -> String {
    let mut bytes = [0; LOCK_LENGTH];
    let read = place
        .vfs()
        .open(&place.lock_file(), platter_vfs::OpenMode::Read)
        .and_then(|file| file.read_at(&mut bytes, 0))
        .unwrap_or(0);
    match std::str::from_utf8(&bytes[..read]).ok().and_then(|text| text.trim().parse::<u32>().ok()) {
        Some(pid) => format!("process {pid}"),
        None => "another process".into(),
    }
}

/// Returns an error if the catalog belongs to another store, or to the same store with another key.
pub(crate) fn check_store(catalog: &Catalog, format: Format) -> Result<()> {
    let (found, domain) = (catalog.store()?, catalog.domain()?);
    if found != format.id {
        return Err(Error::corrupt(format!(
            "the catalog belongs to store {found}, not to {}: `platter rebuild` recreates it",
            format.id
        )));
    }
    if domain != format.domain {
        return Err(other_domain(format.domain, "the catalog", domain));
    }
    Ok(())
}

/// Returns the error for a `store.json` or `keys.json` that contradicts what `who` says.
pub(crate) fn other_domain(named: Domain, who: &str, domain: Domain) -> Error {
    let words = |domain: Domain| match domain.is_encrypted() {
        true => format!("is encrypted with the key of domain {domain}"),
        false => "is not encrypted".to_owned(),
    };
    Error::corrupt(format!(
        "store.json or keys.json was replaced: there the store {}, but {who} says that it {}. Put back the original files of \
         this store; nothing was changed",
        words(named),
        words(domain)
    ))
}
