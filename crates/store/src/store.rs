//! An opened store: what everybody reads, and the state that writers share.
//!
//! Many processes may read a store, one may write it (it holds the lock). A reader sees what had been published when
//! it last looked at the catalog, and looks again at every question that goes there.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use platter_image::frame::FrameDecoder;
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, Error, ErrorKind, FrameAddress, FrameSource, IoContext, Kind, Pin, Result, judged,
};
use platter_vfs::VfsFile;

use crate::catalog::{Catalog, PackRow, PackState, create_log, remove_catalog};
use crate::health::Health;
use crate::identity::{PackId, StoreId};
use crate::index::{Index, ids};
use crate::pack::{PackDirectory, lay_ids, read_directory, scan};
use crate::pack_set::PackSet;
use crate::place::StorePlace;
use crate::salvage::{Adopt, Interrupted, Salvaged, salvage};
use crate::session::Session;

/// How often a held lock is tried: by writers for half a second, since a token changes hands in less; by those who
/// change a token for ten.
pub(crate) const WRITER_LOCK_TRIES: u32 = 50;
pub(crate) const TOKEN_LOCK_TRIES: u32 = 1000;
/// From one try to the next.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Most decoders kept between reads.
const DECODERS_KEPT_MAX: usize = 16;

/// An opened store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<Shared>);

/// What all clones and sessions of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) place: StorePlace,
    pub(crate) id: StoreId,
    pub(crate) packs: PackSet,
    /// Collection must hold it for writing when it condemns a pack: a pin is taken under it (design: pins).
    pub(crate) index: RwLock<Index>,
    catalog: Mutex<Seen>,
    decoders: Mutex<Decoders>,
    /// What was wrong with packs when they were opened.
    damage: Mutex<Vec<String>>,
    pub(crate) health: Mutex<Health>,
    pub(crate) writer: Option<Writer>,
}

/// The catalog to ask, and the state of it for which packs have been opened.
#[derive(Debug)]
struct Seen {
    catalog: Catalog,
    data_version: Option<i64>,
}

/// What only the one writing process has.
#[derive(Debug)]
pub(crate) struct Writer {
    catalog: Mutex<Catalog>,
    /// The first failure of a write: nothing is taken after it (design: durable).
    failure: Mutex<Option<String>>,
    salvaged: OnceLock<Salvaged>,
    interrupted: Mutex<Interrupted>,
    _lock: Arc<dyn VfsFile>,
}

#[derive(Default)]
struct Decoders(Vec<FrameDecoder>);

impl std::fmt::Debug for Decoders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} decoders", self.0.len())
    }
}

impl Store {
    /// Makes a directory a store: makes it, and those above it, when missing.
    ///
    /// # Errors
    /// `Refused` when it is a store already, or holds other things; `Io`.
    pub fn init(place: &StorePlace) -> Result<StoreId> {
        place.create_dirs(place.dir())?;
        // Before the lock, which is a file: nothing is left in a directory that is no place for a store.
        if !place.is_store()? {
            refuse_strangers(place)?;
        }
        let _lock = take_lock(place, WRITER_LOCK_TRIES)?;
        if place.is_store()? {
            return Err(Error::refused(format!("{} is a store already", place.dir().display())));
        }
        refuse_strangers(place)?;
        place.create_dirs(&place.packs_dir())?;
        let id = StoreId(place.vfs().random_id().context(|| "choosing the store's id".into())?);
        remove_catalog(place, &place.catalog())?;
        place.remove_if_there(&place.change_log())?;
        Catalog::create(place, &place.catalog(), id, |change| {
            create_log(place.vfs(), &place.change_log(), &change.state()?.entries(&[])?)
        })?;
        place.sync_dir(place.dir())?;
        // Last: a directory where this was interrupted is no store, and can be made one by another try.
        place.write_format(id)?;
        Ok(id)
    }

    /// Opens a store to be read; works beside a writer.
    ///
    /// # Errors
    /// `Missing` when this is no store; `Corrupt`, `Io`.
    pub fn open_reader(place: &StorePlace) -> Result<Self> {
        Self::open(place, None)
    }

