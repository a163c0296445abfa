//! The hoard as the origin reports and changes it, restricted to what a principal may read.
//!
//! A boot set contains the name that its version had when it was recorded. Where that name is hidden, the boot set is
//! hidden as well, even if the version has another name by now.

use platter_api::{UnregisterReply, UnregisterRequest};
use platter_image::{BlockId, Error, Kind, Result};
use platter_records::{
    Actor, BootSet, HoardChanges, HoardMember, HoardSnapshot, NumberChoice, Registered, VersionName,
};

use crate::access::Principal;
use crate::clock::unix_ms;
use crate::origin::{Origin, no_image};

fn may_read(who: &Principal, member: &HoardMember) -> bool {
    who.may_read(&member.version.image) && who.may_read(&member.record.version.image)
}

impl Origin {
    /// Returns the members of the hoard that the principal may read.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) fn hoard(&self, who: &Principal) -> Result<HoardSnapshot> {
        let mut hoard = self.store.hoard()?;
        hoard.members.retain(|member| may_read(who, member));
        Ok(hoard)
    }

    /// Returns the changes of the hoard since a revision.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) fn hoard_changes(&self, who: &Principal, epoch: &str, since: u64) -> Result<HoardChanges> {
        let mut changes = self.store.hoard_changes(epoch, since)?;
        changes.added.retain(|member| may_read(who, member));
        changes.gone.retain(|name| who.may_read(&name.image));
        Ok(changes)
    }

    /// Returns the serialized boot set.
    ///
    /// # Errors
    /// `Missing`, with the same text whether it does not exist or is hidden; `Corrupt`, `Io`.
    pub(crate) fn boot_set(&self, who: &Principal, id: &BlockId) -> Result<Vec<u8>> {
        let hoard = self.hoard(who)?;
        match hoard.members.iter().any(|member| member.boot_set == *id) {
            true => self.store.boot_set_bytes(id),
            false => Err(Error::missing(format!("there is no boot set {id}"))),
        }
    }

    /// Registers a boot set that was recorded elsewhere.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when it was recorded from another disk, or names blocks that
    /// the version's recipe does not contain; as `Store::register_boot_set`.
    pub(crate) fn record_boot_set(
        &self,
        name: &VersionName,
        set: &BootSet,
        by: &Actor,
    ) -> Result<Registered> {
        let version = self.store.version(&name.image, NumberChoice::Number(name.number));
        let version = version.map_err(|error| match error.to_string().contains('@') {
            true => error,
            false => no_image(&name.image),
        })?;
        if version.record.score != set.record.score {
            return Err(Error::refused(format!("{name} has another score than the boot set")));
        }
        let ids = self.id_sets.get(version.record.score, &self.store)?;
        let pages = set.pages.iter().map(|row| (Kind::Page, row.id));
        let mut all = pages.chain(set.blocks.iter().map(|row| (Kind::Data, row.id)));
        // This check comes before any lookup in the store, because the sender may not learn whether the store has other
        // blocks.
        if let Some((_, stranger)) = all.find(|(kind, id)| !ids.contains(*kind, id)) {
            return Err(Error::refused(format!(
                "the boot set contains {stranger}, which {name} does not have"
            )));
        }
        let registered =
            self.writer.lease()?.acting_as(by.clone()).register_boot_set(name, set, unix_ms())?;
        self.note_change();
        Ok(registered)
    }

    /// Removes boot sets from the hoard.
    ///
    /// # Errors
    /// As `Store::unregister_boot_set`.
    pub(crate) fn unregister_boot_set(
        &self,
        request: &UnregisterRequest,
        by: &Actor,
    ) -> Result<UnregisterReply> {
        let (revision, names) = self
            .writer
            .change(by, |store| store.unregister_boot_set(&request.image, request.number, unix_ms()))?;
        self.note_change();
        Ok(UnregisterReply { revision, unregistered: names.iter().map(ToString::to_string).collect() })
    }
}
