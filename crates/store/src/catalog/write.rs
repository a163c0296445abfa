//! What is written to the catalog: always whole changes, each one transaction.

use platter_image::{BlockId, Error, Result};
use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use super::{Catalog, PackState, failed};
use crate::name::{ImageName, VersionName};
use crate::pack::SealedPack;
use crate::record::{Parent, VersionRecord};

/// A change that is not committed yet.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(super) transaction: &'a Transaction<'a>,
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
        let done = change(&mut Change { transaction: &transaction })?;
        transaction.commit().map_err(|error| failed("committing a change of the catalog", error))?;
        Ok(done)
    }
}

impl Change<'_> {
    /// The number that the next version of an image gets, and the version before it.
    pub(crate) fn next_number(&self, image: &ImageName) -> Result<(u64, Option<Parent>)> {
        let doing = |error| failed(&format!("reading image {image} from the catalog"), error);
        let last = self.last_number(image)?;
        let parent = self
            .transaction
            .query_row(
                "SELECT number, score FROM versions WHERE image = ?1 ORDER BY number DESC LIMIT 1",
                [image.as_str()],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
            )
            .optional()
            .map_err(doing)?;
        let parent = parent.map(|(number, score)| {
            let score = platter_image::Score::from_hex(&score);
            let score = score
                .ok_or_else(|| Error::corrupt(format!("the catalog has no score for {image}@{number}")))?;
            Ok(Parent { number: number as u64, score })
        });
        Ok((last + 1, parent.transpose()?))
    }

    /// A sealed pack counts from now on.
    pub(crate) fn add_live_pack(&mut self, pack: &SealedPack) -> Result<()> {
        self.transaction
            .execute(
                "INSERT INTO packs (id, state, length, frames, blocks) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    pack.id.to_string(),
                    PackState::Live.as_str(),
                    pack.length as i64,
                    pack.frames as i64,
                    pack.blocks as i64
                ],
            )
            .map_err(|error| failed(&format!("entering pack {} in the catalog", pack.id), error))?;
        Ok(())
    }

    /// Enters a version; says whether it was not there before. A number once used stays with its first version,
    /// and a token's number found in a record is never given again.
    pub(crate) fn add_version(&mut self, record_id: BlockId, record: &VersionRecord) -> Result<bool> {
        let (name, json) = (record.name(), record.to_json()?);
        let doing = |error| failed(&format!("entering version {name} in the catalog"), error);
        let number = i64::try_from(record.number)
            .map_err(|_| Error::corrupt(format!("version {name}: its number")))?;
        self.raise_last_number(&name.image, record.number)?;
        let inserted = self
            .transaction
            .execute(
                "INSERT INTO versions VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
                params![
                    name.image.as_str(),
                    number,
                    record.score.to_string(),
                    record.time_unix_ms,
                    record_id.to_string(),
                    json
                ],
            )
            .map_err(doing)?;
        record.token.map_or(Ok(()), |token| self.raise_last_token(token))?;
        Ok(inserted == 1)
    }

    /// Removes a version. Its number stays used.
    pub(crate) fn remove_version(&mut self, name: &VersionName) -> Result<()> {
        let number = i64::try_from(name.number).unwrap_or(i64::MAX);
        self.transaction
            .execute(
                "DELETE FROM versions WHERE image = ?1 AND number = ?2",
                params![name.image.as_str(), number],
            )
            .map_err(|error| failed(&format!("removing version {name} from the catalog"), error))?;
        Ok(())
    }

    /// The next version of an image will have a number larger than that.
    pub(crate) fn raise_last_number(&mut self, image: &ImageName, number: u64) -> Result<()> {
        let number =
            i64::try_from(number).map_err(|_| Error::corrupt(format!("image {image}: its last number")))?;
        self.transaction
            .execute(
                "INSERT INTO images VALUES (?1, ?2)
                 ON CONFLICT DO UPDATE SET last_number = max(last_number, excluded.last_number)",
                params![image.as_str(), number],
            )
            .map_err(|error| failed(&format!("entering image {image} in the catalog"), error))?;
        Ok(())
    }
}
