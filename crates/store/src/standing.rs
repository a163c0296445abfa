//! The role of a store among its copies, in its catalog. A follower and a replaced store refuse every change; each transaction
//! checks this. Collection, healing and quarantine only maintain the data, and go on.
//!
//! The file `standing.json` has a copy, for a rebuild without catalog and log: a store that was replaced must not become an origin
//! again. It is written after the commit, and lacks the position of a follower, which changes all the time, and lists of versions. When it is missing or
//! out of date, the next writer or check writes it again.

use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_records::{Action, Following, Standing, VersionName};
use platter_vfs::{read_whole, replace};

use crate::catalog::{Catalog, Change};
use crate::place::StorePlace;
use crate::session::Session;
use crate::store::Store;

const FILE: &str = "standing.json";
const FILE_LENGTH_MAX: u64 = 1 << 20;

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

    /// Returns the error for changes if the store in a directory accepts none. Takes no lock. Whoever then changes something verifies
    /// the catalog.
    ///
    /// # Errors
    /// `Refused` when it follows an origin or was replaced; when the catalog cannot be read.
    pub fn refuse_changes(place: &StorePlace) -> Result<()> {
        // First, because it says best what is wrong if there is no store.
        place.read_format()?;
        Catalog::open_unverified(place)?.standing()?.refusal().map_or(Ok(()), Err)
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
        let mut was = None;
        let standing = self.change_locked(false, |change| {
            let present = change.standing()?;
            was = Some(present.clone());
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
        })?;
        let kept = lasting(&standing);
        if was.is_some_and(|was| lasting(&was) != kept) {
            write_copy(self.place(), &kept)?;
        }
        Ok(standing)
    }

    /// Writes the copy of the standing again if it is missing or out of date.
    ///
    /// # Errors
    /// `Io`; when the catalog cannot be read.
    pub(crate) fn restore_standing_copy(&self) -> Result<()> {
        // A change meanwhile, which writes the copy itself, would be overwritten by the older standing. So look again.
        for _ in 0..2 {
            let standing = lasting(&self.standing()?);
            let copy = match read_copy(self.place()) {
                Err(error) if error.kind() == ErrorKind::Corrupt => None,
                read => read?,
            };
            if copy.unwrap_or_default() == standing {
                return Ok(());
            }
            write_copy(self.place(), &standing)?;
        }
        Ok(())
    }

    /// Starts a session that adds data without a change of names: for healing, compaction and followers.
    ///
    /// # Errors
    /// As [`Store::session`].
    pub fn upkeep_session(&self) -> Result<Session> {
        self.any_session().map(Session::for_upkeep)
    }
}

/// Returns the standing without what changes all the time, and without lists of versions, which have no limit.
fn lasting(standing: &Standing) -> Standing {
    let following = match standing.clone() {
        Standing::Follower(following) => following,
        Standing::Origin { epoch, address, former, promotion, conflicts, .. } => {
            let missing = Vec::new();
            return Standing::Origin { epoch, address, former, missing, promotion, conflicts };
        }
        replaced @ Standing::Replaced { .. } => return replaced,
    };
    Standing::Follower(Box::new(Following {
        position: None,
        last: 0,
        announced: Vec::new(),
        left_out: Vec::new(),
        ..*following
    }))
}

fn write_copy(place: &StorePlace, standing: &Standing) -> Result<()> {
    let path = place.dir().join(FILE);
    let text = serde_json::to_vec(standing)
        .map_err(|error| Error::bug("cannot serialize a standing").with_source(error))?;
    replace(place.vfs(), &path, &text).context(|| format!("writing {}", path.display()))
}

/// Returns the copy of the standing; `None` if there is none.
///
/// # Errors
/// `Corrupt` when it is invalid; `Io`.
pub(crate) fn read_copy(place: &StorePlace) -> Result<Option<Standing>> {
    let path = place.dir().join(FILE);
    let bytes = match read_whole(place.vfs(), &path, FILE_LENGTH_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(Error::corrupt(format!("{} is too long", path.display())).with_source(error));
        }
        read => read.context(|| format!("reading {}", path.display()))?,
    };
    let parse = |bytes: Vec<u8>| {
        serde_json::from_slice(&bytes).map_err(|error| {
            let what = format!("{} is invalid: remove it if this store is an origin", path.display());
            Error::corrupt(what).with_source(error)
        })
    };
    bytes.map(parse).transpose()
}

/// Returns the error for a change of names that the store does not accept.
pub(crate) fn refusal(change: &Change<'_>) -> Result<Option<Error>> {
    Ok(change.standing()?.refusal())
}
