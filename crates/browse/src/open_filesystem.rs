//! A filesystem that is open, together with the disk that it is on.
//!
//! A reader of a filesystem borrows its disk, so both are kept together ([`Reader`]). One thread at a time uses a reader; contents
//! in runs are read from the disk itself, by many.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use platter_filesystem::FileTree;
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Result, Score};
use platter_vdisk::{BlockCache, BlockDevice, RecipeDisk, Source, disk_error};
use self_cell::self_cell;

use crate::partitions::Partition;

/// The disk of a version.
pub(crate) struct VersionDisk {
    device: RecipeDisk,
    sector_size: u32,
}

impl VersionDisk {
    /// # Errors
    /// `Missing` if the store has no such recipe; those of reading it.
    pub(crate) fn open(source: Arc<dyn Source>, memory: &Arc<BlockCache>, score: Score) -> Result<Self> {
        let sector_size = Recipe::open(score, &*source)?.root().sector_size;
        Ok(Self { device: RecipeDisk::open(score, source, memory.clone())?, sector_size })
    }
}

impl DiskRead for VersionDisk {
    fn length(&self) -> u64 {
        self.device.length()
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.read(buffer, offset).map_err(disk_error)
    }
}

type Tree<'d> = Box<dyn FileTree + 'd>;

self_cell!(
    struct Reader {
        owner: Arc<VersionDisk>,
        #[not_covariant]
        dependent: Tree,
    }
);

/// A filesystem that is open.
pub(crate) struct OpenFilesystem {
    pub(crate) disk: Arc<VersionDisk>,
    reader: Mutex<Reader>,
    /// It must stay open, see [`FileTree::forgets`].
    pub(crate) forgets: AtomicBool,
}

impl OpenFilesystem {
    /// # Errors
    /// `Corrupt` or `Refused` if its files cannot be read; those of reading the disk.
    pub(crate) fn open(disk: Arc<VersionDisk>, partition: &Partition) -> Result<Self> {
        let reader = Reader::try_new(disk.clone(), |disk| partition.open(&**disk))?;
        Ok(Self { disk, reader: Mutex::new(reader), forgets: AtomicBool::new(false) })
    }

    /// Runs `work` with the files, of which it may read as much as one walk needs.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut dyn FileTree) -> Result<T>) -> Result<T> {
        self.reader.lock().with_dependent_mut(|_, files| {
            files.renew();
            let result = work(&mut **files);
            self.forgets.store(files.forgets(), Ordering::Relaxed);
            result
        })
    }
}
