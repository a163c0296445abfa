//! The private writes of one live disk, above a disk that is only read (design: overlays).
//!
//! One sparse file holds what was written, at the disk's own offsets, and a log that says where. A write is in the file,
//! data first and record after, before it returns: the death of the process loses nothing. A flush is one sync. Nothing is
//! hashed or compressed here but a checksum of blocks that a power cut could leave half written. It must never drop
//! what was flushed, nor overwrite in place what a recovery would then drop.

mod device;
mod format;
mod log;
mod state;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use platter_image::{Error, Extents, IoContext, Result, Score};
use platter_vfs::{OpenMode, Vfs, VfsFile};

use crate::block_device::BlockDevice;
pub use format::OverlayHeader;
use format::{BLOCK, HEADER_LENGTH, log_offset_min};
use log::{Log, Replayed, replay};
use state::{BlockState, States};

/// A write is done in pieces that lie in one region of this many bytes; one piece of a region at a time.
const REGION: u64 = 1 << 20;
/// Regions that are locked apart.
const STRIPES: usize = 64;

/// In place of a boot's id after a failed sync: what the system shows of the file may not be what the disk holds.
const IN_DOUBT: [u8; 16] = [0; 16];

/// What an overlay belongs to.
#[derive(Clone, Copy, Debug)]
pub struct OverlayOptions {
    /// The version that shows where nothing was written.
    pub base_score: Score,
    /// The number of the edit token.
    pub token: u64,
    /// The id of this boot of the machine. An overlay that another boot left may lack what was not flushed.
    pub boot_id: [u8; 16],
}

/// What an overlay has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverlayCounters {
    /// Syncs for flushes.
    pub flushes: u64,
    /// Syncs before a block could be overwritten that had only just been flushed.
    pub settles: u64,
    /// Pieces of writes that needed no record.
    pub in_place: u64,
}

/// A disk with private writes above another.
pub struct Overlay {
    file: Box<dyn VfsFile>,
    header: Mutex<OverlayHeader>,
    length: u64,
    base: RwLock<Arc<dyn BlockDevice>>,
    states: RwLock<States>,
    log: Mutex<Log>,
    stripes: Vec<Mutex<()>>,
    /// Shared by writes, held alone by whoever syncs: a sync then covers every record that was written.
    gate: RwLock<()>,
    /// Written since the last flush, and recorded since the last `Flushed`.
    written: AtomicBool,
    recorded: AtomicBool,
    /// A sync has failed: what was written since the last one is in doubt for ever.
    poisoned: AtomicBool,
    flushes: AtomicU64,
    settles: AtomicU64,
    in_place: AtomicU64,
}

