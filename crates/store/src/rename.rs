//! Renames images: writes version records with the new name into the catalog in one commit. Adds nothing to packs.
//!
//! Why no number ever means two disks: a version takes a number that was not used under the new name, or one that it had itself
//! under that name. A version that returns to its first name gets its first record, with the signatures that were added.

use platter_image::{BlockId, Error, Result};

use crate::catalog::{Change, Fate};
use crate::quota::{Growth, QuotaCheck};
use crate::store::Store;
use platter_records::{
    Action, ImageName, RenamedVersion, Version, VersionName, VersionRecord, edit_lock_refusal,
};

/// A version that was renamed.
pub type Renamed = RenamedVersion;

/// The planned rename of one version.
struct PlannedRename {
    from: VersionName,
    record_id: BlockId,
    record: VersionRecord,
}

impl Store {
    /// Renames an image and all images below it in one commit, durable on return. Scores, numbers and times stay the same, and
    /// protected versions stay protected. The `cloned_from` fields of other versions keep the old name.
    ///
    /// # Errors
    /// `Missing` when there is no image of that name or below it; `Refused` when the new name is invalid, exists, or was used for
    /// other versions with the same numbers, when one of the images is being edited, or when a quota of the new name is too low; `Transient` when another process holds
    /// the writer's lock for more than a few seconds; `Io`.
    pub fn rename(&self, from: &ImageName, to: &ImageName) -> Result<Vec<Renamed>> {
        if from == to || to.is_below(from) {
            return Err(Error::refused(format!(
                "{from} cannot be renamed to {to}: the new name is the same or below the old one"
            )));
        }
        self.within_quotas(self, Growth::Rename(from, to), &[], |check| {
            self.change_catalog(|change| rename(change, from, to, check))
        })
    }
}

/// Renames in a transaction. An inner error means refused.
fn rename(
    change: &mut Change<'_>,
    from: &ImageName,
    to: &ImageName,
    check: &QuotaCheck<'_>,
) -> Result<Result<Vec<Renamed>>> {
    let versions = change.versions_below(from)?;
    if versions.is_empty() {
        let what = format!("there is no image {from} and no image below it");
        return Ok(Err(Error::missing(what)));
    }
    let mut moves = Vec::with_capacity(versions.len());
    for version in versions {
        match move_of(change, version, from, to)? {
            Ok(planned) => moves.push(planned),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    if let Some(refusal) = check.refusal(change)? {
        return Ok(Err(refusal));
    }
    let mut renamed = Vec::with_capacity(moves.len());
    for PlannedRename { from, record_id, record } in moves {
        let is_protected = change.is_protected(&from)?;
        change.remove_version(&from, Fate::Renamed)?;
        if !change.add_version(record_id, &record)? {
            return Err(Error::bug(format!("{} already exists", record.name())));
        }
        change.set_protected(&record.name(), is_protected)?;
        // Forgotten versions under the old name have used numbers, too.
        change.raise_last_number(&record.image, change.last_number(&from.image)?)?;
        renamed.push(Renamed { from, to: record.name() });
    }
    let moved: Vec<_> =
        renamed.iter().map(|version| (version.from.clone(), Some(version.to.clone()))).collect();
    change.move_members(&moved)?;
    change.does(Action::Rename { versions: renamed.clone() });
    Ok(Ok(renamed))
}

/// Plans the rename of one version. An inner error means refused.
fn move_of(
    change: &Change<'_>,
    version: Version,
    from: &ImageName,
    to: &ImageName,
) -> Result<Result<PlannedRename>> {
    let old = version.name;
    let rest = old.image.as_str().get(from.as_str().len()..).unwrap_or_default();
    let image: ImageName = match format!("{to}{rest}").parse() {
        Ok(image) => image,
        Err(refusal) => return Ok(Err(refusal)),
    };
    for name in [&old.image, &image] {
        if let Some(refusal) = edit_lock_refusal(name, None, change.edit_lock(name)?.as_ref()) {
            return Ok(Err(refusal));
        }
    }
    if change.versions_below(&image)?.iter().any(|version| version.name.image == image) {
        return Ok(Err(Error::refused(format!("the image {image} already exists: rename it first"))));
    }
    let mut record = version.record;
    let first = record.renamed_from.take().unwrap_or_else(|| old.clone());
    record.renamed_from = (first.image != image).then_some(first);
    record.image = image;
    if let Err(refusal) = record.encode() {
        return Ok(Err(refusal));
    }
    let name = record.name();
    if record.number <= change.last_number(&record.image)? && !change.had_version(&record)? {
        return Ok(Err(Error::refused(format!(
            "the number of {name} was used by another version, and numbers are never used twice: choose an unused name, or clone"
        ))));
    }
    Ok(Ok(PlannedRename { from: old, record_id: version.record_id, record }))
}
