//! Changes of names and edit locks, each in one commit of the catalog.

use platter_api::{
    CloneRequest, ForgetReport, ForgetRequest, ProtectReport, ProtectRequest, RenameReport, RenameRequest,
    RenamedVersion, SignRequest, TakeEditLockRequest,
};
use platter_image::{Error, ErrorKind, Result};
use platter_records::{Actor, EditLock, ImageName, NumberChoice, Version, VersionName, VersionRecord};
use platter_store::Limit;

use crate::clock::unix_ms;
use crate::origin::Origin;

impl Origin {
    /// Publishes a version as the next version of another image. Copies no data.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when the image exists and `next` is not set, or the image is
    /// being edited; the store's errors.
    pub(crate) fn clone_version(
        &self,
        image: &ImageName,
        choice: NumberChoice,
        request: CloneRequest,
        limits: Vec<Limit>,
        by: &Actor,
    ) -> Result<Version> {
        let writer = self.writer.lease_for_change()?;
        let version = writer.version(image, choice)?;
        match writer.version(&request.to, NumberChoice::Latest) {
            Ok(newest) if !request.next => {
                return Err(Error::refused(format!(
                    "{} exists, its newest version is {}: clone to another name, or make the next version of it (`--next`)",
                    request.to, newest.name
                )));
            }
            Err(error) if error.kind() != ErrorKind::Missing => return Err(error),
            _ => {}
        }
        let next = request.next;
        let draft = VersionRecord {
            image: request.to,
            number: 0,
            parent: None,
            cloned_from: Some(version.name),
            renamed_from: None,
            edit_lock: request.edit_lock,
            time_unix_ms: unix_ms(),
            tool_version: request.tool_version.unwrap_or_else(|| self.tool_version.clone()),
            ..version.record
        };
        check_draft(&draft)?;
        // The image may have been published since the check above.
        let expect = (!next).then_some(0);
        let published =
            writer.acting_as(by.clone()).session()?.with_limits(limits).publish_after(draft, expect)?.version;
        self.metrics.versions_published.add(1);
        self.note_change();
        Ok(published)
    }

    /// Forgets versions.
    ///
    /// # Errors
    /// As `Store::forget`.
    pub(crate) fn forget(&self, request: &ForgetRequest, by: &Actor) -> Result<ForgetReport> {
        let names = self.writer.change(by, |store| store.forget(&request.image, request.number))?;
        self.note_change();
        Ok(ForgetReport { forgotten: names.iter().map(VersionName::to_string).collect() })
    }

    /// Protects versions, or ends that.
    ///
    /// # Errors
    /// As `Store::protect`.
    pub(crate) fn protect(&self, request: &ProtectRequest, by: &Actor) -> Result<ProtectReport> {
        let (image, number) = (&request.image, request.number);
        let names = self.writer.change(by, |store| store.protect(image, number, request.protect))?;
        self.note_change();
        Ok(ProtectReport { changed: names.iter().map(VersionName::to_string).collect() })
    }

    /// Renames an image and those below it.
    ///
    /// # Errors
    /// As `Store::rename`; `Transient` when another process writes the store.
    pub(crate) fn rename(&self, request: &RenameRequest, by: &Actor) -> Result<RenameReport> {
        let renamed = self.writer.change(by, |store| store.rename(&request.from, &request.to))?;
        self.note_change();
        let renamed = renamed.into_iter();
        Ok(RenameReport {
            renamed: renamed
                .map(|version| RenamedVersion { from: version.from.to_string(), to: version.to.to_string() })
                .collect(),
        })
    }

    /// Adds a signature to a version, unverified.
    ///
    /// # Errors
    /// As `Store::sign`.
    pub(crate) fn sign(&self, request: &SignRequest, by: &Actor) -> Result<Version> {
        let name = VersionName { image: request.image.clone(), number: request.number };
        let signed = self.writer.change(by, |store| store.sign(&name, &request.signature))?;
        self.note_change();
        Ok(signed)
    }

    /// Takes an edit lock, or takes it over.
    ///
    /// # Errors
    /// As `Store::take_edit_lock` and `Store::steal_edit_lock`.
    pub(crate) fn take_edit_lock(&self, request: &TakeEditLockRequest, by: &Actor) -> Result<EditLock> {
        let (image, holder, now) = (&request.image, request.holder.as_str(), unix_ms());
        let edit_lock = self.writer.change(by, |store| match request.steal {
            true => store.steal_edit_lock(image, holder, now),
            false => store.take_edit_lock(image, holder, now),
        })?;
        self.note_change();
        Ok(edit_lock)
    }

    /// Releases the edit lock with this number, and returns it.
    ///
    /// # Errors
    /// `Missing` when the image's edit lock is not held; `Refused` when it has another number.
    pub(crate) fn release_edit_lock(&self, image: &ImageName, number: u64, by: &Actor) -> Result<EditLock> {
        let held = self.store.edit_lock(image)?;
        let held = held.ok_or_else(|| Error::missing(format!("nobody holds the edit lock of {image}")))?;
        let edit_lock = EditLock { number, ..held };
        self.writer.change(by, |store| store.release_edit_lock(&edit_lock))?;
        self.note_change();
        Ok(edit_lock)
    }
}

/// Refuses numbers that no version record may contain.
///
/// # Errors
/// `Refused`.
pub(crate) fn check_draft(draft: &VersionRecord) -> Result<()> {
    let numbers = [draft.edit_lock, draft.cloned_from.as_ref().map(|origin| origin.number)];
    match numbers.into_iter().flatten().find(|number| *number == 0 || *number > i64::MAX as u64) {
        Some(number) => {
            Err(Error::refused(format!("{number} is not a valid number of an edit lock or version")))
        }
        None if draft.tool_version.len() > TOOL_VERSION_LENGTH_MAX => {
            let what = format!("`tool_version` has more than {TOOL_VERSION_LENGTH_MAX} bytes");
            Err(Error::refused(what))
        }
        None => Ok(()),
    }
}

/// Most bytes of the name and version of a client's program.
const TOOL_VERSION_LENGTH_MAX: usize = 200;
