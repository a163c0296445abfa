//! Restores forgotten versions whose data is still in the store.

use platter_image::{Error, Result};

use crate::store::Store;
use platter_records::{Action, Version, VersionName, edit_lock_refusal};

impl Store {
    /// Returns the forgotten versions whose recipes are still in the store, ordered by image and number.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn forgotten(&self) -> Result<Vec<Version>> {
        let mut forgotten = self.catalog()?.forgotten()?;
        let here = forgotten.iter().map(|version| self.has(&version.record.score.0));
        let mut here = here.collect::<Result<Vec<bool>>>()?.into_iter();
        forgotten.retain(|_| here.next().unwrap_or(false));
        Ok(forgotten)
    }

    /// Returns the versions that were forgotten or renamed, under the names that they had.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn former(&self) -> Result<Vec<Version>> {
        self.catalog()?.former()
    }

    /// Restores forgotten versions under their names and numbers in one commit; all of them whose data is here if `names` is empty. Their
    /// boot sets do not return to the hoard.
    ///
    /// # Errors
    /// `Missing` when a version was not forgotten or its recipe is gone; `Refused` when its image is being edited, another version has
    /// its name, or the store was opened for reading; `Io`.
    pub fn resurrect(&self, names: &[VersionName]) -> Result<Vec<VersionName>> {
        let mut chosen = self.forgotten()?;
        let unknown = names.iter().find(|name| !chosen.iter().any(|version| version.name == **name));
        if let Some(unknown) = unknown {
            return Err(Error::missing(format!("{unknown} was not forgotten, or its data is gone")));
        }
        chosen.retain(|version| names.is_empty() || names.contains(&version.name));
        let session = self.session()?;
        let mut whole = Vec::new();
        for version in chosen {
            match session.hold_recipe(version.record.score) {
                Ok(()) => whole.push(version),
                // A collection kept a part of it, because others need that.
                Err(error) if names.is_empty() && error.is_damage() => {}
                Err(error) => return Err(error.within(format!("restoring {}", version.name))),
            }
        }
        session.commit(|change, _, _| {
            for Version { name, record_id, .. } in &whole {
                let is_taken = change.has_name(name)? && !change.has_version(name, record_id)?;
                if is_taken && !names.is_empty() {
                    let what = format!("another version has the name {name} now: rename its image first");
                    return Ok(Err(Error::refused(what)));
                }
                if let Some(refusal) =
                    edit_lock_refusal(&name.image, None, change.edit_lock(&name.image)?.as_ref())
                {
                    return Ok(Err(refusal));
                }
            }
            let mut back = Vec::new();
            for Version { name, record_id, record } in &whole {
                if change.add_version(*record_id, record)? {
                    back.push(name.clone());
                }
            }
            change.does(Action::Resurrect { versions: back.clone() });
            Ok(Ok(back))
        })
    }
}
