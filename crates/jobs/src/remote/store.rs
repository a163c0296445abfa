//! An origin as a store of versions: what is asked and changed by one request each.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use platter_image::{BlockId, Error, ErrorKind, Kind, Result, Score};
use platter_store::{
    ImageName, NumberChoice, Resolved, StoreId, Token, Version, VersionName, VersionQuery, VersionRecord,
};
use serde::Deserialize;
use serde_json::json;

use super::address::ServerOptions;
use super::client::{Client, retried};
use super::fetch::{RemoteSource, SourceOptions};
use super::upload::RemoteSession;

/// So long an origin that is away is asked what became of something whose answer was lost.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);

/// An origin.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    client: Arc<Client>,
    /// By score, those that somebody reads from: all who read one recipe fetch for each other.
    sources: Arc<Mutex<HashMap<Score, Weak<RemoteSource>>>>,
}

#[derive(Deserialize)]
struct Facts {
    id: String,
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
    /// `Refused` or `Missing` when the options cannot be used.
    pub(crate) fn open(options: &ServerOptions) -> Result<Self> {
        Ok(Self::of(Client::open(options)?))
    }

    pub(super) fn of(client: Arc<Client>) -> Self {
        Self { client, sources: Arc::default() }
    }

    /// As [`platter_store::Store::id`].
    pub(crate) fn id(&self) -> Result<StoreId> {
        let facts: Facts = self.client.get("/api/v1/store")?;
        StoreId::from_hex(&facts.id).ok_or_else(|| self.odd("has a store without an id"))
    }

    /// As [`platter_store::Store::versions`], of what may be read.
    pub(crate) fn versions(&self) -> Result<Vec<Version>> {
        let records: Vec<VersionRecord> = self.client.get("/api/v1/versions")?;
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
        let records: Vec<VersionRecord> = self.client.get("/api/v1/images")?;
        records.iter().map(version_of).collect()
    }

    /// As [`platter_store::Store::history`].
    pub(crate) fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        let records: Vec<VersionRecord> = self.client.get(&format!("/api/v1/versions?image={image}"))?;
        records.iter().map(version_of).collect()
    }

    /// As [`platter_store::Store::resolve`].
    pub(crate) fn resolve(&self, text: &str) -> Result<Resolved> {
        // What is refused needs no origin, and what is left has no characters that mean something in a URL.
        let query: VersionQuery = text.parse()?;
        let raw: RawResolved = self.client.get(&format!("/api/v1/resolve?name={text}"))?;
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
        if agrees && version.as_ref().is_none_or(|version| version.record.score == score) {
            Ok(Resolved { score, version })
        } else {
            Err(corrupt())
        }
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
        let request = json!({ "image": image, "number": number });
        let answer: Forgotten = self.client.post("/api/v1/forget", &request)?;
        Ok(answer.forgotten)
    }

    /// As [`platter_store::Store::rename`]: names before and after.
    pub(crate) fn rename(&self, from: &ImageName, to: &ImageName) -> Result<Vec<(String, String)>> {
        let answer: Renamed = self.client.post("/api/v1/rename", &json!({ "from": from, "to": to }))?;
        Ok(answer.renamed.into_iter().map(|one| (one.from, one.to)).collect())
    }

    /// The frames and pages of a recipe. While one source of a recipe is in use, whoever asks for it gets the same.
    pub(crate) fn source(&self, score: Score, options: SourceOptions) -> Arc<RemoteSource> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = sources.get(&score).and_then(Weak::upgrade) {
            return source;
        }
        sources.retain(|_, source| source.strong_count() > 0);
        let source = Arc::new(RemoteSource::new(self.client.clone(), score, options));
        sources.insert(score, Arc::downgrade(&source));
        source
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
