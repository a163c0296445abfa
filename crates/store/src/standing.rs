//! What the store is among its copies, in its catalog. A follower, and a store that was replaced, refuse every change: each
//! transaction compares. What only cares for the data goes on: collection, healing, quarantine.

use platter_image::{Error, Result};
use platter_records::{Action, Standing, VersionName};

use crate::catalog::{Catalog, Change};
use crate::place::StorePlace;
use crate::session::Session;
use crate::store::Store;

/// A decided change of the standing.
#[derive(Clone, Debug)]
pub struct StandingChange {
    /// The new standing.
    pub standing: Standing,
    /// For the log.
    pub action: Action,
    /// Versions whose numbers are never assigned again although they did not arrive.
    pub used: Vec<VersionName>,
}

impl Store {
    /// Returns what the store is among its copies.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn standing(&self) -> Result<Standing> {
        self.catalog()?.standing()
    }

    /// Returns the error for changes if the store in a directory accepts none. Takes no lock.
    ///
    /// # Errors
    /// `Refused` when it follows an origin or was replaced; when the catalog cannot be read.
    pub fn refuse_changes(place: &StorePlace) -> Result<()> {
        Catalog::open_reader(place)?.standing()?.refusal().map_or(Ok(()), Err)
    }

    /// Changes the standing in the transaction that reads it. `decide` gets the present standing, and whether the store has had
    /// any version. Durable on return. `None` changes nothing. Returns the standing afterwards.
    ///
    /// # Errors
    /// The errors of `decide`, which leave the store usable; `Transient` when another process writes the store; `Io`.
    pub fn change_standing(
        &self,
        decide: impl FnOnce(&Standing, bool) -> Result<Option<StandingChange>>,
    ) -> Result<Standing> {
        self.change_locked(false, |change| {
            let present = change.standing()?;
            let is_new = change.last_numbers_are_empty()?;
            let decided = match decide(&present, is_new) {
                Ok(Some(decided)) => decided,
                Ok(None) => return Ok(Ok(present)),
                Err(refusal) => return Ok(Err(refusal)),
            };
            for name in &decided.used {
                change.raise_last_number(&name.image, name.number)?;
            }
            change.set_standing(&decided.standing)?;
            change.does(decided.action);
            Ok(Ok(decided.standing))
        })
    }

    /// Starts a session that adds data without a change of names: for healing, compaction and followers.
    ///
    /// # Errors
    /// As [`Store::session`].
    pub fn upkeep_session(&self) -> Result<Session> {
        self.any_session().map(Session::for_upkeep)
    }
}

/// Returns the error for a change of names that the store does not accept.
pub(crate) fn refusal(change: &Change<'_>) -> Result<Option<Error>> {
    Ok(change.standing()?.refusal())
}
