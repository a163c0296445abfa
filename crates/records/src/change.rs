//! What the catalog's log says about each change: its number, who made it, when, from where, and what was done.
//!
//! The store writes these into its log, together with the rows that the change wrote (`docs/formats/change-log.md`). The audit
//! log, the origin's events and followers read them. Nothing here decides anything: applying a record uses its rows only.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identity::PackId;
use crate::name::{ImageName, VersionName};
use crate::pack_state::PackState;

/// Maximum length in bytes of each text of an [`Actor`].
pub const ACTOR_LENGTH_MAX: usize = 255;

/// Who makes changes, and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// A local user and host, such as `root@node3`, or the name of an access token; empty if unknown.
    pub who: String,
    /// A network address, or `local`; empty if unknown.
    pub from: String,
}

impl Actor {
    /// An actor with these texts, cut to the maximum length.
    pub fn new(who: &str, from: &str) -> Self {
        let cut = |text: &str| {
            let mut ends = (0..=text.len().min(ACTOR_LENGTH_MAX)).rev();
            let end = ends.find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text[..end].to_owned()
        };
        Self { who: cut(who), from: cut(from) }
    }
}

/// One change of a catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeRecord {
    /// Number of the change, from 1, without gaps.
    pub number: u64,
    /// When the change was made, by the clock of the machine that made it: milliseconds since 1970 UTC. Only displayed.
    pub time_unix_ms: i64,
    /// Who made it, and from where.
    #[serde(flatten)]
    pub by: Actor,
    /// What was done.
    #[serde(flatten)]
    pub action: Action,
}

/// The changes of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The changes, ordered by number.
    pub changes: Vec<ChangeRecord>,
    /// Number of the store's last change.
    pub last: u64,
    /// Whether the logs are undamaged where they were read. If not, changes may be missing.
    pub is_whole: bool,
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// The store was created.
    Init {},
    /// The catalog was recreated by `platter rebuild`.
    Rebuild {},
    /// A copy of all rows, so that later readers need no earlier records.
    Snapshot {},
    /// A version was published.
    Publish {
        /// Its name.
        version: VersionName,
        /// Its score.
        score: String,
        /// Number of the edit lock under which it was published.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lock: Option<u64>,
        /// The version of which it is a clone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cloned_from: Option<VersionName>,
    },
    /// A version of another store was imported.
    Import {
        /// Its name, the same as there.
        version: VersionName,
        /// Its score.
        score: String,
    },
    /// Packs without a new version became part of the store.
    AddPacks {
        /// Their number.
        packs: u64,
    },
    /// Publications that a crash interrupted were completed.
    Salvage {
        /// The versions.
        versions: Vec<VersionName>,
    },
    /// Versions were forgotten.
    Forget {
        /// The versions.
        versions: Vec<VersionName>,
    },
    /// Forgotten versions were restored.
    Resurrect {
        /// The versions.
        versions: Vec<VersionName>,
    },
    /// Versions got other names.
    Rename {
        /// Old and new names.
        versions: Vec<RenamedVersion>,
    },
    /// An edit lock was taken.
    TakeLock {
        /// The image.
        image: ImageName,
        /// The lock's number.
        lock: u64,
        /// Its holder.
        holder: String,
        /// Whether it was taken over from another holder.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stolen: bool,
    },
    /// The overlay of an edit lock was recorded.
    SetOverlay {
        /// The image.
        image: ImageName,
        /// The lock's number.
        lock: u64,
    },
    /// An edit lock was released.
    ReleaseLock {
        /// The image.
        image: ImageName,
        /// The lock's number.
        lock: u64,
    },
    /// A version got a boot set.
    RegisterBootSet {
        /// The version.
        version: VersionName,
        /// The hoard's new revision.
        revision: u64,
    },
    /// Boot sets were removed from the hoard.
    UnregisterBootSets {
        /// Their versions.
        versions: Vec<VersionName>,
        /// The hoard's new revision.
        revision: u64,
    },
    /// The hoard's daily work ran.
    HoardDaily {
        /// Number of days counted so far.
        day: u64,
        /// The versions whose boot sets were removed.
        versions: Vec<VersionName>,
    },
    /// Recording the boots of an image's new versions was started or ended.
    FollowBoots {
        /// The image.
        image: ImageName,
        /// Whether boots are recorded from now on.
        follow: bool,
    },
    /// Packs changed their states.
    PackStates {
        /// The packs and their new states.
        packs: Vec<PackChange>,
    },
    /// Versions were protected: they cannot be forgotten.
    Protect {
        /// The versions.
        versions: Vec<VersionName>,
    },
    /// Versions lost their protection.
    Unprotect {
        /// The versions.
        versions: Vec<VersionName>,
    },
    /// The quota of an image and all images below it was set or removed.
    SetQuota {
        /// The image.
        prefix: ImageName,
        /// The new limit; none if it was removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit_bytes: Option<u64>,
    },
    /// A version got a signature.
    Sign {
        /// The version.
        version: VersionName,
    },
    /// The store became a follower.
    BecomeFollower {
        /// Id of the origin.
        of: String,
    },
    /// A follower applied changes of its origin.
    Follow {
        /// Number of the origin's last change that was applied; 0 during the first copy.
        up_to: u64,
        /// The versions that can be read now.
        versions: Vec<VersionName>,
        /// The origin's changes, except for those of a first copy.
        changes: Vec<ChangeRecord>,
    },
    /// What a follower or former origin knows of others was recorded.
    NoteStanding {},
    /// A follower became the origin.
    Promote {
        /// The new epoch.
        epoch: u64,
    },
    /// A follower of this store became the origin.
    Replaced {
        /// Its epoch.
        epoch: u64,
        /// The id of its store.
        by: String,
    },
}

