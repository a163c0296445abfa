//! Changes of the catalog. Each change is one transaction.

use platter_image::{BlockId, Error, ErrorKind, Result};
use rusqlite::types::Value;
use rusqlite::{Connection, ToSql, Transaction, TransactionBehavior, params_from_iter};

use super::audit::ChangedSums;
use super::log::{Beginning, Entry, Head, State, create_new};
use super::query::{LOST_NUMBERS, meta};
use super::row::{Cell, RowChange};
use super::table::{
    IMAGES, LOG, META, PACKED, PACKS, Row, SEALED, SEALS, Seal, Seals, Table, VERSIONS, digest, number, read,
    read_seal, text, version_row,
};
use super::{Catalog, ChangePosition, PackRow, PackState, failed, log};
use crate::clock::now_unix_ms;
use crate::pack_writer::SealedPack;
use crate::place::StorePlace;
use platter_records::{
    Action, Actor, ChangeRecord, ImageName, PackChange, Parent, Version, VersionName, VersionRecord,
};

/// The register that decides which change comes next. A catalog that several machines share needs another register, and the
/// same entries and rows.
pub(crate) trait Register {
    /// Returns the head of the log: its last entry.
    fn read(&self) -> Result<Head>;

    /// Makes `next` the head if the head is still `before`. Returns whether it was.
    fn swap(&mut self, before: &Head, next: &Head) -> Result<bool>;
}

/// A change that is not yet committed.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(super) transaction: &'a Transaction<'a>,
    /// Seals of the tables that were changed.
    pub(super) seals: Seals,
    /// Rows for the log's next entry; `None` while a catalog is created.
    pub(super) log: Option<Vec<RowChange>>,
    /// What the change does, for the log's next entry.
    action: Option<Action>,
    time_unix_ms: i64,
    /// The set sums, once a pack was changed.
    pub(super) set_sums: Option<ChangedSums>,
}

impl Catalog {
    /// Runs `change` and commits it as a change by `by`; the commit is durable on return. `change` says what it does with
    /// [`Change::does`]. An error leaves the catalog unchanged, except an error of the commit itself: the result is then unknown.
    pub(crate) fn change<T>(
        &mut self,
        by: &Actor,
        change: impl FnOnce(&mut Change<'_>) -> Result<T>,
    ) -> Result<T> {
        // Immediate: what the transaction reads stays valid until it commits.
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| failed("starting a change of the catalog", error))?;
        let before = read_head(&transaction)?;
        compare(&transaction, &before)?;
        let mut under_way = Change::new(&transaction);
        under_way.log = Some(Vec::new());
        let done = change(&mut under_way)?;
        under_way.write_set_sums()?;
        let rows = under_way.log.take().unwrap_or_default();
        let head = if rows.is_empty() { None } else { Some(under_way.end_entry(&before, by, rows)?) };
        under_way.write_seals()?;
        let entry = match (&self.log, &head) {
            (Some(log), Some(head)) => Some((log, head)),
            (None, Some(_)) => return Err(Error::bug("the catalog was opened for reading only")),
            (_, None) => None,
        };
        // Reserved before the commit, so that a full disk fails the change while nothing is committed.
        entry.map_or(Ok(()), |(log, head)| log.reserve(head))?;
        transaction.commit().map_err(|error| failed("committing a change of the catalog", error))?;
        entry.map_or(Ok(()), |(log, head)| log.append(head))?;
        Ok(done)
    }

    /// Writes an unchanged row. After a failed sync, the cache may hold a commit that is not on the disk. When this returns,
    /// everything that was read from the catalog is on the disk.
    pub(super) fn write_again(&self) -> Result<()> {
        let written = self.connection.execute("UPDATE meta SET value = value WHERE key = ?1", [LOG]);
        written.map(drop).map_err(|error| failed("writing the catalog's last change again", error))
    }

    /// Returns what the catalog records about its log.
    pub(crate) fn head(&self) -> Result<Head> {
        read_head(&self.connection)
    }

