//! Changes of names and edit tokens, each one commit of the catalog.

use platter_api::{
    CloneRequest, ForgetReport, ForgetRequest, RenameReport, RenameRequest, RenamedVersion,
    TakeEditTokenRequest,
};
use platter_image::{Error, ErrorKind, Result};
use platter_store::{ImageName, NumberChoice, Token, Version, VersionName, VersionRecord};

use crate::clock::unix_ms;
use crate::origin::Origin;

impl Origin {
    /// Makes a version the next one of another image; copies no data.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when the image exists, unless its next version is wanted, or is
    /// being edited; what the store says.
    pub(crate) fn clone_version(
        &self,
        image: &ImageName,
        choice: NumberChoice,
        request: CloneRequest,
    ) -> Result<Version> {
        let writer = self.writer.lease()?;
        let version = writer.version(image, choice)?;
        match writer.version(&request.to, NumberChoice::Latest) {
            Ok(newest) if !request.next => {
                return Err(Error::refused(format!(
                    "{} exists, its newest version is {}: clone to another name, or make the next version of it",
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
            token: request.token,
            time_unix_ms: unix_ms(),
            tool_version: request.tool_version.unwrap_or_else(|| self.tool_version.clone()),
            ..version.record
        };
        check_draft(&draft)?;
        // Somebody may have published the image since it was looked for.
        let expect = (!next).then_some(0);
        let published = writer.session()?.publish_after(draft, expect)?.version;
        self.metrics.versions_published.add(1);
        self.note_change();
        Ok(published)
    }

    /// Forgets versions.
    ///
    /// # Errors
    /// As `Store::forget`.
    pub(crate) fn forget(&self, request: &ForgetRequest) -> Result<ForgetReport> {
        let names = self.writer.change(|store| store.forget(&request.image, request.number))?;
        self.note_change();
        Ok(ForgetReport { forgotten: names.iter().map(VersionName::to_string).collect() })
    }

    /// Renames an image and those below it.
    ///
    /// # Errors
    /// As `Store::rename`; `Transient` when another process writes the store.
    pub(crate) fn rename(&self, request: &RenameRequest) -> Result<RenameReport> {
        let renamed = self.writer.lease()?.rename(&request.from, &request.to)?;
        self.note_change();
        let renamed = renamed.into_iter();
        Ok(RenameReport {
            renamed: renamed
                .map(|version| RenamedVersion { from: version.from.to_string(), to: version.to.to_string() })
                .collect(),
        })
    }

    /// Takes an edit token, or takes it over.
    ///
    /// # Errors
    /// As `Store::take_token` and `Store::steal_token`.
    pub(crate) fn take_edit_token(&self, request: &TakeEditTokenRequest) -> Result<Token> {
        let (image, holder, now) = (&request.image, request.holder.as_str(), unix_ms());
        let token = self.writer.change(|store| match request.steal {
            true => store.steal_token(image, holder, now),
            false => store.take_token(image, holder, now),
        })?;
        self.note_change();
        Ok(token)
    }

    /// Gives back the edit token of that number. Gives it as it was.
    ///
    /// # Errors
    /// `Missing` when nobody has the image's token; `Refused` when it has another number.
    pub(crate) fn release_edit_token(&self, image: &ImageName, number: u64) -> Result<Token> {
        let held = self.store.token(image)?;
        let held = held.ok_or_else(|| Error::missing(format!("nobody holds the edit lock of {image}")))?;
        let token = Token { number, ..held };
        self.writer.change(|store| store.release_token(&token))?;
        self.note_change();
        Ok(token)
    }
}

/// Refuses what no version record may say.
///
/// # Errors
/// `Refused`.
pub(crate) fn check_draft(draft: &VersionRecord) -> Result<()> {
    let numbers = [draft.token, draft.cloned_from.as_ref().map(|origin| origin.number)];
    match numbers.into_iter().flatten().find(|number| *number == 0 || *number > i64::MAX as u64) {
        Some(number) => Err(Error::refused(format!("{number} is no number of a token or version"))),
        None => Ok(()),
    }
}