/// The new name of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenamedVersion {
    /// Its previous name.
    pub from: VersionName,
    /// Its new name.
    pub to: VersionName,
}

/// The new state of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackChange {
    /// The pack.
    #[schemars(schema_with = "crate::schema::short_id")]
    pub pack: PackId,
    /// Its new state.
    pub state: PackState,
    /// Number of the collection that condemned it; 0 if none did.
    pub epoch: u64,
}

impl Action {
    /// Returns the names of the images that it is about. Empty for actions on the whole store.
    pub fn images(&self) -> Vec<&ImageName> {
        match self {
            Self::Init {} | Self::Rebuild {} | Self::Snapshot {} => Vec::new(),
            Self::AddPacks { .. } | Self::PackStates { .. } => Vec::new(),
            Self::BecomeFollower { .. }
            | Self::NoteStanding {}
            | Self::Promote { .. }
            | Self::Replaced { .. } => Vec::new(),
            Self::Follow { versions, changes, .. } => {
                let of_changes = changes.iter().flat_map(|change| change.action.images());
                versions.iter().map(|name| &name.image).chain(of_changes).collect()
            }
            Self::Publish { version, cloned_from, .. } => {
                [Some(version), cloned_from.as_ref()].into_iter().flatten().map(|name| &name.image).collect()
            }
            Self::RegisterBootSet { version, .. } | Self::Sign { version } | Self::Import { version, .. } => {
                vec![&version.image]
            }
            Self::Salvage { versions }
            | Self::Forget { versions }
            | Self::Resurrect { versions }
            | Self::UnregisterBootSets { versions, .. }
            | Self::HoardDaily { versions, .. }
            | Self::Protect { versions }
            | Self::Unprotect { versions } => versions.iter().map(|name| &name.image).collect(),
            Self::Rename { versions } => {
                versions.iter().flat_map(|renamed| [&renamed.from.image, &renamed.to.image]).collect()
            }
            Self::TakeLock { image, .. }
            | Self::SetOverlay { image, .. }
            | Self::ReleaseLock { image, .. }
            | Self::FollowBoots { image, .. } => vec![image],
            Self::SetQuota { prefix, .. } => vec![prefix],
        }
    }