    /// Replaces a long log by one that begins with a copy of all rows. If there is no space for it, keeps the long one.
    pub(super) fn shorten_log(&mut self, place: &StorePlace) -> Result<()> {
        let head = self.head()?;
        if !head.is_long(place.long_log()) {
            return Ok(());
        }
        let contents = log::read(place, Some(&head))?;
        if !contents.is_whole() {
            // Its history must not get lost. `check` reports the damage.
            return Ok(());
        }
        let state = State::read(&self.connection)?;
        let beginning = Beginning {
            last: (head.number(), head.hash()),
            by: Actor::clone(place.actor()),
            time_unix_ms: now_unix_ms(),
            action: Action::Snapshot {},
        };
        let made = create_new(place, &state, &beginning);
        let head = match made {
            Err(error) if error.kind() == ErrorKind::Io => return Ok(()),
            made => made?,
        };
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| failed("starting a change of the catalog", error))?;
        let mut change = Change::new(&transaction);
        change.set_meta(LOG, &head.to_text()?)?;
        change.write_seals()?;
        transaction.commit().map_err(|error| failed("committing a change of the catalog", error))?;
        self.log = Some(log::ChangeLog::open(place, &head, || Ok(()))?);
        Ok(())
    }
}

/// Returns what the catalog records about its log.
pub(super) fn read_head(connection: &Connection) -> Result<Head> {
    Head::from_text(&meta(connection, LOG)?.unwrap_or_default())
}

