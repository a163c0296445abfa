//! Filesystems that are open: the last few, each with the disk that it is on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use platter_fetch::{OpenStore, SourceOptions};
use platter_image::{Error, Result, Score};
use platter_vdisk::BlockCache;

use crate::location::PartitionName;
use crate::open_filesystem::{OpenFilesystem, VersionDisk};
use crate::partitions::Partition;

/// How long requests to an origin that is down are retried. Programs wait this long.
const SOURCE_OPTIONS: SourceOptions =
    SourceOptions { retry_time_max: std::time::Duration::from_secs(30), exact: false };
/// The most filesystems that are open at once; with an origin, each takes up to 64 MiB.
const OPEN_MAX: usize = 16;
/// The same with those that must stay open.
const KEPT_MAX: usize = 64;

/// Opens the disk of a version.
///
/// # Errors
/// `Missing` if the store has no such recipe; those of reading it.
pub(super) fn open_disk(store: &OpenStore, memory: &Arc<BlockCache>, score: Score) -> Result<VersionDisk> {
    VersionDisk::open(store.source(score, SOURCE_OPTIONS), memory, score)
}

/// Where a filesystem is, and whether it is open.
pub(super) struct Filesystem {
    /// Its version and partition, for messages.
    pub(super) shown: String,
    score: Score,
    partition: Partition,
    open: Mutex<Option<Arc<OpenFilesystem>>>,
}

/// All filesystems, and their indexes by the score and the partition.
#[derive(Default)]
struct Known {
    list: Vec<Arc<Filesystem>>,
    by_place: HashMap<(Score, PartitionName), usize>,
}

/// All filesystems that were used, by index.
#[derive(Default)]
pub(super) struct Filesystems {
    all: Mutex<Known>,
    /// Those that are open, the one that was used last at the end.
    used: Mutex<VecDeque<usize>>,
}

impl Filesystems {
    /// The index of the filesystem in a partition of a disk. No other partition of the disk has the same name.
    pub(super) fn index(&self, score: Score, partition: &Partition, shown: impl FnOnce() -> String) -> usize {
        let mut all = self.all.lock();
        let Known { list, by_place } = &mut *all;
        *by_place.entry((score, partition.name().clone())).or_insert_with(|| {
            let partition = partition.clone();
            list.push(Arc::new(Filesystem { shown: shown(), score, partition, open: Mutex::new(None) }));
            list.len() - 1
        })
    }

    /// # Errors
    /// `Missing` if there is none.
    pub(super) fn get(&self, index: usize) -> Result<Arc<Filesystem>> {
        let found = self.all.lock().list.get(index).cloned();
        found.ok_or_else(|| Error::missing("there is no such filesystem"))
    }

    /// Opens a filesystem, unless it is open. Others may be closed.
    ///
    /// # Errors
    /// `Corrupt` or `Refused` if its files cannot be read; those of reading the disk.
    pub(super) fn open(
        &self,
        (store, memory): (&OpenStore, &Arc<BlockCache>),
        index: usize,
    ) -> Result<(Arc<Filesystem>, Arc<OpenFilesystem>)> {
        let filesystem = self.get(index)?;
        let mut open = filesystem.open.lock();
        let found = match &*open {
            Some(found) => found.clone(),
            None => {
                let disk = open_disk(store, memory, filesystem.score);
                let opened =
                    disk.and_then(|disk| OpenFilesystem::open(Arc::new(disk), &filesystem.partition));
                let opened = Arc::new(opened.map_err(|error| error.within(filesystem.shown.clone()))?);
                open.insert(opened).clone()
            }
        };
        drop(open);
        self.note_use(index);
        Ok((filesystem, found))
    }

    /// Puts a filesystem at the end of those that are open, and closes what was not used for longest.
    fn note_use(&self, index: usize) {
        let mut used = self.used.lock();
        if used.back() == Some(&index) {
            return;
        }
        used.retain(|known| *known != index);
        used.push_back(index);
        let mut place = 0;
        while used.len() > OPEN_MAX && place + 1 < used.len() {
            let must_close = used.len() > KEPT_MAX;
            let candidate = used[place];
            let is_closed = self.get(candidate).is_ok_and(|filesystem| {
                // One that is being opened is in use.
                let Some(mut open) = filesystem.open.try_lock() else { return false };
                let must_stay =
                    open.as_ref().is_some_and(|open| open.forgets.load(Ordering::Relaxed)) && !must_close;
                if !must_stay {
                    *open = None;
                }
                !must_stay
            });
            match is_closed {
                true => drop(used.remove(place)),
                false => place += 1,
            }
        }
    }
}
