//! An origin as a store of versions: what is asked and changed by one request each.

use std::sync::Arc;

use platter_image::{BlockId, Error, ErrorKind, Kind, Result, Score};
use platter_store::{
    ImageName, NumberChoice, Resolved, Token, Version, VersionName, VersionQuery, VersionRecord,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::address::ServerOptions;
use super::client::Client;
use super::fetch::{RemoteSource, SourceOptions};
use super::upload::RemoteSession;
use crate::node::{CachedSource, NodeCache, NodeReport};

/// An origin.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    client: Arc<Client>,
    cache: Option<Arc<NodeCache>>,
}

#[derive(Deserialize)]
struct RawResolved {
    score: String,
    version: Option<VersionRecord>,
}

#[derive(Deserialize)]
struct Forgotten {
    forgotten: Vec<String>,
}

#[derive(Deserialize)]
struct Renamed {
    renamed: Vec<RenamedOne>,
}

#[derive(Deserialize)]
struct RenamedOne {
    from: String,
    to: String,
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
        Ok(Self { client, cache })
    }

    /// Without a cache.
    pub(super) fn of(client: Arc<Client>) -> Self {
        Self { client, cache: None }
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
        let (raw, answer): (RawResolved, _) = self.get_or_remember(&question(text))?;
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

    /// As [`platter_store::Store::tokens`].
    pub(crate) fn tokens(&self) -> Result<Vec<Token>> {
        self.client.get("/api/v1/edit-tokens")
    }

    /// As [`platter_store::Store::token`].
    pub(crate) fn token(&self, image: &ImageName) -> Result<Option<Token>> {
        Ok(self.tokens()?.into_iter().find(|token| token.image == *image))
    }

    /// As [`platter_store::Store::take_token`], and with `steal` as [`platter_store::Store::steal_token`].
    pub(crate) fn take_token(&self, image: &ImageName, holder: &str, steal: bool) -> Result<Token> {
        let request = json!({ "image": image, "holder": holder, "steal": steal });
        let token: Token = self.client.post("/api/v1/edit-tokens", &request)?;
        if token.image == *image { Ok(token) } else { Err(self.odd("gave the token of another image")) }
    }

    /// As [`platter_store::Store::release_token`].
    pub(crate) fn release_token(&self, token: &Token) -> Result<()> {
        let image = token.image.as_str().replace('/', "%2F");
        self.client.delete(&format!("/api/v1/edit-tokens/{image}/{}", token.number))
    }

    /// Clones a version, as [`crate::clone`] does here.
    pub(crate) fn clone_version(
        &self,
        from: &VersionName,
        to: &ImageName,
        next: bool,
        token: Option<u64>,
        tool_version: &str,
    ) -> Result<Version> {
        let request = json!({
            "from": from.to_string(), "to": to, "next": next, "token": token, "tool_version": tool_version,
        });
        let record: VersionRecord = self.client.post("/api/v1/clone", &request)?;
        let version = version_of(&record)?;
        if version.name.image == *to { Ok(version) } else { Err(self.odd("cloned to another image")) }
    }

    /// As [`platter_store::Store::forget`].
    pub(crate) fn forget(&self, image: &ImageName, number: Option<u64>) -> Result<Vec<String>> {
        let request = json!({ "image": image, "number": number });
        let answer: Forgotten = self.client.post("/api/v1/forget", &request)?;
        Ok(answer.forgotten)
    }

    /// As [`platter_store::Store::rename`]: names before and after.
    pub(crate) fn rename(&self, from: &ImageName, to: &ImageName) -> Result<Vec<(String, String)>> {
        let answer: Renamed = self.client.post("/api/v1/rename", &json!({ "from": from, "to": to }))?;
        Ok(answer.renamed.into_iter().map(|one| (one.from, one.to)).collect())
    }

    /// The frames and pages of a recipe.
    pub(crate) fn source(&self, score: Score, options: SourceOptions) -> RemoteSource {
        RemoteSource::new(self.client.clone(), score, options)
    }

    /// The same over the cache; `None` without one.
    pub(crate) fn cached_source(&self, score: Score, options: SourceOptions) -> Option<Arc<CachedSource>> {
        let cache = self.cache.as_ref()?;
        Some(CachedSource::new(cache.clone(), Arc::new(self.source(score, options))))
    }

    /// Tells the origin of this node; gives what it says of others.
    ///
    /// # Errors
    /// `Missing` from an origin that knows nothing of nodes; as [`Client::post`].
    pub(crate) fn report(&self, report: &NodeReport) -> Result<Value> {
        self.client.post("/api/v1/nodes", report)
    }

    /// Begins to add to the origin's store.
    ///
    /// # Errors
    /// What the origin says.
    pub(crate) fn session(&self) -> Result<RemoteSession> {
        RemoteSession::begin(self.client.clone())
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
