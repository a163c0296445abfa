//! An overlay: the private writes of one live disk, stored above a read-only base
//! (design: overlays).
//!
//! One sparse file holds the written data at the disk's own offsets, followed by a log of records that say
//! which blocks are present. A write puts its data into the file, then its record, and returns only after
//! both: killing the process loses nothing. A flush is one sync of the file. Nothing is hashed or compressed
//! here, except for a checksum of each block that a power cut could leave half written. In an encrypted store, each
//! sector is encrypted by itself (`cipher`), so the rules for crashes hold for what is stored. The overlay must
//! never lose flushed data, and must never overwrite in place a block that recovery could then drop.

mod cipher;
mod device;
mod format;
mod log;
mod state;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use platter_image::{Domain, Error, Extents, IoContext, Result, Score};
use platter_vfs::{OpenMode, Vfs, VfsFile};

use crate::block_device::BlockDevice;
use cipher::Cipher;
pub use format::OverlayHeader;
use format::{BLOCK, HEADER_LENGTH, log_offset_min};
use log::{Log, Replayed, replay};
use state::{BlockState, States};

/// Writes are split into pieces that each lie in one region of this many bytes; a region has one writer at a
/// time.
const REGION: u64 = 1 << 20;
/// Number of locks that the regions share.
const STRIPES: usize = 64;

/// Stored instead of the boot id after a failed sync: the page cache may then differ from the disk.
const IN_DOUBT: [u8; 16] = [0; 16];

/// Which version, edit lock and boot an overlay belongs to.
#[derive(Clone, Copy, Debug)]
pub struct OverlayOptions {
    /// The version that is read where nothing was written.
    pub base_score: Score,
    /// The identity domain of the store: in an encrypted one, what is written is encrypted with its key.
    pub domain: Domain,
    /// The edit lock's number.
    pub edit_lock: u64,
    /// The id of the machine's current boot. An overlay written during another boot may lack unflushed data.
    pub boot_id: [u8; 16],
}

/// Counts since the overlay was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverlayCounters {
    /// Syncs made for flushes.
    pub flushes: u64,
    /// Syncs made before overwriting a block whose `Flushed` record was not yet durable.
    pub settles: u64,
    /// Pieces of writes that overwrote settled blocks in place, without a record of the new contents.
    pub in_place: u64,
}

/// A writable disk: private writes above a read-only base.
pub struct Overlay {
    file: Box<dyn VfsFile>,
    cipher: Cipher,
    header: Mutex<OverlayHeader>,
    length: u64,
    base: RwLock<Arc<dyn BlockDevice>>,
    states: RwLock<States>,
    log: Mutex<Log>,
    /// Held exclusively by the writer of a region, and shared by readers of encrypted sectors: half of a new sector and half
    /// of an old one would decrypt to neither.
    stripes: Vec<RwLock<()>>,
    /// Writers share it; a sync holds it exclusively, so that it covers every record already written.
    gate: RwLock<()>,
    /// `written`: data or records were written since the last flush. `recorded`: records were appended since
    /// the last `Flushed`.
    written: AtomicBool,
    recorded: AtomicBool,
    /// A sync failed. What was written since the last good sync is uncertain, so no more writes are accepted.
    poisoned: AtomicBool,
    flushes: AtomicU64,
    settles: AtomicU64,
    in_place: AtomicU64,
}

impl Overlay {
    /// Creates an overlay above `base`; it is durable when this returns. The file is written as `<path>.new`
    /// and renamed when complete. If creation is interrupted, no overlay appears at `path`, and the next call
    /// removes the leftover.
    ///
    /// # Errors
    /// `Refused` when the process does not have the key of the domain; `Io`: the name exists already, there is no space, or
    /// another system error. No file is left behind.
    pub fn create(
        vfs: &dyn Vfs,
        path: &Path,
        options: &OverlayOptions,
        base: Arc<dyn BlockDevice>,
    ) -> Result<Self> {
        let context = || format!("creating the overlay {}", path.display());
        options.domain.check_open()?;
        let new = unfinished(path);
        if vfs.exists(path).context(context)? {
            return Err(Error::io(context(), std::io::ErrorKind::AlreadyExists.into()));
        }
        if vfs.exists(&new).context(context)? {
            vfs.remove(&new).context(context)?;
        }
        Self::create_unfinished(vfs, &new, options, base)
            .and_then(|made| {
                vfs.rename(&new, path).context(context)?;
                path.parent().map_or(Ok(()), |dir| vfs.sync_dir(dir)).context(context)?;
                Ok(made)
            })
            .inspect_err(|_| {
                // The incomplete file would only waste space.
                let _ = vfs.remove(&new);
            })
    }

