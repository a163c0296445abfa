//! Copies versions from one store to another, under their names and numbers, with their records unchanged.

use std::fmt;
use std::str::FromStr;

use platter_fetch::{OpenStore, Opened, StoreLocation};
use platter_image::recipe::Recipe;
use platter_image::{Domain, Error, ErrorKind, Result, Score};
use platter_records::{ImageName, Imported, NumberChoice, Version, VersionName, VersionQuery, VersionRecord};
use platter_store::{KnownCheck, Store, missing_blocks};
use serde::Serialize;

use super::carry::{Carried, carry};
use super::feed::Feed;
use crate::Progress;

/// Which versions to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionChoice {
    /// One version.
    Version(VersionName),
    /// All versions of an image.
    Image(ImageName),
}

impl FromStr for VersionChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse()? {
            VersionQuery::Named(image, NumberChoice::Number(number)) => {
                Ok(Self::Version(VersionName { image, number }))
            }
            VersionQuery::Named(image, NumberChoice::Latest) if !text.contains('@') => Ok(Self::Image(image)),
            VersionQuery::Named(..) => Err(Error::refused(format!(
                "{text} may be another version later: give the number, or the image for all versions"
            ))),
            VersionQuery::Score(_) => Err(Error::refused("a score has no name: name a version that has it")),
        }
    }
}

impl fmt::Display for VersionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(name) => name.fmt(f),
            Self::Image(image) => image.fmt(f),
        }
    }
}

/// The request to copy versions.
#[derive(Clone, Debug)]
pub struct PushRequest {
    /// The store that has them.
    pub from: StoreLocation,
    /// The store that gets them.
    pub to: StoreLocation,
    /// The versions.
    pub what: Vec<VersionChoice>,
    /// Also copy versions that were forgotten or renamed there.
    pub restore: bool,
    /// How much of the data that the other store has is read back.
    pub known: KnownCheck,
}

/// A version that was copied, or was there already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PushedVersion {
    /// `lab/debian12@7`.
    pub version: String,
    /// What was done.
    pub result: Imported,
    /// Number of blocks and pages that were sent.
    pub blocks: u64,
    /// Bytes of the frames that were sent.
    pub bytes: u64,
}

/// The result of copying versions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PushReport {
    /// The versions, in the order in which they were copied.
    pub versions: Vec<PushedVersion>,
    /// Versions that could not be copied, and why.
    pub failed: Vec<(String, String)>,
    /// Number of frames that were sent.
    pub frames: u64,
    /// Number of blocks and pages in them.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The kind of the first failure. That a version which was named stays forgotten is one; among all versions of an image it is not.
    #[serde(skip)]
    pub failure: Option<ErrorKind>,
}

/// Copies versions. What was copied before an interruption is not sent again. A version that cannot be copied is reported, and the
/// others are copied all the same.
///
/// # Errors
/// `Missing` when the source has no such image or version; `Transient` and `Io` errors of both stores.
pub fn push(request: &PushRequest, progress: &dyn Progress) -> Result<PushReport> {
    let from = OpenStore::open_reader(&request.from)?;
    let versions = chosen(&from, &request.what)?;
    let to = OpenStore::open_reader(&request.to)?;
    if is_same_place(&from, &to) {
        return Err(Error::refused("that is the same store: there is nothing to copy"));
    }
    refuse_other_key(from.domain()?, to.domain()?)?;
    let to = OpenStore::open_writer(&request.to)?;
    let mut pushing =
        Pushing { request, feed: Feed::new(from)?, to, progress, report: PushReport::default() };
    for version in versions {
        match pushing.version(&version.record) {
            Err(error) if error.is_damage() || error.kind() == ErrorKind::Refused => {
                let text = error.with_causes();
                pushing.report.failure.get_or_insert(error.kind());
                pushing.report.failed.push((version.name.to_string(), text));
            }
            done => done.map_err(|error| error.within(format!("copying {}", version.name)))?,
        }
    }
    Ok(pushing.report)
}

/// Whether both are the store in one directory. A copy of that directory, which has the same id, is another store.
fn is_same_place(from: &OpenStore, to: &OpenStore) -> bool {
    let (Opened::Local(from), Opened::Local(to)) = (from.opened(), to.opened()) else { return false };
    let dir = |store: &Store| std::fs::canonicalize(store.place().dir()).ok();
    dir(from).is_some_and(|from| Some(from) == dir(to))
}