    /// Returns the action without the names of images that may not be seen, and without numbers that count the changes of all
    /// images; `None` when nothing of it may be seen.
    pub fn visible(&self, may_see: &dyn Fn(&ImageName) -> bool) -> Option<Self> {
        let mut seen = self.clone();
        match &mut seen {
            Self::Publish { cloned_from, .. } => {
                *cloned_from = cloned_from.take().filter(|name| may_see(&name.image));
            }
            Self::Salvage { versions }
            | Self::Forget { versions }
            | Self::Resurrect { versions }
            | Self::HoardDaily { versions, .. }
            | Self::Protect { versions }
            | Self::Unprotect { versions } => versions.retain(|name| may_see(&name.image)),
            Self::RegisterBootSet { revision, .. } => *revision = 0,
            Self::UnregisterBootSets { versions, revision } => {
                versions.retain(|name| may_see(&name.image));
                *revision = 0;
            }
            Self::Follow { versions, changes, up_to } => {
                *up_to = 0;
                versions.retain(|name| may_see(&name.image));
                let seen = changes.drain(..).filter_map(|change| {
                    let action = change.action.visible(may_see)?;
                    Some(ChangeRecord { action, number: 0, ..change })
                });
                *changes = seen.collect();
            }
            Self::Rename { versions } => {
                versions.retain(|renamed| may_see(&renamed.from.image) && may_see(&renamed.to.image));
            }
            _ => {}
        }
        let images = seen.images();
        (!images.is_empty() && images.into_iter().all(may_see)).then_some(seen)
    }
}

