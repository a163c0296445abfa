//! An origin with its fetcher, and its cache if there is one.

use std::sync::Arc;

use platter_client::{Answers, OriginStore};
use platter_image::frame::stream::FramesRequest;
use platter_image::{BlockId, Error, ErrorKind, Result, Score};
use platter_records::{Resolved, VersionQuery};
use platter_vdisk::Source;
use platter_vfs::OsVfs;

use crate::driver::{Fetcher, Holdings, OriginFrames, SourceOptions, TakeFrame};
use crate::node::{CacheLocation, CachedSource, NodeCache, SharingRequest};

/// An origin and its fetcher.
#[derive(Clone)]
pub struct RemoteStore {
    origin: OriginStore,
    cache: Option<Arc<NodeCache>>,
    fetcher: Arc<Fetcher>,
}

impl OriginFrames for OriginStore {
    fn fetch(&self, request: &FramesRequest, take: &mut TakeFrame<'_>) -> Result<Vec<BlockId>> {
        self.frames(request, take)
    }
}

impl RemoteStore {
    /// `address` names the origin whose replies the cache stores. Sends no request yet, unless the store is known to be encrypted: then
    /// the frames of the cache need its keys.
    ///
    /// # Errors
    /// As [`NodeCache::open`].
    pub(crate) fn open(origin: OriginStore, cache: Option<&CacheLocation>, address: &str) -> Result<Self> {
        let unlocked = cache.map_or(Ok(()), |location| {
            let answers = Answers::open(Arc::new(OsVfs), &location.dir, address);
            origin.clone().remembering(Arc::new(answers)).unlock_as_remembered()
        });
        let cache = cache.map(|location| NodeCache::open(location, address)).transpose()?;
        if let (Some(cache), Err(error)) = (&cache, unlocked) {
            cache.answers().note(format!("without its keys, the cache is not read: {}", error.with_causes()));
        }
        let origin = match &cache {
            Some(cache) => origin.remembering(cache.answers().clone()),
            None => origin,
        };
        let holdings = cache.clone().map(|cache| cache as Arc<dyn Holdings>);
        let fetcher = Fetcher::new(Arc::new(origin.clone()), holdings);
        Ok(Self { origin, cache, fetcher })
    }

    /// The origin itself.
    pub fn origin(&self) -> &OriginStore {
        &self.origin
    }

    /// The cache, if there is one.
    pub fn cache(&self) -> Option<&Arc<NodeCache>> {
        self.cache.as_ref()
    }

    /// The fetcher for this origin and its peers.
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// As [`OriginStore::resolve`]. While the origin is down, a node with peers resolves a score to itself, because
    /// peers may have its recipe.
    ///
    /// # Errors
    /// As [`OriginStore::resolve`].
    pub fn resolve(&self, text: &str) -> Result<Resolved> {
        self.resolve_or_remember(text).map(|(resolved, _)| resolved)
    }

    /// The same, as [`OriginStore::resolve_or_remember`].
    ///
    /// # Errors
    /// As [`OriginStore::resolve`].
    pub fn resolve_or_remember(&self, text: &str) -> Result<(Resolved, Option<Error>)> {
        let resolved = self.origin.resolve_or_remember(text);
        let is_away = resolved.as_ref().is_err_and(|error| error.kind() == ErrorKind::Transient);
        match text.parse() {
            Ok(VersionQuery::Score(score)) if is_away && self.fetcher.shares() => {
                Ok((Resolved { score, version: None }, None))
            }
            _ => resolved,
        }
    }

    /// Starts to share the cache, unless it is shared already or there is no cache.
    ///
    /// # Errors
    /// `Refused` for an invalid address; `Transient` when the origin is down and its store's id is not stored; `Io`
    /// when the address is not available.
    pub fn share(&self, request: &SharingRequest) -> Result<()> {
        match &self.cache {
            Some(cache) if !self.fetcher.shares() => {
                cache.share(&self.fetcher, self.origin.sharing_rights()?, request)
            }
            _ => Ok(()),
        }
    }

    /// Returns the source of a recipe's frames and pages through the cache; `None` without one.
    pub fn cached_source(&self, score: Score, options: SourceOptions) -> Option<Arc<CachedSource>> {
        let cache = self.cache.as_ref()?;
        Some(CachedSource::new(cache.clone(), self.fetcher.source(score, options)))
    }

    /// As [`Self::cached_source`], for reads that are not those of a disk; `None` while no other node is known.
    pub fn peer_source(&self, score: Score, options: SourceOptions) -> Option<Arc<dyn Source>> {
        let cache = self.cache.as_ref().filter(|_| self.fetcher.counts().known > 0)?;
        Some(CachedSource::beside_disks(cache.clone(), self.fetcher.source(score, options)))
    }
}
