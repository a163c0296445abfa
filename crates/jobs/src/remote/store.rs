//! An origin as a store of versions: what is asked and changed by one request each.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use platter_api::{
    CastStatus, CloneRequest, ForgetReport, ForgetRequest, NodePeersReply, NodeReport, RenameReport,
    RenameRequest, ResolveReply, StoreFacts, TakeEditLockRequest, UnregisterReply, UnregisterRequest,
};
use platter_image::{BlockId, Error, ErrorKind, Kind, Result, Score};
use platter_store::{
    BOOT_SET_LENGTH_MAX, BootSet, EditLock, EncodedBootSet, HoardChanges, HoardSnapshot, ImageName,
    KnownCheck, MissingBlocks, NumberChoice, Registered, Resolved, StoreId, Version, VersionName,
    VersionQuery, VersionRecord,
};
use platter_vdisk::Source;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::address::ServerOptions;
use super::client::{Client, retried};
use super::frames::ClientFrames;
use super::upload::RemoteSession;
use crate::fetch::{Fetcher, Holdings, SourceOptions};
use crate::node::{CachedSource, NodeCache, SharingRequest, SharingRights};

/// So long an origin that is away is asked what became of something whose answer was lost.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);

/// Most bytes of frames in memory: without a cache, they wait there for their readers.
const MEMORY_BYTES: u64 = 128 << 20;
/// The same with a cache, which keeps what comes.
const MEMORY_BESIDE_CACHE: u64 = 32 << 20;
/// Most bytes of the answer to a boot set.
const ANSWER_LENGTH_MAX: u64 = 64 << 10;

/// An origin.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    client: Arc<Client>,
    cache: Option<Arc<NodeCache>>,
    fetcher: Arc<Fetcher>,
}

impl RemoteStore {
    /// Asks for nothing yet.
    ///
    /// # Errors
    /// `Refused` or `Missing` when the options cannot be used; as [`NodeCache::open`].
    pub(crate) fn open(options: &ServerOptions) -> Result<Self> {
        let client = Client::open(options)?;
        let origin = options.address.to_string();
        let cache = options.cache.as_ref().map(|location| NodeCache::open(location, &origin)).transpose()?;
        Ok(Self::of(client, cache))
    }

    pub(super) fn of(client: Arc<Client>, cache: Option<Arc<NodeCache>>) -> Self {
        let holdings = cache.clone().map(|cache| cache as Arc<dyn Holdings>);
        let memory = if holdings.is_some() { MEMORY_BESIDE_CACHE } else { MEMORY_BYTES };
        let fetcher = Fetcher::new(Arc::new(ClientFrames(client.clone())), holdings, memory);
        Self { client, cache, fetcher }
    }

    /// The same origin, without the cache.
    pub(crate) fn without_cache(&self) -> Self {
        Self::of(self.client.clone(), None)
    }

    /// The cache of what was read, if there is one.
    pub(crate) fn cache(&self) -> Option<&Arc<NodeCache>> {
        self.cache.as_ref()
    }

    /// Asks; while the origin is away, what it said to the same question before counts.
    fn get_or_remember<T: DeserializeOwned>(&self, path: &str) -> Result<(T, Value)> {
        let Some(cache) = &self.cache else {
            return Ok((self.client.get(path)?, Value::Null));
        };
        match self.client.get::<Value>(path) {
            Ok(answer) => {
                let parsed = self.parse(answer.clone())?;
                cache.answers().keep(&[path.to_owned()], &answer);
                Ok((parsed, answer))
            }
            Err(error) if error.kind() == ErrorKind::Transient => {
                let Some(answer) = cache.answers().get(path) else { return Err(error) };
                cache.answers().note(format!("{} is away: what it said before counts", self.client.name()));
                Ok((self.parse(answer.clone())?, answer))
            }
            Err(error) => Err(error),
        }
    }

    fn parse<T: DeserializeOwned>(&self, answer: Value) -> Result<T> {
        serde_json::from_value(answer)
            .map_err(|error| self.odd("gave an answer that is none").with_source(error))
    }

    /// As [`platter_store::Store::id`].
    pub(crate) fn id(&self) -> Result<StoreId> {
        let (facts, _): (StoreFacts, _) = self.get_or_remember("/api/v1/store")?;
        StoreId::from_hex(&facts.id).ok_or_else(|| self.odd("has a store without an id"))
    }