    /// Opens a store to be written: takes its lock, and takes over what interrupted sessions left.
    ///
    /// # Errors
    /// `Transient` when another process writes it; `Missing` when this is no store; `Corrupt`, `Io`.
    pub fn open_writer(place: &StorePlace) -> Result<Self> {
        place.read_format()?;
        let lock = take_lock(place, WRITER_LOCK_TRIES)?;
        Self::open_writer_adopting(place, Arc::from(lock), &Adopt::Interrupted)
    }

    /// The same, under a lock that was taken before.
    pub(crate) fn open_writer_adopting(
        place: &StorePlace,
        lock: Arc<dyn VfsFile>,
        adopt: &Adopt,
    ) -> Result<Self> {
        let catalog = Catalog::open_writer(place)?;
        let writer = Writer {
            catalog: Mutex::new(catalog),
            failure: Mutex::new(None),
            salvaged: OnceLock::new(),
            interrupted: Mutex::default(),
            _lock: lock,
        };
        let store = Self::open(place, Some(writer))?;
        store.0.merge_health()?;
        let salvaged = salvage(&store, adopt)?;
        store.0.writer()?.salvaged.get_or_init(|| salvaged);
        store.refresh()?;
        Ok(store)
    }

    fn open(place: &StorePlace, writer: Option<Writer>) -> Result<Self> {
        let id = place.read_format()?;
        let catalog = Catalog::open_reader(place)?;
        check_store(&catalog, id)?;
        let store = Self(Arc::new(Shared {
            place: place.clone(),
            id,
            packs: PackSet::new(place.clone()),
            index: RwLock::new(Index::new()),
            catalog: Mutex::new(Seen { catalog, data_version: None }),
            decoders: Mutex::default(),
            damage: Mutex::default(),
            health: Mutex::default(),
            writer,
        }));
        // Before the packs are opened: their bad frames are known then. A writer must know them; a reader only then stores
        // nothing, and is told what is damaged when it reads it.
        match store.0.learn_health() {
            Err(error) if store.0.writer.is_none() => store.0.note_damage(describe(&error)),
            learned => learned?,
        }
        store.refresh()?;
        Ok(store)
    }

    /// Begins adding to the store.
    ///
    /// # Errors
    /// `Refused` when the store was opened to be read, or a write has failed since it was opened.
    pub fn session(&self) -> Result<Session> {
        self.0.writer()?.check()?;
        self.0.learn_health()?;
        Ok(Session::new(self.0.clone()))
    }

    /// Whether sessions may begin: it was opened to be written, and no write has failed since. Reads nothing from the disk.
    pub fn takes_writes(&self) -> bool {
        self.0.writer().and_then(Writer::check).is_ok()
    }

    /// Where the store lies.
    pub fn place(&self) -> &StorePlace {
        &self.0.place
    }

    /// The store's id.
    pub fn id(&self) -> StoreId {
        self.0.id
    }

    /// Number of different blocks that can be read.
    pub fn blocks(&self) -> usize {
        self.0.index.read().len()
    }

    /// What was wrong with packs when they were opened, in words. Their good frames are served all the same.
    pub fn damage(&self) -> Vec<String> {
        self.0.damage.lock().clone()
    }

    /// What was taken over from interrupted sessions when the store was opened to be written; `None` for readers.
    pub fn salvaged(&self) -> Option<&Salvaged> {
        self.0.writer.as_ref().and_then(|writer| writer.salvaged.get())
    }

