//! What the disks of a process read from: one memory cache for all of them, the hoard of this machine if it has one, and the
//! store. `platter_fetch` stacks these for each recipe.

use std::sync::Arc;

use platter_image::{Result, Score};
use platter_store::Hoard;
use platter_vdisk::{BlockCache, RecipeDisk, Source};

use super::boots::BootRecorder;
use platter_fetch::OpenStore;
use platter_fetch::SourceOptions;
use platter_fetch::memory_cache;

/// How long an origin that is away is tried for: a client waits that long. Random readers request single blocks.
const SOURCE_OPTIONS: SourceOptions =
    SourceOptions { retry_time_max: std::time::Duration::from_secs(30), exact: true };
/// The same for filling a whole disk: whole frames are welcome.
pub(super) const FILL_OPTIONS: SourceOptions = SourceOptions { exact: false, ..SOURCE_OPTIONS };

/// Memory of one job, in bytes.
const JOB_BYTES: usize = 64 << 20;

/// A store as disks read it. Clones are the same.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) store: OpenStore,
    pub(super) memory: Arc<BlockCache>,
    hoard: Option<Arc<Hoard>>,
    boots: Option<Arc<BootRecorder>>,
}

impl Sources {
    /// Sources that read from that store, with a memory cache of that many bytes.
    ///
    /// # Errors
    /// `Io` when threads cannot be started.
    pub(super) fn new(store: OpenStore, memory_bytes: usize, hoard: Option<Arc<Hoard>>) -> Result<Self> {
        Ok(Self { store, memory: memory_cache(memory_bytes)?, hoard, boots: None })
    }

    /// The same, with boots of its live disks recorded.
    pub(super) fn recorded(self, boots: Option<Arc<BootRecorder>>) -> Self {
        Self { boots, ..self }
    }

    /// For one job, which reads little twice.
    ///
    /// # Errors
    /// As [`Sources::new`].
    pub(super) fn for_a_job(store: OpenStore) -> Result<Self> {
        Self::new(store, JOB_BYTES, None)
    }

    /// The blocks and pages of a recipe, below what is in memory.
    pub(super) fn of(&self, score: Score) -> Arc<dyn Source> {
        self.store.hoarded_source(self.hoard.as_ref(), score, SOURCE_OPTIONS)
    }

    /// The disk of a recipe.
    ///
    /// # Errors
    /// As [`RecipeDisk::open`].
    pub(super) fn disk(&self, score: Score) -> Result<RecipeDisk> {
        RecipeDisk::open(score, self.of(score), self.memory.clone())
    }

    /// What records the boots of live disks, if something does.
    pub(super) fn boots(&self) -> Option<&Arc<BootRecorder>> {
        self.boots.as_ref()
    }

    pub(super) fn hoard(&self) -> Option<&Arc<Hoard>> {
        self.hoard.as_ref()
    }
}
