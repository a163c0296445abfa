//! Imports a version of another store: under the same name and number, with the same record.
//!
//! The data is added to the session before, as for a capture, and the version appears in the same commit that makes it part of
//! the store.

use platter_image::frame::Compressor;
use platter_image::{Error, Result};

use crate::catalog::{Change, refuse_impossible};
use crate::quota::Growth;
use crate::session::{RECORD_LEVEL, Session, encode_record};
use platter_records::{
    Action, Imported, SIGNATURES_MAX, Version, VersionName, VersionRecord, edit_lock_refusal,
};

impl Session {
    /// Returns what importing a version would do. Asked before its data is sent: a version that stays forgotten, or whose name another
    /// disk has, needs none.
    ///
    /// # Errors
    /// `Refused` as by [`Session::import`]; when the catalog cannot be read.
    pub fn foresee_import(&self, record: &VersionRecord, restore: bool) -> Result<Imported> {
        self.ask(|change| decide(change, record, restore))?
    }

    /// Imports a version, durable on return. A version that is here already only gets the signatures that it lacks. A version that
    /// was forgotten or renamed here stays so, unless `restore` is set. The session ends with the commit.
    ///
    /// # Errors
    /// `Missing` when a block of the recipe was not added; `Refused` when another disk has that name and number here, or the image
    /// is being edited; the session is then unchanged. After any other error the store accepts no more writes until it is opened
    /// again.
    pub fn import(&self, record: &VersionRecord, restore: bool) -> Result<Imported> {
        if let Some(number) = record.invalid_number() {
            return Err(Error::refused(format!(
                "{}: its record has the invalid number {number}",
                record.name()
            )));
        }
        refuse_impossible(record)?;
        let mut compressor = Compressor::new(RECORD_LEVEL)?;
        let (record_id, frame) = encode_record(record, &mut compressor)?;
        self.take_borrowed()?;
        self.hold_recipe(record.score)?;
        let version = Version { name: record.name(), record_id, record: record.clone() };
        self.within_quotas(Growth::Version(&record.image, record.score), |check| {
            self.commit(|change, state, session| {
                let imported = match decide(change, record, restore)? {
                    Ok(imported) => imported,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                match imported {
                    Imported::SignaturesAdded => {
                        if let Err(refusal) = add_signatures(change, &version)? {
                            return Ok(Err(refusal));
                        }
                    }
                    Imported::Added => {
                        if let Some(refusal) = check.refusal(change)? {
                            return Ok(Err(refusal));
                        }
                        if !state.is_empty() {
                            session.append_to(state, &frame)?;
                        }
                        change.add_version(record_id, record)?;
                        let (name, score) = (version.name.clone(), record.score.to_string());
                        change.does(Action::Import { version: name, score });
                    }
                    Imported::Present | Imported::Former => {}
                }
                Ok(Ok(imported))
            })
        })
    }
}

/// Decides what importing a version does. An inner error means refused.
fn decide(change: &Change<'_>, record: &VersionRecord, restore: bool) -> Result<Result<Imported>> {
    let name = &record.name();
    let conflict = || {
        Ok(Err(Error::refused(format!(
            "the store that gets it has another disk named {name}: rename that image in one of the stores"
        ))))
    };
    if let Some(here) = version_named(change, name)? {
        return match here.record.is_same_version(record) {
            false => conflict(),
            true if lacking(&here.record, record).is_empty() => Ok(Ok(Imported::Present)),
            true => Ok(Ok(Imported::SignaturesAdded)),
        };
    }
    if let Some(former) = change.former_record(name)? {
        if !former.is_same_version(record) {
            return conflict();
        }
        if !restore {
            return Ok(Ok(Imported::Former));
        }
    }
    Ok(match edit_lock_refusal(&name.image, None, change.edit_lock(&name.image)?.as_ref()) {
        Some(refusal) => Err(refusal),
        None => Ok(Imported::Added),
    })
}

fn version_named(change: &Change<'_>, name: &VersionName) -> Result<Option<Version>> {
    Ok(change.versions_below(&name.image)?.into_iter().find(|version| version.name == *name))
}

/// Returns the signatures that `here` lacks, as far as there is room for them.
fn lacking(here: &VersionRecord, other: &VersionRecord) -> Vec<platter_records::Signature> {
    let new = other.signatures.iter().filter(|signature| !here.signatures.contains(signature));
    new.take(SIGNATURES_MAX.saturating_sub(here.signatures.len())).cloned().collect()
}

/// An inner error means refused, before anything changed.
fn add_signatures(change: &mut Change<'_>, other: &Version) -> Result<Result<()>> {
    let Some(mut version) = version_named(change, &other.name)? else { return Ok(Ok(())) };
    let new = lacking(&version.record, &other.record);
    version.record.signatures.extend(new);
    if let Err(refusal) = version.record.encode() {
        return Ok(Err(refusal));
    }
    change.replace_record(&version)?;
    change.does(Action::Sign { version: other.name.clone() });
    Ok(Ok(()))
}