impl Overlay {
    /// Makes an overlay above `base`; durable when this returns. It gets its name when it is whole: one whose making was cut
    /// off is never met, and what is left of it, under the name with `.new`, is removed by the next.
    ///
    /// # Errors
    /// `Io`: something of that name is there, no space, or what the system says. Nothing is left then.
    pub fn create(
        vfs: &dyn Vfs,
        path: &Path,
        options: &OverlayOptions,
        base: Arc<dyn BlockDevice>,
    ) -> Result<Self> {
        let context = || format!("making the overlay {}", path.display());
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
                // It would only take space.
                let _ = vfs.remove(&new);
            })
    }

    fn create_unfinished(
        vfs: &dyn Vfs,
        path: &Path,
        options: &OverlayOptions,
        base: Arc<dyn BlockDevice>,
    ) -> Result<Self> {
        let context = || format!("making {}", path.display());
        let file = vfs.open(path, OpenMode::CreateNew).context(context)?;
        let disk_length = base.length();
        let header = OverlayHeader {
            id: vfs.random_id().context(context)?,
            disk_length,
            base_score: options.base_score,
            token: options.token,
            boot_id: options.boot_id,
            log_offset: log_offset_min(disk_length),
            generation: 1,
        };
        let states = States::default();
        let log = Log::begin(&*file, &header, &states)?;
        file.write_all_at(&header.encode(), 0).context(context)?;
        file.sync().context(context)?;
        Ok(Self::new(file, header, base, states, log))
    }

    /// Opens an overlay that an earlier process left. Everything in it is durable when this returns.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged; `Refused` when it belongs to another version, token or disk; `Io`.
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
        let mine = (header.base_score, header.token, header.disk_length);
        if mine != (options.base_score, options.token, base.length()) {
            return Err(within(Error::refused(format!(
                "it was made above {}, under token {}, for {} bytes",
                header.base_score, header.token, header.disk_length
            ))));
        }
        let length = file.length().context(|| "asking an overlay's length".to_owned())?;
        if header.log_offset > length {
            return Err(within(Error::corrupt(format!(
                "its log at {} is cut off: it has {length} bytes",
                header.log_offset
            ))));
        }
        let Replayed { mut states, end } =
            replay(&*file, &header, header.boot_id == options.boot_id).map_err(within)?;
        if header.boot_id == IN_DOUBT {
            write_back(&*file, &states).map_err(within)?;
        }
        // A log of what there is, behind the old one; it counts when the header names it.
        let old = header.log_offset;
        header.log_offset = length.max(end).div_ceil(BLOCK) * BLOCK;
        header.generation =
            header.generation.checked_add(1).ok_or_else(|| Error::corrupt("an overlay opened too often"))?;
        header.boot_id = options.boot_id;
        let log = Log::begin(&*file, &header, &states).map_err(within)?;
        let sync = || file.sync().context(|| "syncing an overlay".to_owned());
        sync().map_err(within)?;
        file.write_all_at(&header.encode(), 0).context(|| "writing an overlay's header".to_owned())?;
        sync().map_err(within)?;
        file.punch(old, header.log_offset - old).context(|| "dropping an overlay's old log".to_owned())?;
        states.flushed();
        states.settle();
        Ok(Self::new(file, header, base, states, log))
    }

    /// What an overlay is, without opening it.
    ///
    /// # Errors
    /// `Corrupt`, `Refused`, `Io`.
    pub fn header(vfs: &dyn Vfs, path: &Path) -> Result<OverlayHeader> {
        let file =
            vfs.open(path, OpenMode::Read).context(|| format!("opening the overlay {}", path.display()))?;
        read_header(&*file).map_err(|error| error.within(format!("the overlay {}", path.display())))
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
            header: Mutex::new(header),
            length: header.disk_length,
            base: RwLock::new(base),
            states: RwLock::new(states),
            log: Mutex::new(log),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            gate: RwLock::new(()),
            written: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            settles: AtomicU64::new(0),
            in_place: AtomicU64::new(0),
        }
    }

    /// What was written, in runs of whole blocks of 4 KiB (the disk's end excepted).
    pub fn dirty(&self) -> Extents {
        self.states().dirty(self.length)
    }

    /// What was done so far.
    pub fn counters(&self) -> OverlayCounters {
        OverlayCounters {
            flushes: self.flushes.load(Ordering::Relaxed),
            settles: self.settles.load(Ordering::Relaxed),
            in_place: self.in_place.load(Ordering::Relaxed),
        }
    }

    /// Stands on another base from now on; what was written stays. Durable when this returns.
    ///
    /// # Errors
    /// `Io`: the overlay then takes no more writes.
    pub fn rebase(&self, base_score: Score, base: Arc<dyn BlockDevice>) -> Result<()> {
        if base.length() != self.length {
            return Err(Error::refused(format!(
                "a base of {} bytes for a disk of {}",
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

    fn stripe(&self, offset: u64) -> MutexGuard<'_, ()> {
        self.stripes[(offset / REGION) as usize % STRIPES].lock()
    }

    fn check(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(Error::io(
                "an earlier sync of this overlay failed",
                std::io::Error::other("read only since then"),
            ));
        }
        Ok(())
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(Error::refused(format!("{length} bytes at {offset}: the disk ends at {}", self.length))),
        }
    }

    fn poison<T>(&self, result: std::io::Result<T>) -> std::io::Result<T> {
        result.inspect_err(|_| self.poisoned.store(true, Ordering::Release))
    }

    /// Syncs; whoever calls holds the gate alone. What was said to be flushed before is now known to be for ever.
    fn sync_alone(&self) -> Result<()> {
        self.check()?;
        if let Err(error) = self.poison(self.file.sync()) {
            // Whoever opens it next must not believe what the system shows, nor call it durable by one more sync.
            let mut header = self.header.lock();
            header.boot_id = IN_DOUBT;
            let _ = self.file.write_all_at(&header.encode(), 0);
            return Err(Error::io("syncing an overlay", error));
        }
        self.states_mut().settle();
        Ok(())
    }
}

/// What the overlay of that name is called while it is made.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Writes again what is there, so that the next sync covers it.
fn write_back(file: &dyn VfsFile, states: &States) -> Result<()> {
    let mut bytes = vec![0; REGION as usize];
    for (first, end, state) in states.runs() {
        let (mut offset, end) = (HEADER_LENGTH + first * BLOCK, HEADER_LENGTH + end * BLOCK);
        while state == BlockState::Present && offset < end {
            let bytes = &mut bytes[..(end - offset).min(REGION) as usize];
            file.read_exact_at(bytes, offset).context(|| "reading an overlay again".to_owned())?;
            file.write_all_at(bytes, offset).context(|| "writing an overlay again".to_owned())?;
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