fn list(f: &mut fmt::Formatter<'_>, verb: &str, names: &[VersionName]) -> fmt::Result {
    f.write_str(verb)?;
    names.iter().try_for_each(|name| write!(f, " {name}"))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Init {} => f.write_str("init"),
            Self::Rebuild {} => f.write_str("rebuild"),
            Self::Snapshot {} => f.write_str("snapshot"),
            Self::Publish { version, cloned_from: Some(source), .. } => {
                write!(f, "clone {source} to {version}")
            }
            Self::Publish { version, lock: Some(lock), .. } => {
                write!(f, "publish {version} under lock {lock}")
            }
            Self::Publish { version, .. } => write!(f, "publish {version}"),
            Self::Import { version, .. } => write!(f, "import {version}"),
            Self::AddPacks { packs } => write!(f, "add packs: {packs}"),
            Self::Salvage { versions } => list(f, "complete interrupted publication of", versions),
            Self::Forget { versions } => list(f, "forget", versions),
            Self::Resurrect { versions } => list(f, "resurrect", versions),
            Self::Rename { versions } => {
                f.write_str("rename")?;
                versions.iter().try_for_each(|renamed| write!(f, " {} to {}", renamed.from, renamed.to))
            }
            Self::TakeLock { image, lock, holder, stolen } => {
                let verb = if *stolen { "steal" } else { "take" };
                write!(f, "{verb} lock {lock} of {image} for {holder}")
            }
            Self::SetOverlay { image, lock } => write!(f, "set overlay of lock {lock} of {image}"),
            Self::ReleaseLock { image, lock } => write!(f, "release lock {lock} of {image}"),
            Self::RegisterBootSet { version, revision } => {
                write!(f, "register boot set of {version} in hoard revision {revision}")
            }
            Self::UnregisterBootSets { versions, .. } => list(f, "unregister boot sets of", versions),
            Self::HoardDaily { day, versions } => {
                write!(f, "count hoard day {day}")?;
                if versions.is_empty() { Ok(()) } else { list(f, ", remove boot sets of", versions) }
            }
            Self::FollowBoots { image, follow } => {
                write!(f, "{} recording boots of {image}", if *follow { "start" } else { "end" })
            }
            Self::PackStates { packs } => {
                f.write_str("packs")?;
                packs.iter().try_for_each(|change| write!(f, " {} {}", change.pack, change.state.as_str()))
            }
            Self::Protect { versions } => list(f, "protect", versions),
            Self::Unprotect { versions } => list(f, "unprotect", versions),
            Self::SetQuota { prefix, limit_bytes: Some(limit) } => {
                write!(f, "set quota of {prefix} to {limit} bytes")
            }
            Self::SetQuota { prefix, limit_bytes: None } => write!(f, "remove quota of {prefix}"),
            Self::Sign { version } => write!(f, "sign {version}"),
            Self::BecomeFollower { of } => write!(f, "become a follower of the store {of}"),
            Self::Follow { changes, versions, .. } if changes.is_empty() => list(f, "copy", versions),
            Self::Follow { changes, .. } => {
                f.write_str("follow")?;
                let mut before = " ";
                changes.iter().try_for_each(|change| {
                    let who = if change.by.who.is_empty() { "?" } else { &change.by.who };
                    write!(f, "{before}{} ({who}): {}", change.number, change.action)?;
                    before = "; ";
                    Ok(())
                })
            }
            Self::NoteStanding {} => f.write_str("update what is known of the origin and its copies"),
            Self::Promote { epoch } => write!(f, "become the origin with epoch {epoch}"),
            Self::Replaced { epoch, by } => write!(f, "replaced by the store {by} with epoch {epoch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> VersionName {
        let (image, number) = text.split_once('@').unwrap();
        VersionName { image: image.parse().unwrap(), number: number.parse().unwrap() }
    }

    #[test]
    fn a_record_is_one_flat_json_object() {
        let record = ChangeRecord {
            number: 7,
            time_unix_ms: 5,
            by: Actor::new("root@node3", "local"),
            action: Action::Forget { versions: vec![name("a@1")] },
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(
            text,
            r#"{"number":7,"time_unix_ms":5,"who":"root@node3","from":"local","action":"forget","versions":[{"image":"a","number":1}]}"#
        );
        assert_eq!(serde_json::from_str::<ChangeRecord>(&text).unwrap(), record);
        let states = [PackState::Condemned, PackState::Deleted];
        let packs = states.map(|state| PackChange { pack: PackId([7; 16]), state, epoch: 3 }).to_vec();
        let action = Action::PackStates { packs };
        let text = serde_json::to_string(&action).unwrap();
        assert!(text.contains(r#""state":"condemned""#), "{text}");
        assert_eq!(serde_json::from_str::<Action>(&text).unwrap(), action);
    }

    #[test]
    fn names_that_may_not_be_seen_are_left_out() {
        let may_see = |image: &ImageName| image.as_str().starts_with("lab/");
        let seen = |action: &Action| action.visible(&may_see).map(|action| action.to_string());
        let both = vec![name("lab/a@1"), name("x@2")];
        assert_eq!(seen(&Action::Forget { versions: both.clone() }).as_deref(), Some("forget lab/a@1"));
        assert_eq!(seen(&Action::Forget { versions: vec![name("x@2")] }), None);
        let clone = |version: &str, source: &str| Action::Publish {
            version: name(version),
            score: String::new(),
            lock: None,
            cloned_from: Some(name(source)),
        };
        assert_eq!(seen(&clone("lab/a@1", "x@2")).as_deref(), Some("publish lab/a@1"));
        assert_eq!(seen(&clone("x@2", "lab/a@1")), None);
        assert_eq!(seen(&Action::Init {}), None);
        let renamed = RenamedVersion { from: name("x@1"), to: name("lab/a@1") };
        assert_eq!(seen(&Action::Rename { versions: vec![renamed] }), None);
        let numbered = |revision| Action::UnregisterBootSets { versions: vec![name("lab/a@1")], revision };
        assert_eq!(
            numbered(7).visible(&may_see),
            Some(numbered(0)),
            "revisions count the changes of all images"
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let actor = Actor::new(&"é".repeat(200), "");
        assert_eq!(actor.who.len(), 254);
    }
}