    /// Sees what other processes have published since. Questions to the catalog do it by themselves.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn refresh(&self) -> Result<()> {
        self.catalog().map(|_| ())
    }

    /// Reads a block, page or record and verifies it by its name.
    ///
    /// # Errors
    /// `Missing` when it is not here; `Corrupt` when it is damaged; `Io`.
    pub fn read_block(&self, kind: Kind, id: &BlockId) -> Result<Vec<u8>> {
        self.0.read_block(self, kind, id)
    }

    /// The name of a pack that a frame's address has by number.
    ///
    /// # Errors
    /// `Bug` when no frame of this store has that number.
    pub fn pack_id(&self, address: FrameAddress) -> Result<PackId> {
        Ok(self.0.packs.get(address.pack)?.id)
    }

    /// Whether a block can be located: for messages. Deduplication asks [`platter_image::FrameStore::lookup_and_pin`].
    pub(crate) fn has(&self, id: &BlockId) -> bool {
        self.0.locate(id).is_some()
    }

    /// The catalog to ask, after seeing what is new in it.
    pub(crate) fn catalog(&self) -> Result<CatalogGuard<'_>> {
        let mut seen = self.0.catalog.lock();
        let data_version = Some(seen.catalog.data_version()?);
        if seen.data_version != data_version {
            self.0.open_packs(&seen.catalog.packs()?)?;
            seen.data_version = data_version;
        }
        Ok(CatalogGuard(seen))
    }
}

/// The catalog, locked.
pub(crate) struct CatalogGuard<'a>(MutexGuard<'a, Seen>);

impl CatalogGuard<'_> {
    /// As [`Store::generation`].
    pub(crate) fn generation(&self) -> Result<i64> {
        self.0.data_version.ok_or_else(|| Error::bug("a catalog that was not looked at"))
    }
}

impl std::ops::Deref for CatalogGuard<'_> {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        &self.0.catalog
    }
}

impl FrameSource for Store {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        Ok(self.0.locate(id))
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.0.read_frame(address, stored)
    }

    fn read_frame_start(&self, address: FrameAddress, length: usize, stored: &mut Vec<u8>) -> Result<()> {
        self.0.read_frame_start(address, length, stored)
    }

    fn found_damaged(&self, address: FrameAddress) {
        self.0.examine(address);
    }
}

impl PageSource for Store {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        page_of(self.read_block(Kind::Page, id))
    }
}

/// Who wants a page has read what names it: if the page is not here, the store is damaged.
pub(crate) fn page_of(read: Result<Vec<u8>>) -> Result<Vec<u8>> {
    read.map_err(|error| match error.kind() {
        ErrorKind::Missing => Error::corrupt(format!("{error}: a pack is gone; run `platter check`")),
        _ => error,
    })
}

