//! An origin as a store of versions: queries and changes with one request each.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use platter_api::{
    AskForCastRequest, AskForHoardCastRequest, CastFamily, CastOffer, CastStatus, ChangesReply, CloneRequest,
    CollectRequest, CostsReply, FenceRequest, ForgetReport, ForgetRequest, HoardCastOffer, ListedCast,
    NodePeersReply, NodeReport, ProtectReport, ProtectRequest, RenameReport, RenameRequest, ReplicaReply,
    ReplicaRequest, ResolveReply, SetQuotaReport, SetQuotaRequest, SignRequest, StandingReply, StoreFacts,
    TakeEditLockRequest, UnregisterReply, UnregisterRequest,
};
use platter_image::frame::FrameHeader;
use platter_image::frame::stream::FramesRequest;
use platter_image::{BlockId, Domain, Error, ErrorKind, Kind, Result, Score};
use platter_records::{
    BOOT_SET_LENGTH_MAX, BootSet, CollectReport, EditLock, EncodedBootSet, Follower, History, HoardChanges,
    HoardSnapshot, ImageCosts, ImageName, MissingBlocks, NumberChoice, Quota, QuotaUse, Registered, Resolved,
    Signature, StoreId, Version, VersionName, VersionQuery, VersionRecord,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::address::ServerOptions;
use super::answers::Answers;
use super::client::{COLLECT_TIME_MAX, Client, retried};
use super::frames;
use super::sharing_rights::SharingRights;
use super::store_keys;
use super::upload_session::UploadSession;

/// How long to ask an origin that is down for the result of a request whose response was lost.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);

/// The path of the facts about the store.
const STORE_PATH: &str = "/api/v1/store";
/// Most bytes of the response to a boot set.
const ANSWER_LENGTH_MAX: u64 = 64 << 10;

/// One origin, with its queries and changes.
#[derive(Clone)]
pub struct OriginStore {
    client: Arc<Client>,
    answers: Option<Arc<Answers>>,
}

impl OriginStore {
    /// Prepares requests. Sends nothing yet.
    ///
    /// # Errors
    /// `Refused` or `Missing` when the options cannot be used.
    pub fn open(options: &ServerOptions) -> Result<Self> {
        Ok(Self::of(Client::open(options)?))
    }

    pub(super) fn of(client: Arc<Client>) -> Self {
        Self { client, answers: None }
    }

    /// Returns the same origin with stored replies about versions, which are used while it is down.
    #[must_use]
    pub fn remembering(self, answers: Arc<Answers>) -> Self {
        Self { answers: Some(answers), ..self }
    }

    /// Whether replies are stored.
    pub fn remembers(&self) -> bool {
        self.answers.is_some()
    }

    /// Sends a request. While the origin is down, the stored reply to the same request is used.
    fn get_or_remember<T: DeserializeOwned>(&self, path: &str) -> Result<(T, Value)> {
        let Some(answers) = &self.answers else {
            return Ok((self.client.get(path)?, Value::Null));
        };
        match self.client.get::<Value>(path) {
            Ok(answer) => {
                let parsed = self.parse(answer.clone())?;
                answers.note_reply();
                answers.keep(&[path.to_owned()], &answer);
                Ok((parsed, answer))
            }
            Err(error) if error.kind() == ErrorKind::Transient => {
                let Some(answer) = answers.get(path) else { return Err(error) };
                answers.note_away(self.client.name());
                Ok((self.parse(answer.clone())?, answer))
            }
            Err(error) => Err(error),
        }
    }

    fn parse<T: DeserializeOwned>(&self, answer: Value) -> Result<T> {
        serde_json::from_value(answer)
            .map_err(|error| self.protocol_error("sent an invalid reply").with_source(error))
    }

    /// As `Store::id`.
    pub fn id(&self) -> Result<StoreId> {
        let (facts, _): (StoreFacts, _) = self.get_or_remember(STORE_PATH)?;
        StoreId::from_hex(&facts.id).ok_or_else(|| self.protocol_error("has a store without an id"))
    }

    /// Returns the identity domain of the store. If it is encrypted, this process has its keys on return.
    ///
    /// # Errors
    /// `Transient` when the origin is down, and its reply is not stored or the keys are missing.
    pub fn domain(&self) -> Result<Domain> {
        let domain = match self.client.domain.get() {
            Some(domain) => *domain,
            None => {
                let (facts, _): (StoreFacts, _) = self.get_or_remember(STORE_PATH)?;
                let domain = store_keys::domain_of(facts.domain.as_deref(), self.client.name())?;
                *self.client.domain.get_or_init(|| domain)
            }
        };
        store_keys::obtain(&self.client, domain)?;
        Ok(domain)
    }

    /// Takes the domain that a reply names, and gets its keys. If the origin is down, whoever needs them says so.
    fn note_domain(&self, text: Option<&str>) -> Result<()> {
        let domain = store_keys::domain_of(text, self.client.name())?;
        match store_keys::obtain(&self.client, *self.client.domain.get_or_init(|| domain)) {
            Err(error) if error.kind() == ErrorKind::Transient => Ok(()),
            obtained => obtained,
        }
    }

    /// Gets the keys of the store if its stored reply says that it is encrypted. Sends no request otherwise.
    ///
    /// # Errors
    /// As [`OriginStore::domain`].
    pub fn unlock_as_remembered(&self) -> Result<()> {
        let Some(answer) = self.answers.as_ref().and_then(|answers| answers.get(STORE_PATH)) else {
            return Ok(());
        };
        let facts: StoreFacts = self.parse(answer)?;
        let domain = store_keys::domain_of(facts.domain.as_deref(), self.client.name())?;
        store_keys::obtain(&self.client, domain)
    }

    /// Returns with which nodes this one may exchange blocks.
    ///
    /// # Errors
    /// `Transient` when the origin is down and no reply is stored.
    pub fn sharing_rights(&self) -> Result<SharingRights> {
        let (facts, _): (StoreFacts, _) = self.get_or_remember(STORE_PATH)?;
        let group = StoreId::from_hex(&facts.sharing_group);
        let group = group
            .ok_or_else(|| self.protocol_error("names a sharing group that is not 32 hexadecimal digits"))?;
        Ok(SharingRights { group: group.0, all_images: facts.reads_all_images })
    }

    /// As `Store::versions`, restricted to readable images.
    pub fn versions(&self) -> Result<Vec<Version>> {
        let (records, _): (Vec<VersionRecord>, _) = self.get_or_remember("/api/v1/versions")?;
        records.iter().map(version_of).collect()
    }

    /// The events of the origin, as an endless stream of server-sent events.
    pub(super) fn events(&self) -> Result<impl Read + use<>> {
        self.client.get_for_stream("/api/v1/events")
    }

    /// Returns the newest version of an image, if there is one. Always asks the origin: an earlier reply may be out of date.
    fn newest(&self, image: &ImageName) -> Result<Option<Version>> {
        let reply: Result<ResolveReply> = self.client.get(&resolve_path(image.as_str()));
        match reply.and_then(|reply| self.resolved(image.as_str(), &reply)) {
            Ok(resolved) => Ok(resolved.version),
            Err(error) if error.kind() == ErrorKind::Missing => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the newest version of an image after a request whose reply was lost. Retries for [`RETRY_TIME_MAX`] while the
    /// origin is down.
    pub(super) fn newest_after_loss(&self, image: &ImageName) -> Result<Option<Version>> {
        retried(RETRY_TIME_MAX, || self.newest(image))
    }

    /// As `Store::images`.
    pub fn images(&self) -> Result<Vec<Version>> {
        let (records, _): (Vec<VersionRecord>, _) = self.get_or_remember("/api/v1/images")?;
        records.iter().map(version_of).collect()
    }

    /// As `Store::history`.
    pub fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        let (records, _): (Vec<VersionRecord>, _) = self.get_or_remember(&history_path(image))?;
        records.iter().map(version_of).collect()
    }

    /// As `Store::resolve`.
    pub fn resolve(&self, text: &str) -> Result<Resolved> {
        // Invalid text is refused here, and valid text has no characters with a meaning in URLs.
        self.resolve_or_remember(text).map(|(resolved, _)| resolved)
    }

    /// The same, with the error of an origin that is down if the result comes from stored replies. Then the newest
    /// version of an image is the newest one in any of them.
    pub fn resolve_or_remember(&self, text: &str) -> Result<(Resolved, Option<Error>)> {
        let query: VersionQuery = text.parse()?;
        let path = resolve_path(text);
        let answer = match self.client.get::<Value>(&path) {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::Transient => {
                return match self.remembered(text, &query)? {
                    Some(resolved) => Ok((resolved, Some(error))),
                    None => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let resolved = self.resolved(text, &self.parse(answer.clone())?)?;
        if let Some(answers) = &self.answers {
            answers.note_reply();
            let mut paths = vec![path];
            if let Some(version) = &resolved.version {
                // The reply also answers a request for the full name, and for the image if this version is newer.
                let (full, image) = (version.name.to_string(), version.name.image.as_str());
                paths.push(resolve_path(&full));
                let is_newer = |known: Resolved| {
                    known.version.is_none_or(|known| known.name.number < version.name.number)
                };
                if self.stored(answers, image)?.is_some_and(is_newer) {
                    paths.push(resolve_path(image));
                }
            }
            answers.keep(&paths, &answer);
        }
        Ok((resolved, None))
    }

    /// Resolves a name by stored replies.
    fn remembered(&self, text: &str, query: &VersionQuery) -> Result<Option<Resolved>> {
        let Some(answers) = &self.answers else { return Ok(None) };
        let mut known = self.stored(answers, text)?;
        if let VersionQuery::Named(image, NumberChoice::Latest) = query {
            known = newer(known, self.stored(answers, image.as_str())?);
            for path in ["/api/v1/versions".to_owned(), history_path(image)] {
                let records = answers.get(&path).map(|answer| self.parse::<Vec<VersionRecord>>(answer));
                for record in records.transpose()?.unwrap_or_default() {
                    if record.image == *image {
                        let version = version_of(&record)?;
                        known = newer(
                            known,
                            Some(Resolved { score: version.record.score, version: Some(version) }),
                        );
                    }
                }
            }
        }
        if known.is_some() {
            answers.note_away(self.client.name());
        }
        Ok(known)
    }

    /// Returns the stored reply to a request to resolve this name.
    fn stored(&self, answers: &Answers, text: &str) -> Result<Option<Resolved>> {
        let reply = answers.get(&resolve_path(text)).map(|answer| self.parse(answer));
        reply.transpose()?.map(|reply| self.resolved(text, &reply)).transpose()
    }

    /// Returns what `text` stands for according to the origin's reply.
    ///
    /// # Errors
    /// `Corrupt` when the reply does not match the text.
    fn resolved(&self, text: &str, reply: &ResolveReply) -> Result<Resolved> {
        let corrupt =
            || Error::corrupt(format!("{}: it resolved {text} to something else", self.client.name()));
        let score = Score::from_hex(&reply.score).ok_or_else(corrupt)?;
        self.note_domain(reply.domain.as_deref())?;
        let version = reply.version.as_ref().map(version_of).transpose()?;
        let agrees = match &text.parse()? {
            VersionQuery::Named(image, choice) => version.as_ref().is_some_and(|version| {
                let number = NumberChoice::Number(version.name.number);
                version.name.image == *image && (*choice == NumberChoice::Latest || *choice == number)
            }),
            VersionQuery::Score(wanted) => *wanted == score,
        };
        if !agrees || version.as_ref().is_some_and(|version| version.record.score != score) {
            return Err(corrupt());
        }
        Ok(Resolved { score, version })
    }

    /// Returns the blocks of a disk that the origin lacks, as far as it knows.
    pub fn missing_blocks(&self, score: Score) -> Result<Option<MissingBlocks>> {
        let answer: ResolveReply = self.client.get(&format!("/api/v1/resolve?name={score}&missing=true"))?;
        let missing = answer.missing.flatten();
        match missing.as_ref().is_none_or(|it| BlockId::from_hex(&it.first).is_some()) {
            true => Ok(missing),
            false => Err(Error::corrupt(format!(
                "{}: it reported a missing block with an invalid id",
                self.client.name()
            ))),
        }
    }

    /// As `Store::edit_locks`.
    pub fn edit_locks(&self) -> Result<Vec<EditLock>> {
        self.client.get("/api/v1/edit-locks")
    }

    /// As `Store::edit_lock`.
    pub fn edit_lock(&self, image: &ImageName) -> Result<Option<EditLock>> {
        Ok(self.edit_locks()?.into_iter().find(|edit_lock| edit_lock.image == *image))
    }

    /// As `Store::take_edit_lock`, and with `steal` as `Store::steal_edit_lock`.
    pub fn take_edit_lock(&self, image: &ImageName, holder: &str, steal: bool) -> Result<EditLock> {
        let request = TakeEditLockRequest { image: image.clone(), holder: holder.to_owned(), steal };
        let edit_lock: EditLock = self.client.change("/api/v1/edit-locks", &request)?;
        if edit_lock.image == *image {
            Ok(edit_lock)
        } else {
            Err(self.protocol_error("sent the edit lock of another image"))
        }
    }

    /// As `Store::release_edit_lock`.
    pub fn release_edit_lock(&self, edit_lock: &EditLock) -> Result<()> {
        let image = edit_lock.image.as_str().replace('/', "%2F");
        self.client.delete(&format!("/api/v1/edit-locks/{image}/{}", edit_lock.number))
    }

    /// Clones a version. No block is transferred.
    pub fn clone_version(
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
        let record: VersionRecord = match self.client.change("/api/v1/clone", &request) {
            // Perhaps only the response was lost.
            Err(error) if error.kind() == ErrorKind::Transient => {
                let newest = self.newest_after_loss(to).ok().flatten();
                let is_it = |version: &Version| {
                    version.name.number > before && version.record.cloned_from.as_ref() == Some(from)
                };
                return newest.filter(is_it).ok_or(error);
            }
            answer => answer?,
        };
        let version = version_of(&record)?;
        if version.name.image == *to {
            Ok(version)
        } else {
            Err(self.protocol_error("cloned to another image"))
        }
    }

    /// As `Store::forget`.
    pub fn forget(&self, image: &ImageName, number: Option<u64>) -> Result<Vec<String>> {
        let request = ForgetRequest { image: image.clone(), number };
        let answer: ForgetReport = self.client.change("/api/v1/forget", &request)?;
        Ok(answer.forgotten)
    }

    /// As `Store::protect`.
    pub fn protect(&self, image: &ImageName, number: Option<u64>, protect: bool) -> Result<Vec<VersionName>> {
        let request = ProtectRequest { image: image.clone(), number, protect };
        let answer: ProtectReport = self.client.change("/api/v1/protect", &request)?;
        self.version_names(&answer.changed)
    }

    /// As `Store::protected`, restricted to readable images.
    pub fn protected(&self) -> Result<Vec<VersionName>> {
        let (names, _): (Vec<String>, _) = self.get_or_remember("/api/v1/protected")?;
        self.version_names(&names)
    }

    /// As `Store::quotas`, restricted to readable images.
    pub fn quotas(&self) -> Result<Vec<QuotaUse>> {
        self.client.get("/api/v1/quotas")
    }

    /// As `Store::set_quota`.
    pub fn set_quota(&self, prefix: &ImageName, limit_bytes: Option<u64>) -> Result<Option<Quota>> {
        let request = SetQuotaRequest { prefix: prefix.clone(), limit_bytes };
        let answer: SetQuotaReport = self.client.change("/api/v1/quotas", &request)?;
        Ok(answer.before)
    }

    fn version_names(&self, names: &[String]) -> Result<Vec<VersionName>> {
        let parsed = names.iter().map(|name| match name.parse() {
            Ok(VersionQuery::Named(image, NumberChoice::Number(number))) => Ok(VersionName { image, number }),
            _ => Err(self.protocol_error("named a version that is none")),
        });
        parsed.collect()
    }

    /// As `Store::collect`. The origin keeps what the overlays on its machine stand on.
    pub fn collect(&self, request: &CollectRequest) -> Result<CollectReport> {
        self.client.post_patiently("/api/v1/collect", request, COLLECT_TIME_MAX)
    }

    /// As `Store::image_costs`. The origin counts again only if something has changed since.
    pub fn image_costs(&self) -> Result<ImageCosts> {
        let reply: CostsReply = self.client.get_patiently("/api/v1/costs?count=true")?;
        reply.costs.ok_or_else(|| self.protocol_error("sent no costs"))
    }

    /// As `Store::rename`. Returns the names before and after.
    pub fn rename(&self, from: &ImageName, to: &ImageName) -> Result<Vec<(String, String)>> {
        let request = RenameRequest { from: from.clone(), to: to.clone() };
        let answer: RenameReport = self.client.change("/api/v1/rename", &request)?;
        Ok(answer.renamed.into_iter().map(|one| (one.from, one.to)).collect())
    }

    /// As `Store::sign`.
    pub fn sign(&self, name: &VersionName, signature: &Signature) -> Result<Version> {
        let (image, number) = (name.image.clone(), name.number);
        let request = SignRequest { image, number, signature: signature.clone() };
        let record: VersionRecord = self.client.change("/api/v1/sign", &request)?;
        version_of(&record)
    }

    /// The log of changes, of one image or of all.
    pub fn changes(&self, image: Option<&ImageName>) -> Result<History> {
        let mut history = History { changes: Vec::new(), last: 0, is_whole: true };
        let mut after = 0;
        loop {
            let of_image = image.map_or(String::new(), |image| format!("&image={image}"));
            let path = format!("/api/v1/changes?after={after}{of_image}");
            let reply: ChangesReply = self.client.get(&path)?;
            history.is_whole &= reply.is_whole;
            history.last = reply.last;
            history.changes.extend(reply.changes);
            if reply.up_to >= reply.last || reply.up_to <= after {
                return Ok(history);
            }
            after = reply.up_to;
        }
    }

    /// Reports the state of a cast.
    pub fn tell_of_cast(&self, id: &str, status: &CastStatus) -> Result<()> {
        self.client.tell(&format!("/api/v1/casts/{id}"), status)
    }

    /// The casts of the last ten minutes, newest first.
    pub fn casts(&self) -> Result<Vec<ListedCast>> {
        self.client.get("/api/v1/casts")
    }

    /// Asks for a cast of this version in one of these families. If the reply names no address yet, ask again.
    pub fn ask_for_cast(&self, version: &str, families: Vec<CastFamily>) -> Result<CastOffer> {
        let request = AskForCastRequest { version: version.to_owned(), families };
        self.client.post("/api/v1/casts", &request)
    }

    /// Asks for a cast of what this node lacks of the hoard. If the reply says so, ask again.
    pub fn ask_for_hoard_cast(&self, request: &AskForHoardCastRequest) -> Result<HoardCastOffer> {
        self.client.post("/api/v1/hoard/cast", request)
    }

    /// As `Store::hoard`.
    pub fn hoard(&self) -> Result<HoardSnapshot> {
        self.client.get("/api/v1/hoard")
    }

    /// As `Store::hoard_changes`.
    pub fn hoard_changes(&self, epoch: &str, since: u64) -> Result<HoardChanges> {
        self.client.get(&format!("/api/v1/hoard/changes?epoch={epoch}&since={since}"))
    }

    /// As `Store::boot_set`.
    pub fn boot_set(&self, id: &BlockId) -> Result<BootSet> {
        let path = format!("/api/v1/hoard/boot-sets/{id}");
        BootSet::decode(id, &self.client.get_bytes(&path, BOOT_SET_LENGTH_MAX as u64)?)
    }

    /// As `Store::register_boot_set`.
    pub fn register_boot_set(&self, name: &VersionName, set: &EncodedBootSet) -> Result<Registered> {
        let path = format!("/api/v1/hoard/record?image={}&number={}", name.image, name.number);
        let answer = self.client.post_bytes(&path, &set.to_bytes(), ANSWER_LENGTH_MAX)?;
        serde_json::from_slice(&answer)
            .map_err(|error| self.protocol_error("sent an invalid reply to a boot set").with_source(error))
    }

    /// As `Store::unregister_boot_set`. Returns the revision and the names of the versions.
    pub fn unregister_boot_set(&self, image: &ImageName, number: Option<u64>) -> Result<(u64, Vec<String>)> {
        let request = UnregisterRequest { image: image.clone(), number };
        let answer: UnregisterReply = self.client.post("/api/v1/hoard/unregister", &request)?;
        Ok((answer.revision, answer.unregistered))
    }

    /// As `Store::boot_set_bytes`.
    pub fn boot_set_bytes(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.client.get_bytes(&format!("/api/v1/hoard/boot-sets/{id}"), BOOT_SET_LENGTH_MAX as u64)
    }

    /// Returns changes for a follower, which is registered by this.
    pub fn changes_for_follower(&self, request: &ReplicaRequest) -> Result<ReplicaReply> {
        let reply: ReplicaReply = self.client.post("/api/v1/replica", request)?;
        Ok(ReplicaReply { standing: reply.standing.of_other()?, ..reply })
    }

    /// Returns the id of the store and what it is among its copies.
    pub fn standing(&self) -> Result<StandingReply> {
        let reply: StandingReply = self.client.get("/api/v1/standing")?;
        Ok(StandingReply { standing: reply.standing.of_other()?, ..reply })
    }

    /// Tells the store that a follower has replaced it.
    pub fn fence(&self, request: &FenceRequest) -> Result<StandingReply> {
        let reply: StandingReply = self.client.post("/api/v1/fence", request)?;
        Ok(StandingReply { standing: reply.standing.of_other()?, ..reply })
    }

    /// As `Store::followers`.
    pub fn followers(&self) -> Result<Vec<Follower>> {
        self.client.get("/api/v1/followers")
    }

    /// As `Store::remove_follower`; `Missing` when there is no such follower.
    pub fn remove_follower(&self, id: &str) -> Result<()> {
        self.client.delete(&format!("/api/v1/followers/{id}"))
    }

    /// Returns the nodes that the origin knows, as it lists them.
    pub fn nodes(&self) -> Result<serde_json::Value> {
        self.client.get("/api/v1/nodes")
    }

    /// Sends one request for frames, and passes them to `take` as they arrive, decoded and hashed. Returns the ids that
    /// were not found.
    ///
    /// # Errors
    /// The origin's errors; `Transient` when it is down; `Corrupt` when it sends wrong data; the errors of `take`.
    pub fn frames(
        &self,
        request: &FramesRequest,
        take: &mut dyn FnMut(&FrameHeader, &[u8]) -> Result<()>,
    ) -> Result<Vec<BlockId>> {
        frames::fetch(&self.client, request, take)
    }

    /// Reports this node to the origin. Returns what it says of other nodes.
    ///
    /// # Errors
    /// `Missing` from an origin without this endpoint; as [`Client::post`].
    pub fn report(&self, report: &NodeReport) -> Result<NodePeersReply> {
        self.client.post("/api/v1/nodes", report)
    }

    /// Begins to add a version of this image to the origin's store. With `verify_known`, the origin reads every frame
    /// that the version relies on.
    ///
    /// # Errors
    /// The origin's errors.
    pub fn session(&self, image: &ImageName, verify_known: bool) -> Result<UploadSession> {
        UploadSession::begin(self.client.clone(), image, verify_known)
    }

    fn protocol_error(&self, what: &str) -> Error {
        Error::corrupt(format!("{}: it {what}", self.client.name()))
    }
}

/// The path that resolves a name or a score.
/// Returns the newer of two versions of an image.
fn newer(a: Option<Resolved>, b: Option<Resolved>) -> Option<Resolved> {
    let number = |it: &Resolved| it.version.as_ref().map(|version| version.name.number);
    [a, b].into_iter().flatten().max_by_key(number)
}

fn history_path(image: &ImageName) -> String {
    format!("/api/v1/versions?image={image}")
}

fn resolve_path(text: &str) -> String {
    format!("/api/v1/resolve?name={text}")
}

/// Returns the version of a record that an origin sent. Its id is that of the local serialization.
///
/// # Errors
/// `Corrupt` when the record is invalid.
pub(super) fn version_of(record: &VersionRecord) -> Result<Version> {
    let bytes = record.encode().map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?;
    let record = VersionRecord::decode(&bytes)?;
    Ok(Version { name: record.name(), record_id: BlockId::of(Kind::Version, &bytes), record })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_record_is_refused() {
        let image: ImageName = "lab/x".parse().unwrap();
        let mut record = VersionRecord::draft(image, Score(BlockId([1; 32])), 5);
        assert_eq!(version_of(&record).unwrap_err().kind(), ErrorKind::Corrupt, "a draft is not a version");
        record.number = 3;
        let version = version_of(&record).unwrap();
        assert_eq!(version.name.to_string(), "lab/x@3");
        record.notes = "x".repeat(1 << 20);
        assert_eq!(version_of(&record).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
