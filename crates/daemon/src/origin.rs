//! The state that all requests share.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use platter_api::CastStatus;
use platter_image::{Error, ErrorKind, Result, Score};
use platter_records::{ImageName, Resolved, Version, VersionQuery};
use platter_store::Store;
use tokio::sync::{Notify, watch};

use crate::access::{AccessTokens, Principal};
use crate::bodies::Bodies;
use crate::casts::{Casts, state_word};
use crate::config::{
    ACCESS_THREADS, CastOnDemand, Collections, EVENTS_KEPT, FILES_THREADS, FILES_WAITING_MAX,
    ID_SETS_BYTES_MAX, KNOWN_VERSIONS_MAX, ListDisks, OverlayBases, STORE_THREADS, ServeOptions, WAITING_MAX,
};
use crate::costs::Costs;
use crate::disks::Disks;
use crate::events::{EventKind, Events};
use crate::files::{Downloads, LookInside};
use crate::id_sets::{IdSet, IdSets};
use crate::leases::Leases;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::pool::Pool;
use crate::remake::RemakingTools;
use crate::uploads::Uploads;
use crate::writer::SharedWriter;

/// An origin: a store, and the state kept while it is served.
pub(crate) struct Origin {
    pub(crate) store: Store,
    pub(crate) writer: SharedWriter,
    pub(crate) access: AccessTokens,
    pub(crate) pool: Pool,
    /// For looking into versions.
    pub(crate) files_pool: Pool,
    /// For lookups of access tokens.
    pub(crate) access_pool: Pool,
    pub(crate) remaking: RemakingTools,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) uploads: Uploads,
    pub(crate) nodes: Nodes,
    pub(crate) leases: Leases,
    pub(crate) id_sets: IdSets,
    pub(crate) casts: Casts,
    pub(crate) costs: Costs,
    pub(crate) disks: Disks,
    /// The memory for bodies of requests.
    pub(crate) bodies: Bodies,
    /// Notified after a change of the catalog, so that its events are reported at once.
    pub(crate) changed: Notify,
    /// True once the origin ends.
    pub(crate) ending: watch::Receiver<bool>,
    /// Whether a successor serves; this server then only answers requests on connections that were already open.
    pub(crate) is_replaced: AtomicBool,
    pub(crate) tool_version: String,
    pub(crate) list_disks: ListDisks,
    pub(crate) look_inside: Arc<dyn LookInside>,
    pub(crate) downloads: Downloads,
    pub(crate) cast: Option<Arc<dyn CastOnDemand>>,
    pub(crate) overlay_bases: OverlayBases,
    pub(crate) collections: Option<Collections>,
    /// Held while the list of followers is changed.
    pub(crate) following: Mutex<()>,
}

impl Origin {
    /// Opens the store.
    ///
    /// # Errors
    /// `Missing` when there is none; `Refused` without the key of an encrypted one; `Corrupt`, `Io`.
    pub(crate) fn open(options: &ServeOptions, ending: watch::Receiver<bool>) -> Result<Self> {
        let store = Store::open_reader(&options.store)?;
        store.need_key()?;
        Ok(Self {
            writer: SharedWriter::new(store.clone()),
            store,
            access: AccessTokens::of(&options.store),
            pool: Pool::new(STORE_THREADS, WAITING_MAX),
            files_pool: Pool::new(FILES_THREADS, FILES_WAITING_MAX),
            access_pool: Pool::new(ACCESS_THREADS, WAITING_MAX),
            remaking: RemakingTools::default(),
            metrics: Metrics::default(),
            events: Events::new(EVENTS_KEPT)?,
            uploads: Uploads::new(options.upload_limit),
            nodes: Nodes::default(),
            leases: Leases::default(),
            id_sets: IdSets::new(ID_SETS_BYTES_MAX),
            casts: Casts::default(),
            costs: Costs::default(),
            disks: Disks::default(),
            bodies: Bodies::new(),
            changed: Notify::new(),
            ending,
            is_replaced: AtomicBool::new(false),
            tool_version: options.tool_version.clone(),
            list_disks: options.list_disks.clone(),
            look_inside: options.look_inside.clone(),
            downloads: Downloads::default(),
            cast: options.cast.clone(),
            overlay_bases: options.overlay_bases.clone(),
            collections: options.collections,
            following: Mutex::default(),
        })
    }