    fn create_unfinished(
        vfs: &dyn Vfs,
        path: &Path,
        options: &OverlayOptions,
        base: Arc<dyn BlockDevice>,
    ) -> Result<Self> {
        let context = || format!("creating {}", path.display());
        let file = vfs.open(path, OpenMode::CreateNew).context(context)?;
        let disk_length = base.length();
        let header = OverlayHeader {
            id: vfs.random_id().context(context)?,
            disk_length,
            base_score: options.base_score,
            edit_lock: options.edit_lock,
            boot_id: options.boot_id,
            domain: options.domain,
            log_offset: log_offset_min(disk_length),
            generation: 1,
        };
        let states = States::default();
        let log = Log::begin(&*file, &header, &states)?;
        file.write_all_at(&header.encode(), 0).context(context)?;
        file.sync().context(context)?;
        Ok(Self::new(file, header, base, states, log))
    }

    /// Opens an overlay left by an earlier process. All its contents are durable when this returns. Without the key of its
    /// domain it can be opened, but neither read nor written.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged; `Refused` when it belongs to another version, edit lock or disk length;
    /// `Io`.
    pub fn open(
        vfs: &dyn Vfs,
        path: &Path,
        options: &OverlayOptions,
        base: Arc<dyn BlockDevice>,
    ) -> Result<Self> {
        let within = |error: Error| error.within(format!("the overlay {}", path.display()));
        let file =
            vfs.open(path, OpenMode::Write).context(|| format!("opening the overlay {}", path.display()))?;
        let mut header = read_header(&*file).map_err(within)?;
        let mine = (header.base_score, header.edit_lock, header.disk_length);
        if mine != (options.base_score, options.edit_lock, base.length()) {
            return Err(within(Error::refused(format!(
                "it belongs to version {}, edit lock {} and a disk of {} bytes",
                header.base_score, header.edit_lock, header.disk_length
            ))));
        }
        // Otherwise a changed header would make the overlay of an encrypted store a plain one.
        if header.domain != options.domain {
            return Err(within(Error::refused(match header.domain.is_encrypted() {
                true => "it is encrypted, but not with the key of the store",
                false => "it is not encrypted, but the store is",
            })));
        }
        let Replayed { mut states, length } =
            replay(&*file, &header, header.boot_id == options.boot_id).map_err(within)?;
        if header.boot_id == IN_DOUBT {
            write_back(&*file, &states).map_err(within)?;
        }
        // Write a log of the current state behind the old one. It takes effect when the header points to it.
        let old = header.log_offset;
        header.log_offset = length.div_ceil(BLOCK) * BLOCK;
        header.generation = header
            .generation
            .checked_add(1)
            .ok_or_else(|| Error::corrupt("the overlay was opened too many times"))?;
        header.boot_id = options.boot_id;
        let log = Log::begin(&*file, &header, &states).map_err(within)?;
        let sync = || file.sync().context(|| "syncing an overlay".to_owned());
        sync().map_err(within)?;
        file.write_all_at(&header.encode(), 0).context(|| "writing an overlay's header".to_owned())?;
        sync().map_err(within)?;
        file.punch(old, header.log_offset - old).context(|| "freeing an overlay's old log".to_owned())?;
        states.flushed();
        states.settle();
        Ok(Self::new(file, header, base, states, log))
    }

    /// Reads an overlay's header without opening the overlay.
    ///
    /// # Errors
    /// `Corrupt`, `Refused`, `Io`.
    pub fn header(vfs: &dyn Vfs, path: &Path) -> Result<OverlayHeader> {
        let file =
            vfs.open(path, OpenMode::Read).context(|| format!("opening the overlay {}", path.display()))?;
        read_header(&*file).map_err(|error| error.within(format!("the overlay {}", path.display())))
    }

    /// Returns what [`Overlay::dirty`] would return if the overlay were opened. Changes nothing, so it needs no space.
    ///
    /// # Errors
    /// As [`Overlay::open`].
    pub fn written(vfs: &dyn Vfs, path: &Path, edit_lock: u64, boot_id: [u8; 16]) -> Result<Extents> {
        let within = |error: Error| error.within(format!("the overlay {}", path.display()));
        let file =
            vfs.open(path, OpenMode::Read).context(|| format!("opening the overlay {}", path.display()))?;
        let header = read_header(&*file).map_err(within)?;
        if header.edit_lock != edit_lock {
            return Err(within(Error::refused(format!("it belongs to edit lock {}", header.edit_lock))));
        }
        let replayed = replay(&*file, &header, header.boot_id == boot_id).map_err(within)?;
        Ok(replayed.states.dirty(header.disk_length))
    }