/// Compares the catalog's names, numbers and edit locks with the digest in the log's last entry.
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
        let (seals, time_unix_ms) = (Seals::new(), now_unix_ms());
        Self { transaction, seals, log: None, action: None, time_unix_ms, set_sums: None }
    }

    /// Completes the log entry of this change. Stores the new head in the catalog and returns it.
    fn end_entry(&mut self, before: &Head, by: &Actor, rows: Vec<RowChange>) -> Result<Head> {
        self.write_seals()?;
        let action = self.action.take();
        let action = action.ok_or_else(|| Error::bug("a change of the catalog does not say what it does"))?;
        let (number, time_unix_ms) = (before.number() + 1, self.time_unix_ms);
        let change = ChangeRecord { number, time_unix_ms, by: by.clone(), action };
        let entry = Entry {
            hash: String::new(),
            before: before.hash(),
            change,
            rows,
            after: digest(self.transaction)?,
        };
        let head = before.next(entry.to_text()?);
        if self.swap(before, &head)? {
            Ok(head)
        } else {
            Err(Error::bug("the log's head changed during a transaction"))
        }
    }

    /// Sets what this change does. The last call counts.
    pub(crate) fn does(&mut self, action: Action) {
        self.action = Some(action);
    }

    /// Sets what this change does, unless that is set already.
    pub(crate) fn does_by_default(&mut self, action: Action) {
        self.action.get_or_insert(action);
    }

    /// Returns the time of this change.
    pub(crate) fn time_unix_ms(&self) -> i64 {
        self.time_unix_ms
    }

    /// Changes the states of packs. Packs that the catalog does not list are an error.
    ///
    /// Change records in packs keep no pack: when packs are given up, the next session that writes a pack adds all entries of the
    /// present log again.
    pub(crate) fn set_pack_states(&mut self, changes: &[PackChange]) -> Result<()> {
        changes.iter().try_for_each(|change| self.set_pack_state(change))?;
        if changes.iter().any(|change| matches!(change.state, PackState::Condemned | PackState::Dead)) {
            self.remove(&META, &[text(PACKED)])?;
        }
        self.does(Action::PackStates { packs: changes.to_vec() });
        Ok(())
    }

    /// Lists a pack in that state.
    pub(crate) fn put_pack(&mut self, row: &PackRow) -> Result<()> {
        let old = self.row(&PACKS, &[text(row.id)])?;
        let old = old.map(|old| PackRow::parse(&old.values)).transpose()?;
        self.sum_added(old.as_ref(), row)?;
        let numbers = [row.epoch, row.length, row.frames, row.blocks].map(number);
        self.put(&PACKS, [text(row.id), text(row.state.as_str())].into_iter().chain(numbers).collect())
    }

    /// Returns the number of an image's next version, and the version before it.
    ///
    /// # Errors
    /// `Corrupt` when a version has a higher number than the image's highest recorded number.
    pub(crate) fn next_number(&self, image: &ImageName) -> Result<(u64, Option<Parent>)> {
        let last = self.last_number(image)?;
        let newest = self.newest_version(image)?;
        if let Some(newest) = newest.as_ref().filter(|newest| newest.name.number > last) {
            return Err(Error::corrupt(format!(
                "there is {}, but the catalog says that the highest number of {image} is {last}: `platter rebuild` \
                 recreates the catalog",
                newest.name
            )));
        }
        let parent = newest.map(|newest| Parent { number: newest.name.number, score: newest.record.score });
        // A pack that is away may have versions of an image of which none is known.
        let used = if self.was_lost()? { last.max(LOST_NUMBERS) } else { last };
        Ok((used + 1, parent))
    }

    /// Lists a sealed pack as live.
    pub(crate) fn add_live_pack(&mut self, pack: &SealedPack) -> Result<()> {
        self.put_pack(&PackRow::live(pack))
    }

    /// Enters a version. Returns false if a version of that name exists: a number stays with its first version. Numbers of
    /// versions and edit locks in the record are never assigned again.
    pub(crate) fn add_version(&mut self, record_id: BlockId, record: &VersionRecord) -> Result<bool> {
        let name = record.name();
        if i64::try_from(record.number).is_err() {
            return Err(Error::corrupt(format!("version {name}: its number is too high")));
        }
        self.raise_last_number(&name.image, record.number)?;
        record.edit_lock.map_or(Ok(()), |edit_lock| self.raise_last_edit_lock(edit_lock))?;
        let key = [text(&name.image), number(name.number)];
        if self.row(&VERSIONS, &key)?.is_some() {
            return Ok(false);
        }
        if self.had_version(record)? {
            self.drop_former(&name)?;
        }
        self.put(&VERSIONS, version_row(&Version { name, record_id, record: record.clone() })?)?;
        Ok(true)
    }

    /// Replaces the record of a version.
    pub(crate) fn replace_record(&mut self, version: &Version) -> Result<()> {
        self.put(&VERSIONS, version_row(version)?)
    }

    /// Returns whether a version of that name exists.
    pub(crate) fn has_name(&self, name: &VersionName) -> Result<bool> {
        Ok(self.row(&VERSIONS, &[text(&name.image), number(name.number)])?.is_some())
    }

    /// Returns whether a version of that name exists and has exactly that record.
    pub(crate) fn has_version(&self, name: &VersionName, record_id: &BlockId) -> Result<bool> {
        let row = self.row(&VERSIONS, &[text(&name.image), number(name.number)])?;
        Ok(row.is_some_and(|row| row.text(4) == record_id.to_string()))
    }

    /// Makes sure that the next version of an image gets a number higher than `last`.
    pub(crate) fn raise_last_number(&mut self, image: &ImageName, last: u64) -> Result<()> {
        if i64::try_from(last).is_err() {
            return Err(Error::corrupt(format!("image {image}: its last number is too high")));
        }
        let last = last.max(self.last_number(image)?);
        self.put(&IMAGES, vec![text(image), number(last)])
    }

    /// Enters all rows of a state.
    pub(crate) fn enter(&mut self, state: &State) -> Result<()> {
        for (place, row) in state.rows() {
            self.put(SEALED[place], row)?;
        }
        Ok(())
    }

    /// Returns all rows that the log covers.
    pub(crate) fn state(&self) -> Result<State> {
        State::read(self.transaction)
    }

    /// Returns the position in the log up to which packs have its entries.
    pub(crate) fn packed(&self) -> Result<Option<ChangePosition>> {
        // An invalid position only means that entries are packed again.
        Ok(meta(self.transaction, PACKED)?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Sets the position in the log up to which packs have its entries.
    pub(crate) fn set_packed(&mut self, position: &ChangePosition) -> Result<()> {
        let text = serde_json::to_string(position)
            .map_err(|error| Error::bug("cannot serialize a position in the log").with_source(error))?;
        self.set_meta(PACKED, &text)
    }

    pub(super) fn set_meta(&mut self, key: &str, value: &str) -> Result<()> {
        self.put(&META, vec![text(key), text(value)])
    }
}

impl Change<'_> {
    /// Returns the row with that primary key.
    pub(super) fn row(&self, table: &Table, key: &[Value]) -> Result<Option<Row>> {
        let key: Vec<&dyn ToSql> = key.iter().map(|value| value as &dyn ToSql).collect();
        Ok(read(self.transaction, table, &table.where_key(), &key)?.into_iter().next())
    }

    /// Inserts a row, or replaces the row with the same primary key.
    pub(super) fn put(&mut self, table: &'static Table, values: Vec<Value>) -> Result<()> {
        let old = self.row(table, &values[..table.keys])?;
        if old.as_ref().is_some_and(|old| old.values == values) {
            return Ok(());
        }
        self.remove_row(table, old)?;
        self.sum_row(table, &values, true)?;
        self.note(table, &values, true);
        let row = Row { checksum: table.checksum(&values), values };
        let marks: Vec<String> = (0..=row.values.len()).map(|number| format!("?{}", number + 1)).collect();
        let sql = format!("INSERT INTO {} VALUES ({})", table.name, marks.join(", "));
        let sum = Value::Integer(row.checksum);
        let inserted = self
            .transaction
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.execute(params_from_iter(row.values.iter().chain([&sum]))))
            .map_err(|error| failed(&format!("inserting a row into {} of the catalog", table.name), error))?;
        if inserted != 1 {
            return Err(Error::corrupt(format!("a row was not inserted into {} of the catalog", table.name)));
        }
        self.seal(table)?.add(&row);
        Ok(())
    }

    /// Removes the row with that primary key, if it exists.
    pub(super) fn remove(&mut self, table: &'static Table, key: &[Value]) -> Result<()> {
        let old = self.row(table, key)?;
        if old.is_some() {
            self.note(table, key, false);
        }
        self.remove_row(table, old)
    }

    fn remove_row(&mut self, table: &'static Table, old: Option<Row>) -> Result<()> {
        let Some(old) = old else { return Ok(()) };
        self.sum_row(table, &old.values, false)?;
        let sql = format!("DELETE FROM {} {}", table.name, table.where_key());
        let removed = self
            .transaction
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.execute(params_from_iter(&old.values[..table.keys])))
            .map_err(|error| failed(&format!("removing a row of {} from the catalog", table.name), error))?;
        if removed != 1 {
            return Err(Error::corrupt(format!(
                "{removed} rows of {} were removed instead of one",
                table.name
            )));
        }
        self.seal(table)?.remove(&old);
        Ok(())
    }

    /// Records a change for the log.
    fn note(&mut self, table: &'static Table, values: &[Value], is_put: bool) {
        let cells: Vec<Cell> = values.iter().map(Cell::from).collect();
        let Some(log) = self.log.as_mut().filter(|_| !table.is_own(&cells)) else { return };
        let (put, gone) = if is_put { (cells, Vec::new()) } else { (Vec::new(), cells) };
        log.push(RowChange { table: table.name.to_owned(), put, gone });
    }

    fn seal(&mut self, table: &'static Table) -> Result<&mut Seal> {
        if !self.seals.contains_key(table.name) {
            self.seals.insert(table.name, read_seal(self.transaction, table)?);
        }
        Ok(self.seals.entry(table.name).or_default())
    }

    /// Writes the seals of the changed tables. This must be the last step before the commit.
    pub(super) fn write_seals(&mut self) -> Result<()> {
        for (name, seal) in std::mem::take(&mut self.seals) {
            let values =
                vec![Value::Text(name.into()), Value::Integer(seal.rows), Value::Integer(seal.total)];
            let checksum = SEALS.checksum(&values);
            self.transaction
                .execute(
                    "INSERT OR REPLACE INTO seals VALUES (?1, ?2, ?3, ?4)",
                    (name, seal.rows, seal.total, checksum),
                )
                .map_err(|error| failed(&format!("sealing {name} in the catalog"), error))?;
        }
        Ok(())
    }
}

impl Register for Change<'_> {
    fn read(&self) -> Result<Head> {
        read_head(self.transaction)
    }

    fn swap(&mut self, before: &Head, next: &Head) -> Result<bool> {
        if self.read()? != *before {
            return Ok(false);
        }
        self.set_meta(LOG, &next.to_text()?)?;
        Ok(true)
    }
}