/// Refuses to copy between stores whose blocks have different names.
///
/// # Errors
/// `Refused`.
pub(super) fn refuse_other_key(from: Domain, to: Domain) -> Result<()> {
    if from == to {
        return Ok(());
    }
    let (what, help) = match (from.is_encrypted(), to.is_encrypted()) {
        (true, true) => (
            "both stores are encrypted, with different keys",
            "`platter init --same-key-as DIR/keys.json` creates a store with the same key",
        ),
        (true, false) => (
            "the source is encrypted, and the other store is not",
            "`platter init --same-key-as DIR/keys.json`, with the key file of the source, creates a store with the same key; or \
             use `platter export` and `platter capture` for a copy without encryption",
        ),
        _ => (
            "the source is not encrypted, and the other store is",
            "use `platter export` from the source, and `platter capture` into the other store",
        ),
    };
    Err(Error::refused(format!(
        "{what}: the same disk has other block ids and another score there, so nothing was copied. {help}"
    )))
}

/// Returns the versions, of each image the oldest first.
fn chosen(from: &OpenStore, what: &[VersionChoice]) -> Result<Vec<Version>> {
    let mut versions: Vec<Version> = Vec::new();
    for choice in what {
        let mut found = match choice {
            VersionChoice::Image(image) => from.history(image)?,
            VersionChoice::Version(name) => from.resolve(&name.to_string())?.version.into_iter().collect(),
        };
        found.sort_by_key(|version| version.name.number);
        found.retain(|version| !versions.iter().any(|known| known.name == version.name));
        versions.extend(found);
    }
    Ok(versions)
}

struct Pushing<'a> {
    request: &'a PushRequest,
    feed: Feed,
    to: OpenStore,
    progress: &'a dyn Progress,
    report: PushReport,
}

impl Pushing<'_> {
    fn version(&mut self, record: &VersionRecord) -> Result<()> {
        let name = record.name();
        let (result, carried) = match self.is_there(record)? {
            true => (Imported::Present, Carried::default()),
            false => self.copy(record)?,
        };
        let is_named = self.request.what.contains(&VersionChoice::Version(name.clone()));
        if result == Imported::Former && is_named {
            self.report.failure.get_or_insert(ErrorKind::Refused);
        }
        let (blocks, bytes) = (carried.blocks, carried.bytes);
        self.report.versions.push(PushedVersion { version: name.to_string(), result, blocks, bytes });
        self.report.frames += carried.frames;
        self.report.blocks += carried.blocks;
        self.report.bytes += carried.bytes;
        Ok(())
    }

    fn copy(&mut self, record: &VersionRecord) -> Result<(Imported, Carried)> {
        let (request, feed, progress) = (self.request, &mut self.feed, self.progress);
        let mut carried = Carried::default();
        progress.begin(&format!("copying {}", record.name()), record.allocated_bytes);
        let imported = self.to.add(&record.image, request.known, &|why| progress.note(why), |session| {
            // Asked before anything is sent: what stays forgotten needs no data.
            if session.foresee_import(record, request.restore)? == Imported::Former {
                return Ok(Imported::Former);
            }
            carried.add(carry(feed, session, record.score, &mut |bytes| progress.advance(bytes))?);
            session.finish()?;
            session.import(record, request.restore)
        })?;
        Ok((imported, carried))
    }

    /// Returns whether the other store has the version, undamaged as far as it knows.
    fn is_there(&self, record: &VersionRecord) -> Result<bool> {
        let there = match self.to.resolve(&record.name().to_string()) {
            Err(error) if error.kind() == ErrorKind::Missing => return Ok(false),
            resolved => resolved?.version,
        };
        let Some(there) = there.map(|version| version.record) else { return Ok(false) };
        let is_known = |signature| there.signatures.contains(signature);
        Ok((there.score, there.time_unix_ms) == (record.score, record.time_unix_ms)
            && record.signatures.iter().all(is_known)
            && self.request.known != KnownCheck::All
            && self.is_whole(record.score)?)
    }

    fn is_whole(&self, score: Score) -> Result<bool> {
        let missing = match self.to.opened() {
            Opened::Local(store) => Recipe::open(score, &**store)
                .and_then(|recipe| missing_blocks(&recipe, &**store, store.quarantined())),
            Opened::Remote(store) => store.origin().missing_blocks(score),
        };
        match missing {
            Err(error) if error.is_damage() => Ok(false),
            missing => Ok(missing?.is_none()),
        }
    }
}
