//! What is written to the catalog: always whole changes, each one transaction.

use platter_image::{BlockId, Error, Result};
use rusqlite::{Transaction, TransactionBehavior};

use super::table::{IMAGES, META, PACKS, Seals, VERSIONS, number, text};
use super::{Catalog, PackState, failed};
use crate::name::{ImageName, VersionName};
use crate::pack::SealedPack;
use crate::record::{Parent, VersionRecord};

/// A change that is not committed yet.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(super) transaction: &'a Transaction<'a>,
    /// Of the tables that were changed.
    pub(super) seals: Seals,
}

impl Catalog {
    /// Runs `change` and commits it: when this returns, it is durable. Nothing is changed when it fails, unless the
    /// commit itself does: then nobody knows.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Change<'_>) -> Result<T>) -> Result<T> {
        // Immediate: what it reads stays true until it commits.
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| failed("beginning a change of the catalog", error))?;
        let mut under_way = Change::new(&transaction);
        let done = change(&mut under_way)?;
        under_way.write_seals()?;
        transaction.commit().map_err(|error| failed("committing a change of the catalog", error))?;
        Ok(done)
    }
}

impl<'a> Change<'a> {
    pub(super) fn new(transaction: &'a Transaction<'a>) -> Self {
        Self { transaction, seals: Seals::new() }
    }

    /// The number that the next version of an image gets, and the version before it.
    ///
    /// # Errors
    /// `Corrupt` when there is a version of a higher number than the highest that the image ever had.
    pub(crate) fn next_number(&self, image: &ImageName) -> Result<(u64, Option<Parent>)> {
        let last = self.last_number(image)?;
        let newest = self.newest_version(image)?;
        if let Some(newest) = newest.as_ref().filter(|newest| newest.name.number > last) {
            return Err(Error::corrupt(format!(
                "there is {}, but the catalog says that the highest number of {image} is {last}: `platter rebuild` \
                 makes it anew",
                newest.name
            )));
        }
        let parent = newest.map(|newest| Parent { number: newest.name.number, score: newest.record.score });
        Ok((last + 1, parent))
    }

    /// A sealed pack counts from now on.
    pub(crate) fn add_live_pack(&mut self, pack: &SealedPack) -> Result<()> {
        let state = text(PackState::Live.as_str());
        let numbers = [0, pack.length, pack.frames, pack.blocks].map(number);
        self.put(&PACKS, [text(pack.id), state].into_iter().chain(numbers).collect())
    }

    /// Enters a version; says whether it was not there before. A number once used stays with its first version,
    /// and a token's number found in a record is never given again.
    pub(crate) fn add_version(&mut self, record_id: BlockId, record: &VersionRecord) -> Result<bool> {
        let name = record.name();
        if i64::try_from(record.number).is_err() {
            return Err(Error::corrupt(format!("version {name}: its number")));
        }
        self.raise_last_number(&name.image, record.number)?;
        record.token.map_or(Ok(()), |token| self.raise_last_token(token))?;
        let key = [text(&name.image), number(name.number)];
        if self.row(&VERSIONS, &key)?.is_some() {
            return Ok(false);
        }
        let [image, number] = key;
        let time = record.time_unix_ms.into();
        let values = vec![image, number, text(record.score), time, text(record_id), text(record.to_json()?)];
        self.put(&VERSIONS, values)?;
        Ok(true)
    }

    /// Removes a version. Its number stays used.
    pub(crate) fn remove_version(&mut self, name: &VersionName) -> Result<()> {
        self.remove(&VERSIONS, &[text(&name.image), number(name.number)])
    }

    /// The next version of an image will have a number larger than that.
    pub(crate) fn raise_last_number(&mut self, image: &ImageName, last: u64) -> Result<()> {
        if i64::try_from(last).is_err() {
            return Err(Error::corrupt(format!("image {image}: its last number")));
        }
        let last = last.max(self.last_number(image)?);
        self.put(&IMAGES, vec![text(image), number(last)])
    }

    pub(super) fn set_meta(&mut self, key: &str, value: &str) -> Result<()> {
        self.put(&META, vec![text(key), text(value)])
    }
}