    /// Returns the newest version with this score that the principal may read.
    ///
    /// # Errors
    /// `Missing`, with the same text whether it does not exist or is hidden; when the catalog cannot be read.
    pub(crate) fn readable_version(&self, who: &Principal, score: Score) -> Result<Version> {
        let versions = self.store.versions()?.into_iter().rev();
        let mut found = versions.filter(|version| version.record.score == score);
        let found = found.find(|version| who.may_read(&version.name.image));
        found.ok_or_else(|| no_score(score))
    }

    /// Returns what a name or a score means to the principal. Whether it may read a named image must have been decided before.
    ///
    /// # Errors
    /// As [`Origin::readable_version`].
    pub(crate) fn resolve_for(&self, who: &Principal, what: VersionQuery) -> Result<Resolved> {
        match what {
            VersionQuery::Named(image, choice) => {
                let version = self.store.version(&image, choice);
                let version = version.map_err(|error| without_directory(error, &image))?;
                Ok(Resolved { score: version.record.score, version: Some(version) })
            }
            // A disk without a name may be read only by a principal that reads everything.
            VersionQuery::Score(score) if who.reads_everything() => self.store.resolve(&score.to_string()),
            VersionQuery::Score(score) => {
                Ok(Resolved { score, version: Some(self.readable_version(who, score)?) })
            }
        }
    }

    /// Returns the ids of a recipe that may be sent to the principal; `None` means everything.
    ///
    /// # Errors
    /// `Missing`, with the same text whether the recipe does not exist or is hidden; `Corrupt`; when the catalog cannot
    /// be read.
    pub(crate) fn allowed(&self, who: &Principal, score: Score) -> Result<Option<Arc<IdSet>>> {
        if who.reads_everything() {
            return Ok(None);
        }
        if !self.may_read_disk(who, score)? {
            return Err(no_score(score));
        }
        self.id_sets.get(score, &self.store).map(Some)
    }

    /// Returns the ids of at most [`KNOWN_VERSIONS_MAX`] versions that the principal may read: the newest version of
    /// each image first, then older ones. Unreadable recipes are skipped.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) fn known_sets(&self, who: &Principal) -> Result<Vec<Arc<IdSet>>> {
        let newest_first = |mut versions: Vec<Version>| {
            versions.retain(|version| who.may_read(&version.name.image));
            versions.sort_by_key(|version| std::cmp::Reverse(version.record.time_unix_ms));
            versions
        };
        let versions = [newest_first(self.store.images()?), newest_first(self.store.versions()?)].concat();
        let mut seen = HashSet::new();
        let scores = versions.iter().map(|version| version.record.score).filter(|score| seen.insert(*score));
        let newest = scores.take(KNOWN_VERSIONS_MAX);
        Ok(newest.filter_map(|score| self.id_sets.get(score, &self.store).ok()).collect())
    }

    /// Reports a change of the catalog at once.
    pub(crate) fn note_change(&self) {
        self.changed.notify_one();
    }

    /// Reports that an upload began or ended.
    pub(crate) fn tell_of_upload(&self, id: &str, owner: &str, state: &'static str) {
        self.metrics.uploads.set(self.uploads.count() as u64);
        self.events.add(EventKind::Upload { id: id.into(), state, owner: owner.into() });
    }

    /// Reports that a cast began or changed its state.
    pub(crate) fn tell_of_cast(&self, id: &str, image: Option<ImageName>, status: &CastStatus) {
        let (version, state) = (status.version.clone(), state_word(status.state));
        self.events.add(EventKind::Cast { id: id.into(), version, state, image });
    }
}

/// Replaces the error for a missing image, because it contains a directory of this machine.
pub(crate) fn without_directory(error: Error, image: &ImageName) -> Error {
    match error.kind() {
        ErrorKind::Missing if !error.to_string().contains('@') => no_image(image),
        _ => error,
    }
}

/// The error for an image that does not exist or is hidden.
pub(crate) fn no_image(image: &ImageName) -> Error {
    Error::missing(format!("there is no image {image}"))
}

/// The error for a recipe that does not exist or is hidden.
pub(crate) fn no_score(score: Score) -> Error {
    Error::missing(format!("nothing here has the score {score}"))
}
