//! An origin as a store of versions: what is asked and changed by one request each.

use std::sync::Arc;

use platter_image::{BlockId, Error, ErrorKind, Kind, Result, Score};
use platter_store::{
    ImageName, NumberChoice, Resolved, Token, Version, VersionName, VersionQuery, VersionRecord,
};
use serde::Deserialize;
use serde_json::json;

use super::address::ServerOptions;
use super::client::Client;
use super::fetch::{RemoteSource, SourceOptions};
use super::upload::RemoteSession;
use crate::CastStatus;

/// An origin.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    client: Arc<Client>,
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
        Self { client }
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

    /// Tells how a cast stands.
    pub(crate) fn tell_of_cast(&self, id: &str, status: &CastStatus) -> Result<()> {
        self.client.tell(&format!("/api/v1/casts/{id}"), status)
    }

    /// The frames and pages of a recipe.
    pub(crate) fn source(&self, score: Score, options: SourceOptions) -> RemoteSource {
        RemoteSource::new(self.client.clone(), score, options)
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