    /// Which nodes this one may exchange blocks with.
    ///
    /// # Errors
    /// `Transient` when the origin is away and never said it.
    pub(crate) fn sharing_rights(&self) -> Result<SharingRights> {
        let (facts, _): (StoreFacts, _) = self.get_or_remember("/api/v1/store")?;
        let group = StoreId::from_hex(&facts.sharing_group);
        let group =
            group.ok_or_else(|| self.odd("names a sharing group that is not 32 hexadecimal digits"))?;
        Ok(SharingRights { group: group.0, all_images: facts.reads_all_images })
    }

    /// As [`platter_store::Store::versions`], of what may be read.
    pub(crate) fn versions(&self) -> Result<Vec<Version>> {
        let (records, _): (Vec<VersionRecord>, _) = self.get_or_remember("/api/v1/versions")?;
        records.iter().map(version_of).collect()
    }

    /// What happens to the catalog, as server-sent events without an end.
    pub(super) fn events(&self) -> Result<impl Read + use<>> {
        self.client.get_for_stream("/api/v1/events")
    }

    /// The newest version of an image, if it has one; asked for again while the origin is away.
    pub(super) fn newest(&self, image: &ImageName) -> Result<Option<Version>> {
        match retried(RETRY_TIME_MAX, || self.resolve(image.as_str())) {
            Ok(resolved) => Ok(resolved.version),
            Err(error) if error.kind() == ErrorKind::Missing => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`platter_store::Store::images`].
    pub(crate) fn images(&self) -> Result<Vec<Version>> {
        let (records, _): (Vec<VersionRecord>, _) = self.get_or_remember("/api/v1/images")?;
        records.iter().map(version_of).collect()
    }

    /// As [`platter_store::Store::history`].
    pub(crate) fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        let (records, _): (Vec<VersionRecord>, _) =
            self.get_or_remember(&format!("/api/v1/versions?image={image}"))?;
        records.iter().map(version_of).collect()
    }

    /// As [`platter_store::Store::resolve`].
    pub(crate) fn resolve(&self, text: &str) -> Result<Resolved> {
        // What is refused needs no origin, and what is left has no characters that mean something in a URL.
        let query: VersionQuery = text.parse()?;
        let question = |name: &str| format!("/api/v1/resolve?name={name}");
        let (raw, answer): (ResolveReply, _) = match (self.get_or_remember(&question(text)), &query) {
            // A score says all there is to say, and what it names may be had from others than the origin.
            (Err(error), VersionQuery::Score(score))
                if error.kind() == ErrorKind::Transient && self.has_peers() =>
            {
                return Ok(Resolved { score: *score, version: None });
            }
            (found, _) => found?,
        };
        let corrupt =
            || Error::corrupt(format!("{}: it resolves {text} to something else", self.client.name()));
        let score = Score::from_hex(&raw.score).ok_or_else(corrupt)?;
        let version = raw.version.as_ref().map(version_of).transpose()?;
        let agrees = match &query {
            VersionQuery::Named(image, choice) => version.as_ref().is_some_and(|version| {
                let number = NumberChoice::Number(version.name.number);
                version.name.image == *image && (*choice == NumberChoice::Latest || *choice == number)
            }),
            VersionQuery::Score(wanted) => *wanted == score,
        };
        if !agrees || version.as_ref().is_some_and(|version| version.record.score != score) {
            return Err(corrupt());
        }
        if let (Some(cache), Some(version)) = (&self.cache, &version) {
            // By its full name it is known from now on, too.
            cache.answers().keep(&[question(&version.name.to_string())], &answer);
        }
        Ok(Resolved { score, version })
    }

    /// The blocks of a disk that the origin does not have, as far as it says.
    pub(crate) fn missing_blocks(&self, score: Score) -> Result<Option<MissingBlocks>> {
        let answer: ResolveReply = self.client.get(&format!("/api/v1/resolve?name={score}&missing=true"))?;
        let missing = answer.missing.flatten();
        match missing.as_ref().is_none_or(|it| BlockId::from_hex(&it.first).is_some()) {
            true => Ok(missing),
            false => Err(Error::corrupt(format!("{}: it misses a block without a name", self.client.name()))),
        }
    }

    /// As [`platter_store::Store::edit locks`].
    pub(crate) fn edit_locks(&self) -> Result<Vec<EditLock>> {
        self.client.get("/api/v1/edit-locks")
    }

