//! The hoard as the origin reports and changes it, restricted to what a principal may read.
//!
//! A boot set contains the name that its version had when it was recorded. Where that name is hidden, the boot set is
//! hidden as well, even if the version has another name by now.
//!
//! Revision numbers count every change of the hoard, so they would tell a principal that reads some images about the
//! others. Such a principal gets a number made of its own members alone, which differs exactly when these have changed.

use std::fmt::Write as _;

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

/// All numbers of parts are at least this: they never equal the number of a whole hoard's revision.
const PART_REVISION_MIN: u64 = 1 << 52;

/// The hoard of a principal that reads some images.
fn readable_part(who: &Principal, hoard: HoardSnapshot) -> HoardSnapshot {
    let HoardSnapshot { epoch, mut members, .. } = hoard;
    members.retain(|member| may_read(who, member));
    if members.is_empty() {
        return HoardSnapshot::default();
    }
    let mut all = format!("{epoch}\n");
    for (member, at) in members.iter_mut().zip(1..) {
        member.added = at;
        let _ = writeln!(all, "{} {}", member.version, member.boot_set);
    }
    let hash = BlockId::of(Kind::Data, all.as_bytes()).0;
    let revision = u64::from_le_bytes(std::array::from_fn(|at| hash[at]));
    HoardSnapshot { epoch, revision: PART_REVISION_MIN | revision >> 12, members }
}

impl Origin {
    /// Returns the members of the hoard that the principal may read.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) fn hoard(&self, who: &Principal) -> Result<HoardSnapshot> {
        let hoard = self.store.hoard()?;
        Ok(if who.reads_everything() { hoard } else { readable_part(who, hoard) })
    }

    /// Returns the changes of the hoard since a revision.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) fn hoard_changes(&self, who: &Principal, epoch: &str, since: u64) -> Result<HoardChanges> {
        if who.reads_everything() {
            return self.store.hoard_changes(epoch, since);
        }
        let HoardSnapshot { epoch: own, revision, members } = self.hoard(who)?;
        let whole = (own.as_str(), revision) != (epoch, since);
        let added = if whole { members } else { Vec::new() };
        Ok(HoardChanges { epoch: own, revision, whole, added, gone: Vec::new() })
    }

    /// Returns the serialized boot set.
    ///
    /// # Errors
    /// `Missing`, with the same text whether it does not exist or is hidden; `Corrupt`, `Io`.
    pub(crate) fn boot_set(&self, who: &Principal, id: &BlockId) -> Result<Vec<u8>> {
        if who.reads_everything() {
            // Followers also need boot sets that were removed lately.
            return self.store.boot_set_bytes(id);
        }
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
        (who, by): (&Principal, &Actor),
        name: &VersionName,
        set: &BootSet,
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
            self.writer.lease_for_change()?.acting_as(by.clone()).register_boot_set(name, set, unix_ms())?;
        self.note_change();
        Ok(Registered { revision: self.hoard_revision(who, registered.revision)?, ..registered })
    }

    /// Removes boot sets from the hoard.
    ///
    /// # Errors
    /// As `Store::unregister_boot_set`.
    pub(crate) fn unregister_boot_set(
        &self,
        (who, by): (&Principal, &Actor),
        request: &UnregisterRequest,
    ) -> Result<UnregisterReply> {
        let (revision, names) = self
            .writer
            .change(by, |store| store.unregister_boot_set(&request.image, request.number, unix_ms()))?;
        self.note_change();
        let unregistered = names.iter().map(ToString::to_string).collect();
        Ok(UnregisterReply { revision: self.hoard_revision(who, revision)?, unregistered })
    }

    /// A revision of the whole hoard as the principal may know it.
    fn hoard_revision(&self, who: &Principal, revision: u64) -> Result<u64> {
        if who.reads_everything() { Ok(revision) } else { Ok(self.hoard(who)?.revision) }
    }
}

#[cfg(test)]
mod tests {
    use platter_api::Role;
    use platter_image::Score;
    use platter_records::BootSetRecord;

    use super::*;
    use crate::access::Patterns;

    fn member(image: &str, added: u64) -> HoardMember {
        let id = BlockId::of(Kind::Data, image.as_bytes());
        let version = VersionName { image: image.parse().unwrap(), number: 1 };
        let record = BootSetRecord {
            version: version.clone(),
            score: Score(id),
            marker: String::new(),
            command: String::new(),
            accelerator: String::new(),
            time_unix_ms: 0,
            duration_ms: 0,
            requests: 0,
            bytes_read: 0,
            pages: 0,
            blocks: 0,
            bytes: 0,
            tool_version: String::new(),
            boots: 0,
            nodes: Vec::new(),
        };
        HoardMember { version, boot_set: id, added, record }
    }

    #[test]
    fn a_part_tells_nothing_of_the_rest() {
        let patterns = Patterns(vec!["lab/*".parse().unwrap()]);
        let who =
            Principal { id: "t".into(), name: "t".into(), role: Role::Read, patterns, quota_bytes: None };
        let part = |revision, members: &[(&str, u64)]| {
            let members = members.iter().map(|(image, added)| member(image, *added)).collect();
            readable_part(&who, HoardSnapshot { epoch: "e".into(), revision, members })
        };
        let alone = part(1, &[("lab/a", 1)]);
        let beside_others = part(9, &[("other/a", 2), ("lab/a", 7), ("other/b", 9)]);
        assert_eq!(alone, beside_others);
        assert!(alone.revision >= PART_REVISION_MIN && alone.revision < 1 << 53, "JSON keeps it");
        let more = part(10, &[("lab/a", 7), ("lab/b", 10)]);
        assert_ne!(more.revision, alone.revision);
        assert_eq!(part(11, &[("lab/a", 7)]), alone, "it is as before");
        assert_eq!(part(3, &[("other/a", 1)]), HoardSnapshot::default(), "as if there were none");
    }
}