    fn new(
        file: Box<dyn VfsFile>,
        header: OverlayHeader,
        base: Arc<dyn BlockDevice>,
        states: States,
        log: Log,
    ) -> Self {
        Self {
            file,
            cipher: Cipher::of(&header),
            header: Mutex::new(header),
            length: header.disk_length,
            base: RwLock::new(base),
            states: RwLock::new(states),
            log: Mutex::new(log),
            stripes: (0..STRIPES).map(|_| RwLock::default()).collect(),
            gate: RwLock::new(()),
            written: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            settles: AtomicU64::new(0),
            in_place: AtomicU64::new(0),
        }
    }

    /// The written ranges, rounded to whole 4 KiB blocks (except at the end of the disk).
    pub fn dirty(&self) -> Extents {
        self.states().dirty(self.length)
    }

    /// The counters since opening.
    pub fn counters(&self) -> OverlayCounters {
        OverlayCounters {
            flushes: self.flushes.load(Ordering::Relaxed),
            settles: self.settles.load(Ordering::Relaxed),
            in_place: self.in_place.load(Ordering::Relaxed),
        }
    }

    /// Replaces the base and keeps the written blocks. The change is durable when this returns.
    ///
    /// # Errors
    /// `Refused` when the new base has another length. `Io`: the overlay then accepts no more writes.
    pub fn rebase(&self, base_score: Score, base: Arc<dyn BlockDevice>) -> Result<()> {
        if base.length() != self.length {
            return Err(Error::refused(format!(
                "the new base has {} bytes, the disk has {}",
                base.length(),
                self.length
            )));
        }
        let _alone = self.gate.write();
        self.check()?;
        let bytes = {
            let mut header = self.header.lock();
            header.base_score = base_score;
            header.encode()
        };
        self.poison(self.file.write_all_at(&bytes, 0))
            .context(|| "writing an overlay's header".to_owned())?;
        self.sync_alone()?;
        *self.base.write() = base;
        Ok(())
    }

    fn base(&self) -> Arc<dyn BlockDevice> {
        self.base.read().clone()
    }

    fn states(&self) -> RwLockReadGuard<'_, States> {
        self.states.read()
    }

    fn states_mut(&self) -> RwLockWriteGuard<'_, States> {
        self.states.write()
    }

    fn stripe(&self, offset: u64) -> &RwLock<()> {
        &self.stripes[(offset / REGION) as usize % STRIPES]
    }

    fn check(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(Error::io(
                "an earlier sync of this overlay failed",
                std::io::Error::other("the overlay is read-only"),
            ));
        }
        Ok(())
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(Error::refused(format!(
                "{length} bytes at offset {offset} reach past the end of the disk at {}",
                self.length
            ))),
        }
    }

    fn poison<T>(&self, result: std::io::Result<T>) -> std::io::Result<T> {
        result.inspect_err(|_| self.poisoned.store(true, Ordering::Release))
    }

    /// Syncs the file; the caller must hold the gate exclusively. Blocks flushed before this sync become
    /// settled.
    fn sync_alone(&self) -> Result<()> {
        self.check()?;
        if let Err(error) = self.poison(self.file.sync()) {
            // Mark the file: its next opener must not trust the page cache, nor make it durable with a plain
            // sync.
            let mut header = self.header.lock();
            header.boot_id = IN_DOUBT;
            let _ = self.file.write_all_at(&header.encode(), 0);
            return Err(Error::io("syncing an overlay", error));
        }
        self.states_mut().settle();
        Ok(())
    }
}

/// The name of an overlay during its creation.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Rewrites all present blocks with the contents that the system shows, so that the next sync covers them.
fn write_back(file: &dyn VfsFile, states: &States) -> Result<()> {
    let mut bytes = vec![0; REGION as usize];
    for (first, end, state) in states.runs() {
        let (mut offset, end) = (HEADER_LENGTH + first * BLOCK, HEADER_LENGTH + end * BLOCK);
        while state == BlockState::Present && offset < end {
            let bytes = &mut bytes[..(end - offset).min(REGION) as usize];
            file.read_exact_at(bytes, offset)
                .context(|| "reading an overlay's blocks to rewrite them".to_owned())?;
            file.write_all_at(bytes, offset).context(|| "rewriting an overlay's blocks".to_owned())?;
            offset += bytes.len() as u64;
        }
    }
    Ok(())
}

fn read_header(file: &dyn VfsFile) -> Result<OverlayHeader> {
    let mut bytes = vec![0; HEADER_LENGTH as usize];
    let filled = file.read_at(&mut bytes, 0).context(|| "reading an overlay's header".to_owned())?;
    OverlayHeader::decode(&bytes[..filled])
}
