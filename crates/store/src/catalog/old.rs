//! The catalog that a rebuild replaces, as far as it can be read.

use std::collections::BTreeSet;

use platter_image::{Error, ErrorKind, IoContext, Result};
use rusqlite::OpenFlags;

use super::log::{Head, State, settle};
use super::{Catalog, Change, ChangeLogContents, connect, read_log, schema};
use crate::identity::PackId;
use crate::place::StorePlace;
use crate::token::Token;

/// What a rebuild can read of the catalog that it replaces.
#[derive(Debug, Default)]
pub(crate) struct OldCatalog {
    /// Its rows: all of them if it is sound, otherwise those that are right by their checksums.
    pub(crate) state: State,
    /// Whether it agrees with all its checksums.
    pub(crate) is_sound: bool,
    /// The packs that it knows.
    pub(crate) packs: BTreeSet<PackId>,
    /// The edit tokens of a sound one.
    pub(crate) tokens: Vec<Token>,
    head: Option<Head>,
}

/// What a rebuild can believe.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) old: OldCatalog,
    pub(crate) log: ChangeLogContents,
    /// The rows, if log or catalog proves them.
    pub(crate) proven: Option<State>,
    /// Whether the old catalog is as new as the log: packs that it does not know were left by interrupted sessions.
    pub(crate) knows_packs: bool,
}

impl Sources {
    /// Reads catalog and log. The lock is ours.
    ///
    /// # Errors
    /// `Io`; `Refused` when a newer Platter wrote one of them.
    pub(crate) fn read(place: &StorePlace) -> Result<Self> {
        let old = OldCatalog::read(place)?;
        if let Some(head) = &old.head {
            settle(place, head)?;
        }
        let log = read_log(place, old.head.as_ref())?;
        let replayed = State::replay(&log);
        let seals = log.entries.last().is_some_and(|last| last.after == replayed.digest());
        let is_whole = log.is_whole() && seals;
        // A sound catalog knows its log: another one says nothing of it.
        let head = old.head.as_ref().filter(|head| head.is_of(&log));
        let log_is_newer = head.is_some_and(|head| head.number() < log.last);
        let log_is_older = old.is_sound && head.is_none_or(|head| head.number() > log.last);
        let knows_packs = old.is_sound && !log_is_newer;
        let proven = match (is_whole && !log_is_older, knows_packs) {
            (true, _) => Some(replayed),
            (false, true) => Some(old.state.clone()),
            (false, false) => None,
        };
        Ok(Self { old, log, proven, knows_packs })
    }

    /// What the log's good entries come to.
    pub(crate) fn replayed(&self) -> State {
        State::replay(&self.log)
    }
}

impl Catalog {
    /// Whether the catalog that a rebuild was making is whole, and its log is there.
    ///
    /// # Errors
    /// `Corrupt` when not; `Io`.
    pub(crate) fn check_new(place: &StorePlace) -> Result<()> {
        let catalog = Self::open(place, &place.new_catalog())?;
        let head = catalog.head()?;
        settle(place, &head)?;
        let log = read_log(place, Some(&head))?;
        if head.is_of(&log) { Ok(()) } else { Err(Error::corrupt("the new catalog's log is gone")) }
    }
}

impl Change<'_> {
    /// Numbers go on after the highest ones of that state.
    pub(crate) fn raise_as(&mut self, state: &State) -> Result<()> {
        let (images, token) = state.last_numbers();
        images.iter().try_for_each(|(image, number)| self.raise_last_number(image, *number))?;
        self.raise_last_token(token)
    }
}

impl OldCatalog {
    /// Only a catalog that is not there, or is damaged, leaves the word to others: one that cannot be read now, or by this
    /// Platter, may know more than they do.
    fn read(place: &StorePlace) -> Result<Self> {
        let path = place.catalog();
        if !place.vfs().exists(&path).context(|| format!("looking for {}", path.display()))? {
            return Ok(Self::default());
        }
        let read = Catalog::open_reader(place).and_then(|catalog| {
            Ok(Self {
                state: State::read(&catalog.connection)?,
                is_sound: true,
                packs: catalog.packs()?.into_iter().map(|row| row.id).collect(),
                tokens: catalog.tokens()?,
                head: Some(catalog.head()?),
            })
        });
        read.or_else(|error| match error.kind() {
            ErrorKind::Corrupt => Self::read_damaged(place),
            ErrorKind::Refused => {
                let advice = "if no newer Platter ever wrote to this store, the number in its header is damaged: move \
                              it away and rebuild again";
                Err(error.within(advice))
            }
            _ => Err(error),
        })
    }

    /// Rows that are right by their checksums, of a catalog that is not.
    fn read_damaged(place: &StorePlace) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let read = connect(place, &place.catalog(), flags).and_then(|connection| {
            schema::check(&connection)?;
            State::read_sound(&connection)
        });
        match read {
            Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
            read => Ok(Self { state: read.unwrap_or_default(), ..Self::default() }),
        }
    }
}
