//! What is written to the catalog: always whole changes, each one transaction.

use platter_image::{BlockId, Error, ErrorKind, Result};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::log::{Entry, Head, Past, State, create_new};
use super::query::meta;
use super::row::RowChange;
use super::table::{IMAGES, LOG, META, PACKS, Seals, VERSIONS, digest, logged, number, text, version_row};
use super::{Catalog, PackState, failed, log};
use crate::name::{ImageName, VersionName};
use crate::pack::SealedPack;
use crate::place::StorePlace;
use crate::record::{Parent, VersionRecord};
use crate::resolve::Version;

/// A change that is not committed yet.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(super) transaction: &'a Transaction<'a>,
    /// Of the tables that were changed.
    pub(super) seals: Seals,
    /// What goes into the log's next entry; `None` while a catalog is made.
    pub(super) log: Option<Vec<RowChange>>,
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
        let before = read_head(&transaction)?;
        compare(&transaction, &before)?;
        let mut under_way = Change::new(&transaction);
        under_way.log = Some(Vec::new());
        let done = change(&mut under_way)?;
        let rows = under_way.log.take().unwrap_or_default();
        let head = if rows.is_empty() { None } else { Some(under_way.end_entry(&before, rows)?) };
        under_way.write_seals()?;
        let entry = match (&self.log, &head) {
            (Some(log), Some(head)) => Some((log, head)),
            (None, Some(_)) => return Err(Error::bug("a change of a catalog that was opened to be read")),
            (_, None) => None,
        };
        // A full disk is noticed while nothing is committed.
        entry.map_or(Ok(()), |(log, head)| log.reserve(head))?;
        transaction.commit().map_err(|error| failed("committing a change of the catalog", error))?;
        entry.map_or(Ok(()), |(log, head)| log.append(head))?;
        Ok(done)
    }

    /// Writes a row as it is. After a failed sync, memory may hold a commit that the disk does not; once this returns, the disk
    /// holds all that was read.
    pub(super) fn write_again(&self) -> Result<()> {
        let written = self.connection.execute("UPDATE meta SET value = value WHERE key = ?1", [LOG]);
        written.map(drop).map_err(|error| failed("writing the catalog's last change again", error))
    }

    /// What the catalog says of its log.
    pub(crate) fn head(&self) -> Result<Head> {
        read_head(&self.connection)
    }

    /// Replaces a log that has become long by one that holds the rows as they are, and what was forgotten. Where there is no
    /// space for that, the long one stays.
    pub(super) fn shorten_log(&mut self, place: &StorePlace) -> Result<()> {
        let head = self.head()?;
        if !head.is_long() {
            return Ok(());
        }
        let contents = log::read(place, Some(&head))?;
        if !contents.is_whole() {
            // Nothing that it says of the past may get lost: `check` names the damage.
            return Ok(());
        }
        let state = State::read(&self.connection)?;
        let made = create_new(place, &state.entries(&Past::of(&contents).forgotten())?);
        let head = match made {
            Err(error) if error.kind() == ErrorKind::Io => return Ok(()),
            made => made?,
        };
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| failed("beginning a change of the catalog", error))?;
        let mut change = Change::new(&transaction);
        change.set_meta(LOG, &head.to_text()?)?;
        change.write_seals()?;
        transaction.commit().map_err(|error| failed("committing a change of the catalog", error))?;
        self.log = Some(log::ChangeLog::open(place, &head, || Ok(()))?);
        Ok(())
    }
}

/// What the catalog says of its log.
pub(super) fn read_head(connection: &Connection) -> Result<Head> {
    Head::from_text(&meta(connection, LOG)?.unwrap_or_default())
}

/// Compares the rows with what the last change left: names, numbers and edit tokens are those of the log's last entry.
pub(super) fn compare(connection: &Connection, head: &Head) -> Result<()> {
    let (found, expected) = (digest(connection)?, head.entry()?.after);
    if found == expected {
        return Ok(());
    }
    Err(Error::corrupt(
        "the catalog's names, numbers or edit locks do not match its last change: `platter rebuild` restores them \
         from the change log",
    ))
}

impl<'a> Change<'a> {
    pub(super) fn new(transaction: &'a Transaction<'a>) -> Self {
        Self { transaction, seals: Seals::new(), log: None }
    }

    /// Ends the entry of what was changed; gives the head with it, which is then the catalog's.
    fn end_entry(&mut self, before: &Head, rows: Vec<RowChange>) -> Result<Head> {
        self.write_seals()?;
        let entry = Entry { rows, after: digest(self.transaction)? };
        let head = before.next(entry.to_text()?);
        self.set_meta(LOG, &head.to_text()?)?;
        Ok(head)
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
        self.put(&VERSIONS, version_row(&Version { name, record_id, record: record.clone() })?)?;
        Ok(true)
    }

    /// Whether there is a version of that name with that very record.
    pub(crate) fn has_version(&self, name: &VersionName, record_id: &BlockId) -> Result<bool> {
        let row = self.row(&VERSIONS, &[text(&name.image), number(name.number)])?;
        Ok(row.is_some_and(|row| row.text(4) == record_id.to_string()))
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

    /// Enters all rows of a state.
    pub(crate) fn enter(&mut self, state: &State) -> Result<()> {
        for (place, row) in state.rows() {
            let table = logged().nth(place).ok_or_else(|| Error::bug("a table that is none"))?;
            self.put(table, row)?;
        }
        Ok(())
    }

    /// All rows that the log tells of.
    pub(crate) fn state(&self) -> Result<State> {
        State::read(self.transaction)
    }

    pub(super) fn set_meta(&mut self, key: &str, value: &str) -> Result<()> {
        self.put(&META, vec![text(key), text(value)])
    }
}
