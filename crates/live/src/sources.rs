//! The sources of a process's disks: one memory cache for all of them, the hoard of this machine if there is one, and
//! the store. `platter_fetch` stacks these for each recipe.

use std::sync::Arc;

use platter_image::{Result, Score};
use platter_records::{Resolved, VersionRecord};
use platter_signing::SignaturePolicy;
use platter_store::Hoard;
use platter_vdisk::{BlockCache, RecipeDisk, Source};

use super::boots::BootRecorder;
use platter_fetch::OpenStore;
use platter_fetch::SourceOptions;
use platter_fetch::memory_cache;

/// How long requests to an origin that is down are retried; clients wait this long. Random readers request single
/// blocks.
const SOURCE_OPTIONS: SourceOptions =
    SourceOptions { retry_time_max: std::time::Duration::from_secs(30), exact: true };
/// The same for fills: whole frames are welcome.
pub(super) const FILL_OPTIONS: SourceOptions = SourceOptions { exact: false, ..SOURCE_OPTIONS };

/// Memory cache of one job, in bytes.
const JOB_BYTES: usize = 64 << 20;

/// A store with its caches. Clones share them.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) store: OpenStore,
    pub(super) memory: Arc<BlockCache>,
    hoard: Option<Arc<Hoard>>,
    boots: Option<Arc<BootRecorder>>,
    signatures: SignaturePolicy,
}

impl Sources {
    /// Creates sources for this store, with a memory cache of this many bytes.
    ///
    /// # Errors
    /// `Io` when threads cannot be started.
    pub(super) fn new(store: OpenStore, memory_bytes: usize, hoard: Option<Arc<Hoard>>) -> Result<Self> {
        Ok(Self {
            store,
            memory: memory_cache(memory_bytes)?,
            hoard,
            boots: None,
            signatures: SignaturePolicy::default(),
        })
    }

    /// The same, with recording of boots.
    pub(super) fn recorded(self, boots: Option<Arc<BootRecorder>>) -> Self {
        Self { boots, ..self }
    }

    /// The same, for versions that this policy admits only.
    pub(super) fn requiring(self, signatures: SignaturePolicy) -> Self {
        Self { signatures, ..self }
    }

    /// Which versions may be served.
    pub(super) fn signatures(&self) -> &SignaturePolicy {
        &self.signatures
    }

    /// Resolves a version that a user wants to use, and makes sure that it may be used. A score may always.
    ///
    /// # Errors
    /// As [`OpenStore::resolve`] and [`SignaturePolicy::admit`].
    pub(super) fn resolve(&self, version: &str) -> Result<Resolved> {
        let resolved = self.store.resolve(version)?;
        self.admit(version, resolved.version.as_ref().map(|version| &version.record))?;
        Ok(resolved)
    }

    /// Makes sure that a version may be used which a user named like this. A score may always.
    ///
    /// # Errors
    /// As [`SignaturePolicy::admit`].
    pub(super) fn admit(&self, named: &str, record: Option<&VersionRecord>) -> Result<()> {
        if Score::from_hex(named).is_some() {
            return Ok(());
        }
        self.signatures.admit(record).map(drop)
    }

    /// Creates sources for one job, which reads few blocks twice.
    ///
    /// # Errors
    /// As [`Sources::new`].
    pub(super) fn for_a_job(store: OpenStore) -> Result<Self> {
        Self::new(store, JOB_BYTES, None)
    }

    /// Returns the source of a recipe, below the memory cache.
    pub(super) fn of(&self, score: Score) -> Arc<dyn Source> {
        self.store.hoarded_source(self.hoard.as_ref(), score, SOURCE_OPTIONS)
    }

    /// Opens the disk of a recipe.
    ///
    /// # Errors
    /// As [`RecipeDisk::open`].
    pub(super) fn disk(&self, score: Score) -> Result<RecipeDisk> {
        RecipeDisk::open(score, self.of(score), self.memory.clone())
    }

    /// The recorder of boots, if there is one.
    pub(super) fn boots(&self) -> Option<&Arc<BootRecorder>> {
        self.boots.as_ref()
    }

    pub(super) fn hoard(&self) -> Option<&Arc<Hoard>> {
        self.hoard.as_ref()
    }
}