    /// As [`platter_store::Store::edit lock`].
    pub(crate) fn edit_lock(&self, image: &ImageName) -> Result<Option<EditLock>> {
        Ok(self.edit_locks()?.into_iter().find(|edit_lock| edit_lock.image == *image))
    }

    /// As [`platter_store::Store::take_edit_lock`], and with `steal` as [`platter_store::Store::steal_edit_lock`].
    pub(crate) fn take_edit_lock(&self, image: &ImageName, holder: &str, steal: bool) -> Result<EditLock> {
        let request = TakeEditLockRequest { image: image.clone(), holder: holder.to_owned(), steal };
        let edit_lock: EditLock = self.client.post("/api/v1/edit-locks", &request)?;
        if edit_lock.image == *image {
            Ok(edit_lock)
        } else {
            Err(self.odd("gave the edit lock of another image"))
        }
    }

    /// As [`platter_store::Store::release_edit_lock`].
    pub(crate) fn release_edit_lock(&self, edit_lock: &EditLock) -> Result<()> {
        let image = edit_lock.image.as_str().replace('/', "%2F");
        self.client.delete(&format!("/api/v1/edit-locks/{image}/{}", edit_lock.number))
    }

    /// Clones a version, as [`crate::clone`] does here.
    pub(crate) fn clone_version(
        &self,
        from: &VersionName,
        to: &ImageName,
        next: bool,
        edit_lock: Option<u64>,
        tool_version: &str,
    ) -> Result<Version> {
        let request = CloneRequest {
            from: from.to_string(),
            to: to.clone(),
            next,
            edit_lock,
            tool_version: Some(tool_version.to_owned()),
        };
        let before = self.newest(to)?.map_or(0, |version| version.name.number);
        let record: VersionRecord = match self.client.post("/api/v1/clone", &request) {
            // The answer may be what was lost.
            Err(error) if error.kind() == ErrorKind::Transient => {
                let newest = self.newest(to).ok().flatten();
                let is_it = |version: &Version| {
                    version.name.number > before && version.record.cloned_from.as_ref() == Some(from)
                };
                return newest.filter(is_it).ok_or(error);
            }
            answer => answer?,
        };
        let version = version_of(&record)?;
        if version.name.image == *to { Ok(version) } else { Err(self.odd("cloned to another image")) }
    }

    /// As [`platter_store::Store::forget`].
    pub(crate) fn forget(&self, image: &ImageName, number: Option<u64>) -> Result<Vec<String>> {
        let request = ForgetRequest { image: image.clone(), number };
        let answer: ForgetReport = self.client.post("/api/v1/forget", &request)?;
        Ok(answer.forgotten)
    }

    /// As [`platter_store::Store::rename`]: names before and after.
    pub(crate) fn rename(&self, from: &ImageName, to: &ImageName) -> Result<Vec<(String, String)>> {
        let request = RenameRequest { from: from.clone(), to: to.clone() };
        let answer: RenameReport = self.client.post("/api/v1/rename", &request)?;
        Ok(answer.renamed.into_iter().map(|one| (one.from, one.to)).collect())
    }

    /// Tells how a cast stands.
    pub(crate) fn tell_of_cast(&self, id: &str, status: &CastStatus) -> Result<()> {
        self.client.tell(&format!("/api/v1/casts/{id}"), status)
    }

    /// As [`platter_store::Store::hoard`].
    pub(crate) fn hoard(&self) -> Result<HoardSnapshot> {
        self.client.get("/api/v1/hoard")
    }

    /// As [`platter_store::Store::hoard_changes`].
    pub(crate) fn hoard_changes(&self, epoch: &str, since: u64) -> Result<HoardChanges> {
        self.client.get(&format!("/api/v1/hoard/changes?epoch={epoch}&since={since}"))
    }

    /// As [`platter_store::Store::boot_set`].
    pub(crate) fn boot_set(&self, id: &BlockId) -> Result<BootSet> {
        let path = format!("/api/v1/hoard/boot-sets/{id}");
        BootSet::decode(id, &self.client.get_bytes(&path, BOOT_SET_LENGTH_MAX as u64)?)
    }