impl Shared {
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or_else(|| Error::refused("this store was opened to be read"))
    }

    /// Where a block stands. A writer that asks for one that only a pack of an interrupted session has makes the pack part
    /// of the store.
    pub(crate) fn locate(&self, id: &BlockId) -> Option<BlockPlace> {
        let listed = || self.index.read().locate(id);
        listed().or_else(|| if self.refer_to_interrupted_with(id) { listed() } else { None })
    }

    /// Takes in another index.
    pub(crate) fn absorb(&self, index: Index) -> Result<()> {
        self.index.write().absorb(index)
    }

    /// Where a block stands, with a pin, if it may be referred to and was not found bad.
    pub(crate) fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<(BlockPlace, Pin)>> {
        match self.pin_sound(id)? {
            None if self.refer_to_interrupted_with(id) => self.pin_sound(id),
            found => Ok(found),
        }
    }

    fn pin_sound(&self, id: &BlockId) -> Result<Option<(BlockPlace, Pin)>> {
        let index = self.index.read();
        let Some(place) = index.locate_sound(id) else { return Ok(None) };
        let pack = self.packs.get(place.frame.pack)?;
        Ok(pack.may_be_referred_to().then(|| (place, pack.pin())))
    }

    /// A pin for what may be referred to, sound or bad.
    pub(crate) fn pin_stored(&self, id: &BlockId) -> Result<Option<Pin>> {
        let index = self.index.read();
        let Some(place) = index.locate(id) else { return Ok(None) };
        let pack = self.packs.get(place.frame.pack)?;
        Ok(pack.may_be_referred_to().then(|| pack.pin()))
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
        let laid = self.lay_ids(address, length, stored);
        let blocks = laid.ok_or_else(|| {
            Error::bug(format!("no frame is known at {} of pack number {}", address.offset, address.pack))
        })?;
        let read = self.packs.read_frame(address, blocks, stored);
        if read.is_err() {
            self.examine(address);
        }
        read?;
        stored.truncate(length);
        Ok(())
    }

    /// As [`lay_ids`], if the frame at that address is known. Nobody waits for a file here.
    pub(crate) fn lay_ids(
        &self,
        address: FrameAddress,
        length: usize,
        stored: &mut Vec<u8>,
    ) -> Option<usize> {
        let index = self.index.read();
        index.ids_at(address).map(|ids| lay_ids(ids, length.min(address.length as usize), stored))
    }

    /// Reads a block from `source`, which is this store or a session of it, and verifies it by its name.
    pub(crate) fn read_block(&self, source: &dyn FrameSource, kind: Kind, id: &BlockId) -> Result<Vec<u8>> {
        let place = source.locate(id)?;
        let place = place.ok_or_else(|| Error::missing(format!("{kind:?} {id} is not in the store")))?;
        let mut stored = Vec::new();
        source.read_frame(place.frame, &mut stored)?;
        let decoded = self
            .with_decoder(|decoder| decoder.decode_block(&stored, kind, place.slot, id).map(<[u8]>::to_vec));
        judged(source, place.frame, decoded).map_err(|error| {
            let pack = self.packs.get(place.frame.pack).map(|pack| pack.id.to_string()).unwrap_or_default();
            error.within(format!("{kind:?} {id} in pack {pack}, frame at {}", place.frame.offset))
        })
    }

    /// Decodes with a decoder of those that are kept.
    pub(crate) fn with_decoder<T>(&self, decode: impl FnOnce(&mut FrameDecoder) -> Result<T>) -> Result<T> {
        let pooled = self.decoders.lock().0.pop();
        let mut decoder = pooled.map_or_else(FrameDecoder::new, Ok)?;
        let decoded = decode(&mut decoder);
        let mut decoders = self.decoders.lock();
        if decoders.0.len() < DECODERS_KEPT_MAX {
            decoders.0.push(decoder);
        }
        decoded
    }

    /// Opens the packs that are new in the catalog: the live ones first, so that of two copies of a block the one
    /// that stays is found. Packs once opened stay open under their ordinals.
    fn open_packs(&self, rows: &[PackRow]) -> Result<()> {
        let mut known: Vec<PackId> = self.packs.all().iter().map(|pack| pack.id).collect();
        known.sort_unstable();
        for state in [PackState::Live, PackState::Condemned] {
            let mut new: Vec<&PackRow> = rows.iter().filter(|row| row.state == state).collect();
            new.retain(|row| known.binary_search(&row.id).is_err());
            if new.is_empty() {
                continue;
            }
            let (blocks, frames) =
                new.iter().fold((0, 0), |sum, row| (sum.0 + row.blocks, sum.1 + row.frames));
            let mut index = self.index.write();
            // The catalog's counts are a hint, not to be believed without bound.
            index.reserve(blocks.min(RESERVE_MAX) as usize, frames.min(RESERVE_MAX) as usize);
            thread::scope(|scope| {
                let (directory_out, directories) = sync_channel(DIRECTORIES_WAITING);
                // It only ends early when nobody takes directories any more: that one has the reason.
                scope.spawn(move || {
                    new.iter().try_for_each(|row| directory_out.send(self.open_pack(row)).ok())
                });
                directories.iter().try_for_each(|(ordinal, directory)| {
                    index_pack(ordinal, &directory, &mut index)?;
                    self.condemn_known_bad(ordinal, &mut index)
                })
            })?;
        }
        Ok(())
    }

    /// Adds a pack; gives its ordinal, and what it holds as far as that can be read.
    fn open_pack(&self, row: &PackRow) -> (u32, PackDirectory) {
        let ordinal = self.packs.add(row.id, row.state);
        let directory = self.packs.file(ordinal).and_then(|file| {
            let read = read_directory(&*file, row.id, self.id);
            read.or_else(|error| {
                self.note_damage(format!("pack {}: {}", row.id, describe(&error)));
                scanned_directory(&*file)
            })
        });
        let directory = directory.unwrap_or_else(|error| {
            self.note_damage(format!("pack {} cannot be read: {}", row.id, describe(&error)));
            PackDirectory::default()
        });
        (ordinal, directory)
    }

    pub(crate) fn note_damage(&self, what: String) {
        self.damage.lock().push(what);
    }
}

