//! The files inside of versions, for the clients of `platter serve`.

use std::sync::Arc;

use platter_browse::{
    BlockCache, DirectoryPage, FileLocation, OpenFile, PartitionEntry, PartitionName, VersionFiles,
    memory_cache,
};
use platter_daemon::{FilePlace, LookInside, ReadFile};
use platter_jobs::{Error, Result, Score, Store};

/// Memory for decoded blocks, shared by all versions, in bytes.
const CACHE_BYTES: usize = 64 << 20;

/// Looks into versions with the readers of `platter ls` and `platter cat`.
pub(crate) struct ServedFiles {
    memory: Arc<BlockCache>,
}

impl ServedFiles {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { memory: memory_cache(CACHE_BYTES)? })
    }

    fn version(&self, store: &Store, score: Score) -> Result<VersionFiles> {
        VersionFiles::open(Arc::new(store.clone()), &self.memory, score)
    }
}

impl LookInside for ServedFiles {
    fn partitions(&self, store: &Store, place: &FilePlace) -> Result<Vec<PartitionEntry>> {
        self.version(store, place.score)?.partitions(&place.version)
    }

    fn list(&self, store: &Store, place: &FilePlace, from: u64) -> Result<DirectoryPage> {
        self.version(store, place.score)?.list(&location(place)?, from)
    }

    fn open(&self, store: &Store, place: &FilePlace) -> Result<Box<dyn ReadFile>> {
        let file = self.version(store, place.score)?.open_file(&location(place)?)?;
        Ok(Box::new(ServedFile(file)))
    }
}

fn location(place: &FilePlace) -> Result<FileLocation> {
    let partition = place.partition.as_ref().map(|name| {
        let missing = || Error::missing(format!("{} has no partition {name:?}", place.version));
        PartitionName::parse(name).ok_or_else(missing)
    });
    let version = place.version.clone();
    Ok(FileLocation { version, partition: partition.transpose()?, path: Some(place.path.clone()) })
}

struct ServedFile(OpenFile);

impl ReadFile for ServedFile {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(offset, buffer)
    }
}