    /// As [`platter_store::Store::register_boot_set`].
    pub(crate) fn register_boot_set(&self, name: &VersionName, set: &EncodedBootSet) -> Result<Registered> {
        let path = format!("/api/v1/hoard/record?image={}&number={}", name.image, name.number);
        let answer = self.client.post_bytes(&path, &set.to_bytes(), ANSWER_LENGTH_MAX)?;
        serde_json::from_slice(&answer)
            .map_err(|error| self.odd("says nothing known about a boot set").with_source(error))
    }

    /// As [`platter_store::Store::unregister_boot_set`]: the revision, and the names of versions.
    pub(crate) fn unregister_boot_set(
        &self,
        image: &ImageName,
        number: Option<u64>,
    ) -> Result<(u64, Vec<String>)> {
        let request = UnregisterRequest { image: image.clone(), number };
        let answer: UnregisterReply = self.client.post("/api/v1/hoard/unregister", &request)?;
        Ok((answer.revision, answer.unregistered))
    }

    /// The nodes that the origin knows of, as it tells them.
    pub(crate) fn nodes(&self) -> Result<serde_json::Value> {
        self.client.get("/api/v1/nodes")
    }

    /// What fetches from this origin, and from peers.
    pub(crate) fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// Begins to share what the cache holds, if it does not. False when there is no cache.
    ///
    /// # Errors
    /// `Refused` for an address that is none; `Transient` when the origin is away and never said which store it has; `Io` when
    /// the address cannot be had.
    pub(crate) fn share(&self, request: &SharingRequest) -> Result<()> {
        match &self.cache {
            Some(cache) if !self.fetcher.shares() => {
                cache.share(&self.fetcher, self.sharing_rights()?, request)
            }
            _ => Ok(()),
        }
    }

    fn has_peers(&self) -> bool {
        self.fetcher.shares()
    }

    /// The frames and pages of a recipe: through the cache, if there is one.
    pub(crate) fn source(&self, score: Score, options: SourceOptions) -> Arc<dyn Source> {
        match self.cached_source(score, options) {
            Some(source) => source,
            None => self.fetcher.source(score, options),
        }
    }

    /// The same through the cache; `None` without one.
    pub(crate) fn cached_source(&self, score: Score, options: SourceOptions) -> Option<Arc<CachedSource>> {
        let cache = self.cache.as_ref()?;
        Some(CachedSource::new(cache.clone(), self.fetcher.source(score, options)))
    }

    /// The same from other nodes, past the cache; `None` while no other node is known.
    pub(crate) fn peer_source(&self, score: Score, options: SourceOptions) -> Option<Arc<dyn Source>> {
        (self.fetcher.counts().known > 0).then(|| self.fetcher.source(score, options) as Arc<dyn Source>)
    }

    /// Tells the origin of this node; gives what it says of others.
    ///
    /// # Errors
    /// `Missing` from an origin that knows nothing of nodes; as [`Client::post`].
    pub(crate) fn report(&self, report: &NodeReport) -> Result<NodePeersReply> {
        self.client.post("/api/v1/nodes", report)
    }

    /// Begins to add a version of that image to the origin's store.
    ///
    /// # Errors
    /// What the origin says.
    pub(crate) fn session(&self, image: &ImageName, known: KnownCheck) -> Result<RemoteSession> {
        RemoteSession::begin(self.client.clone(), image, known)
    }

    fn odd(&self, what: &str) -> Error {
        Error::corrupt(format!("{}: it {what}", self.client.name()))
    }
}

/// The version of a record that an origin sent. Its id is that of the bytes it has here.
///
/// # Errors
/// `Corrupt` when there can be no such record.
pub(super) fn version_of(record: &VersionRecord) -> Result<Version> {
    let bytes = record.encode().map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?;
    let record = VersionRecord::decode(&bytes)?;
    Ok(Version { name: record.name(), record_id: BlockId::of(Kind::Version, &bytes), record })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_cannot_be_is_refused() {
        let image: ImageName = "lab/x".parse().unwrap();
        let mut record = VersionRecord::draft(image, Score(BlockId([1; 32])), 5);
        assert_eq!(version_of(&record).unwrap_err().kind(), ErrorKind::Corrupt, "a draft is no version");
        record.number = 3;
        let version = version_of(&record).unwrap();
        assert_eq!(version.name.to_string(), "lab/x@3");
        record.notes = "x".repeat(1 << 20);
        assert_eq!(version_of(&record).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