fn index_pack(ordinal: u32, directory: &PackDirectory, index: &mut Index) -> Result<()> {
    directory.iter().try_for_each(|(row, ids)| index.push_frame(row.address(ordinal), ids.iter().copied()))
}

/// Directories of packs that were read and wait to be indexed.
const DIRECTORIES_WAITING: usize = 2;
/// Most blocks that an index makes room for on the catalog's word.
const RESERVE_MAX: u64 = 1 << 26;

/// The directory of a pack whose footer is damaged, from its frames.
fn scanned_directory(file: &dyn VfsFile) -> Result<PackDirectory> {
    let mut directory = PackDirectory::default();
    scan(file, &mut |frame| {
        directory.push(frame.row, ids(frame.blocks));
        Ok(())
    })?;
    Ok(directory)
}

impl Writer {
    /// Refuses once a write has failed.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failure.lock() {
            None => Ok(()),
            Some(first) => Err(Error::refused(format!(
                "the store takes nothing more since a write failed ({first}): open it again, and check it"
            ))),
        }
    }

    /// The same result; after an error the store takes nothing more.
    pub(crate) fn poison<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let mut failure = self.failure.lock();
            failure.get_or_insert_with(|| describe(error));
        }
        result
    }

    /// What interrupted sessions left.
    pub(crate) fn interrupted(&self) -> MutexGuard<'_, Interrupted> {
        self.interrupted.lock()
    }

    /// The catalog, to change it.
    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock()
    }
}

/// An error and its sources in one line.
pub(crate) fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Takes the writer's lock, trying so often while somebody has it, and leaves our process id in it.
pub(crate) fn take_lock(place: &StorePlace, tries: u32) -> Result<Box<dyn VfsFile>> {
    let path = place.lock_file();
    let lock = || place.vfs().lock(&path).context(|| format!("locking {}", path.display()));
    let mut taken = lock()?;
    for _ in 1..tries {
        if taken.is_some() {
            break;
        }
        thread::sleep(LOCK_PAUSE);
        taken = lock()?;
    }
    let Some(lock) = taken else {
        return Err(Error::transient(format!(
            "{} is being written by {}: wait for it; if it is a server, go through it: --server unix:{}/serve.sock",
            place.dir().display(),
            lock_holder(place),
            place.dir().display()
        )));
    };
    let text = format!("{}\n", std::process::id());
    match lock.set_length(0).and_then(|()| lock.write_all_at(text.as_bytes(), 0)) {
        // It is for people, and a full disk is no reason to do nothing about it.
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {}
        written => written.context(|| format!("writing {}", path.display()))?,
    }
    Ok(lock)
}

fn lock_holder(place: &StorePlace) -> String {
    let mut bytes = [0; 16];
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

/// A directory that is to be a store may hold nothing but what an interrupted init leaves.
fn refuse_strangers(place: &StorePlace) -> Result<()> {
    const OURS: [&str; 7] = [
        "lock",
        "packs",
        "store.json.new",
        "changes.log",
        "catalog.sqlite",
        "catalog.sqlite-journal",
        "catalog.sqlite-wal",
    ];
    let dir = place.dir().display();
    let entries = place.vfs().list(place.dir()).context(|| format!("listing {dir}"))?;
    if let Some(stranger) = entries.iter().find(|entry| !OURS.contains(&entry.name.as_str())) {
        return Err(Error::refused(format!(
            "{dir} holds {}: a store wants a directory of its own",
            stranger.name
        )));
    }
    if place.vfs().exists(&place.packs_dir()).context(|| format!("looking into {dir}"))? {
        let packs = place.list_packs()?.len();
        if packs > 0 {
            return Err(Error::refused(format!(
                "{dir} holds {packs} packs but no store.json: `platter rebuild` makes it a store again"
            )));
        }
    }
    Ok(())
}

/// Refuses a catalog of another store.
pub(crate) fn check_store(catalog: &Catalog, id: StoreId) -> Result<()> {
    let found = catalog.store()?;
    if found == id {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "the catalog is that of store {found}, not of {id}: `platter rebuild` makes it anew"
    )))
}
