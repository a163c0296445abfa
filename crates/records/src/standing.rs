//! What a store is among its copies: the origin of its changes, a follower of another store, or replaced by one.
//!
//! Each promotion has an epoch, one higher than the origin had that it replaces. A store that was told a higher epoch never accepts
//! changes again, so two stores never both go on from the same state. Nothing here does I/O: the store keeps the standing in its
//! catalog, and changes it in the transaction that reads it.

use std::fmt;

use platter_image::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::VersionName;

/// A position between two changes of an origin, with the hash of the change before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaPosition {
    /// Id of the origin's log.
    pub log: String,
    /// Number of the change before it.
    pub number: u64,
    /// Offset in the log.
    pub offset: u64,
    /// Hash of that change, in hexadecimal. An origin that was restored from a backup has another one, or none.
    pub hash: String,
}

/// How to reach an origin again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OriginAccess {
    /// Its address, such as `https://origin.lab:7440`.
    pub address: String,
    /// The file with the access token; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token_file: String,
    /// Fingerprint of its certificate; empty if authorities are trusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// File with the certificates of trusted authorities; empty for those of the system.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub authorities: String,
}

/// A version or boot set that a follower could not copy, because it is damaged or missing at the origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Such as `lab/debian12@7`, or `boot set of lab/debian12@7`.
    pub what: String,
    /// Why.
    pub why: String,
    /// The row that is entered once the data is here, as JSON.
    pub row: String,
}

/// A store that this one, or one that it followed, has replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormerOrigin {
    /// Its id.
    pub store: String,
    /// How to reach it.
    pub access: OriginAccess,
    /// Whether it is known to have learnt of its replacement.
    pub told: bool,
}

/// What a follower knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Following {
    /// The origin's epoch.
    pub epoch: u64,
    /// The origin's id.
    pub origin: String,
    /// How to reach it.
    pub access: OriginAccess,
    /// The address at which this store will be served; empty if unknown.
    pub address: String,
    /// Up to where the origin's changes were applied; none before the first copy is complete.
    pub position: Option<ReplicaPosition>,
    /// Number of the origin's last change, as far as it is known.
    pub last: u64,
    /// Versions that are being copied.
    pub announced: Vec<VersionName>,
    /// What could not be copied. It is tried again.
    pub left_out: Vec<LeftOut>,
    /// Stores that the origin has replaced.
    pub former: Vec<FormerOrigin>,
    /// Random id of the promotion that was begun, recorded before the origin is told; empty before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub promotion: String,
    /// The store that replaced the origin, as the origin said itself; none if it was not replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<Successor>,
}

/// A store that another follower was promoted to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Successor {
    /// Its id.
    pub store: String,
    /// Its address; empty if unknown.
    pub address: String,
    /// Its epoch.
    pub epoch: u64,
}

impl fmt::Display for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (epoch {})", named(&self.store, &self.address), self.epoch)
    }
}

/// A promotion, as the stores that it replaces are told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promotion {
    /// The id of the store that was promoted.
    pub by: String,
    /// Its epoch.
    pub epoch: u64,
    /// Its address; empty if unknown.
    pub address: String,
    /// Random id of the promotion. A copy of the store that is promoted, too, has the same `by`, and another `id`.
    pub id: String,
}

/// What the stores answered that were told of a promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormerAnswers {
    /// Ids of those that confirmed it.
    pub told: Vec<String>,
    /// Other promotions that they know of.
    pub conflicts: Vec<String>,
    /// Whether all of them were asked and answered.
    pub is_complete: bool,
    /// What else a person must know.
    pub notes: Vec<String>,
}

/// Maximum number of conflicts that a store remembers.
const CONFLICTS_MAX: usize = 16;
/// Maximum length of a text in the standing of another store, and maximum number of the stores that it has replaced: `standing.json` has at most
/// 1 MiB.
const TEXT_MAX: usize = 4096;
const FORMER_MAX: usize = 32;

/// What a store is among its copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum Standing {
    /// It accepts changes.
    Origin {
        /// Number of promotions that led to it.
        epoch: u64,
        /// The address at which it is served; empty if unknown.
        address: String,
        /// The stores that it has replaced.
        former: Vec<FormerOrigin>,
        /// Versions, and boot sets as text, that the origin was known to have when this store was promoted, and that had not arrived.
        missing: Vec<String>,
        /// Random id of its promotion.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        promotion: String,
        /// Other promotions in its place.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        conflicts: Vec<String>,
    },
    /// It follows an origin.
    Follower(Box<Following>),
    /// A follower took its place.
    Replaced {
        /// The epoch of the successor.
        epoch: u64,
        /// The successor's id.
        by: String,
        /// The address of the successor; empty if unknown.
        address: String,
        /// The stores that this one had replaced.
        former: Vec<FormerOrigin>,
        /// Random id of the promotion.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        promotion: String,
        /// Other promotions in its place.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        conflicts: Vec<String>,
    },
}

impl Default for Standing {
    fn default() -> Self {
        Self::Origin {
            epoch: 0,
            address: String::new(),
            former: Vec::new(),
            missing: Vec::new(),
            promotion: String::new(),
            conflicts: Vec::new(),
        }
    }
}

impl Standing {
    /// The highest epoch that another store may name: that many promotions are impossible.
    pub const EPOCH_MAX: u64 = 1 << 40;
    /// The highest epoch of an origin that is followed: the promotions of its followers have higher ones.
    pub const FOLLOWED_EPOCH_MAX: u64 = Self::EPOCH_MAX / 2;

    /// Returns a standing as another store told it, without the names of files on that machine: this one would read its own files of these
    /// names, and send what they contain.
    ///
    /// # Errors
    /// `Corrupt` when its epoch leaves no higher one, or a text or list is too long to be kept.
    pub fn of_other(mut self) -> Result<Self> {
        if self.epoch() > Self::EPOCH_MAX {
            return Err(Error::corrupt(format!("the origin names the impossible epoch {}", self.epoch())));
        }
        let are_texts = |texts: &[&String], more: &[String]| {
            texts.iter().copied().chain(more).all(|it| it.len() <= TEXT_MAX && !it.contains(char::is_control))
        };
        let (fits, former) = match &mut self {
            Self::Origin { address, former, promotion, conflicts, .. } => {
                (are_texts(&[address, promotion], conflicts), former)
            }
            Self::Replaced { by, address, former, promotion, conflicts, .. } => {
                (are_texts(&[by, address, promotion], conflicts), former)
            }
            Self::Follower(following) => {
                (are_texts(&[&following.access.address], &[]), &mut following.former)
            }
        };
        for it in &mut *former {
            let OriginAccess { address, fingerprint, .. } = std::mem::take(&mut it.access);
            it.access = OriginAccess { address, fingerprint, ..OriginAccess::default() };
        }
        let fits_former =
            |it: &FormerOrigin| are_texts(&[&it.store, &it.access.address, &it.access.fingerprint], &[]);
        if !fits || former.len() > FORMER_MAX || !former.iter().all(fits_former) {
            return Err(Error::corrupt("the origin's standing has a text or list that is too long"));
        }
        Ok(self)
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Origin { epoch, .. } | Self::Replaced { epoch, .. } => *epoch,
            Self::Follower(following) => following.epoch,
        }
    }

    /// Whether a store that was `other` can have become this since. The epoch never goes down; within one, an origin may be replaced, and
    /// either may become a follower.
    pub fn is_after(&self, other: &Self) -> bool {
        let order = |standing: &Self| {
            let role = match standing {
                Self::Origin { .. } => 0,
                Self::Replaced { .. } => 1,
                Self::Follower(_) => 2,
            };
            (standing.epoch(), role)
        };
        order(self) > order(other)
    }

    /// Returns the error for changes that this store does not accept; `None` if it accepts changes.
    pub fn refusal(&self) -> Option<Error> {
        match self {
            Self::Origin { .. } => None,
            Self::Follower(following) => Some(Error::refused(format!(
                "this store follows the origin at {}: make changes there; if that origin is lost, `platter promote` makes \
                 this store the origin",
                following.access.address
            ))),
            Self::Replaced { epoch, by, address, .. } => Some(Error::refused(format!(
                "this store was replaced by {} (epoch {epoch}) and accepts no more changes: make them there",
                named(by, address)
            ))),
        }
    }

    /// Returns the standing after a successor reported itself; `None` if it is known already, or if this store has replaced it since.
    ///
    /// # Errors
    /// `Refused` when this store has that epoch by another promotion, or a higher one.
    pub fn replaced_by(&self, successor: &Promotion) -> Result<Option<Self>> {
        let Promotion { by: id, epoch, address, id: promotion } = successor;
        let former = match self {
            Self::Origin { former, .. } | Self::Replaced { former, .. } => former.clone(),
            Self::Follower(_) => Vec::new(),
        };
        // Of stores that replaced each other in turn, the present origin is no former one.
        let former = former.into_iter().filter(|it| it.store != *id);
        let former = former.map(|it| FormerOrigin { told: false, ..it }).collect();
        let replaced = Self::Replaced {
            epoch: *epoch,
            by: id.clone(),
            address: address.clone(),
            former,
            promotion: promotion.clone(),
            conflicts: Vec::new(),
        };
        match self {
            known if known.is_of(successor) => Ok(None),
            // It returns, and does not know yet that this store has replaced it.
            Self::Origin { epoch: own, former, .. }
                if own > epoch && former.iter().any(|it| it.store == *id) =>
            {
                Ok(self.telling_again(id))
            }
            Self::Follower(following) => Err(Error::refused(format!(
                "this store follows {} and replaces nobody, so nobody replaces it",
                following.access.address
            ))),
            known if known.epoch() < *epoch => Ok(Some(replaced)),
            Self::Replaced { epoch: known, by, .. } if by == id && known == epoch => {
                Err(Error::refused(format!(
                    "CONFLICT: two copies of the store {id} were promoted with epoch {epoch}: stop one of them"
                )))
            }
            Self::Replaced { epoch: known, by, address, .. } => Err(Error::refused(format!(
                "CONFLICT: this store was replaced by {} with epoch {known}, and {} was promoted with epoch {epoch}: stop one of \
                 them",
                named(by, address),
                named(id, &successor.address)
            ))),
            known => Err(Error::refused(format!(
                "CONFLICT: this store has epoch {} itself, and {} was promoted with epoch {epoch}: stop one of them",
                known.epoch(),
                named(id, &successor.address)
            ))),
        }
    }

    /// Returns the standing in which this former store has to be told again; `None` if it has not been told yet.
    fn telling_again(&self, store: &str) -> Option<Self> {
        let mut next = self.clone();
        if let Self::Origin { former, .. } = &mut next {
            former.iter_mut().filter(|it| it.store == *store).for_each(|it| it.told = false);
        }
        (next != *self).then_some(next)
    }

    /// Whether it was replaced by exactly that promotion.
    fn is_of(&self, successor: &Promotion) -> bool {
        matches!(self, Self::Replaced { epoch, by, promotion, .. }
            if *epoch == successor.epoch && *by == successor.by && *promotion == successor.id)
    }

    /// Whether this store knows that it was replaced by that promotion, or later by another one.
    pub fn knows_successor(&self, successor: &Promotion) -> bool {
        let is_later = matches!(self, Self::Replaced { epoch, .. } if *epoch > successor.epoch);
        is_later || self.is_of(successor)
    }

    /// Returns the promotion that led to the present origin, as far as this store knows, and the stores that were replaced.
    pub fn successor(&self, own: &str) -> Option<(Promotion, &[FormerOrigin])> {
        let (by, epoch, address, id, former) = match self {
            Self::Origin { epoch: epoch @ 1.., address, former, promotion, .. } => {
                (own, epoch, address, promotion, former)
            }
            Self::Replaced { epoch, by, address, former, promotion, .. } => {
                (by.as_str(), epoch, address, promotion, former)
            }
            _ => return None,
        };
        let (by, address, id) = (by.to_owned(), address.clone(), id.clone());
        Some((Promotion { by, epoch: *epoch, address, id }, former))
    }

    /// Other promotions in its place that it knows of.
    pub fn conflicts(&self) -> &[String] {
        match self {
            Self::Origin { conflicts, .. } | Self::Replaced { conflicts, .. } => conflicts,
            Self::Follower(_) => &[],
        }
    }

    /// Returns the standing with the answers of the stores that were told; `None` if nothing changes.
    pub fn with_answers(&self, answers: &FormerAnswers) -> Option<Self> {
        let mut next = self.clone();
        match &mut next {
            Self::Origin { former, conflicts, .. } | Self::Replaced { former, conflicts, .. } => {
                let told = former.iter_mut().filter(|it| answers.told.contains(&it.store));
                told.for_each(|it| it.told = true);
                if answers.is_complete {
                    conflicts.clear();
                }
                add_conflicts(conflicts, &answers.conflicts);
            }
            Self::Follower(_) => {}
        }
        (next != *self).then_some(next)
    }

    /// Returns the standing that remembers a conflict; `None` if nothing changes.
    pub fn with_conflict(&self, conflict: &str) -> Option<Self> {
        self.with_answers(&FormerAnswers { conflicts: vec![conflict.to_owned()], ..FormerAnswers::default() })
    }

    /// Whether some replaced store does not know it yet.
    pub fn has_untold(&self) -> bool {
        self.successor("").is_some_and(|(_, former)| former.iter().any(|it| !it.told))
    }

    /// What it is, in a line.
    pub fn summary(&self) -> String {
        let mut summary = self.role();
        for conflict in self.conflicts() {
            summary.push_str("; ");
            summary.push_str(conflict);
        }
        summary
    }

    fn role(&self) -> String {
        match self {
            Self::Origin { epoch: 0, .. } => "origin".into(),
            Self::Origin { epoch, former, .. } => {
                let untold: Vec<&str> =
                    former.iter().filter(|it| !it.told).map(|it| it.access.address.as_str()).collect();
                let note = match untold.is_empty() {
                    true => String::new(),
                    false => format!("; not told yet: {}", untold.join(", ")),
                };
                format!("origin, promoted with epoch {epoch}{note}")
            }
            Self::Follower(following) => {
                let at = match &following.position {
                    None => "the first copy is not complete".to_owned(),
                    Some(position) => format!("at change {} of {}", position.number, following.last),
                };
                let left = match following.left_out.len() {
                    0 => String::new(),
                    count => format!(", {count} left out"),
                };
                format!("follower of {}, {at}{left}", following.access.address)
            }
            Self::Replaced { epoch, by, address, .. } => {
                format!("replaced by {} with epoch {epoch}", named(by, address))
            }
        }
    }
}

fn add_conflicts(conflicts: &mut Vec<String>, new: &[String]) {
    for conflict in new {
        if conflicts.len() < CONFLICTS_MAX && !conflicts.contains(conflict) {
            conflicts.push(conflict.clone());
        }
    }
}

/// Names a store. Addresses are texts of other stores.
fn named(id: &str, address: &str) -> String {
    match address.is_empty() {
        true => format!("the store {id}"),
        false => format!("the store {id} at {}", address.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promotion(epoch: u64, by: &str, id: &str) -> Promotion {
        Promotion { by: by.into(), epoch, address: String::new(), id: id.into() }
    }

    fn replaced(epoch: u64, by: &str) -> Standing {
        Standing::default().replaced_by(&promotion(epoch, by, by)).unwrap().unwrap()
    }

    #[test]
    fn epochs_only_grow_and_conflicts_are_errors() {
        let origin = Standing::default();
        let [b1, c1, c2] = [promotion(1, "b", "b"), promotion(1, "c", "c"), promotion(2, "c", "c")];
        assert_eq!(replaced(1, "b").replaced_by(&b1).unwrap(), None);
        assert!(replaced(1, "b").replaced_by(&c1).is_err(), "two followers were promoted");
        assert!(
            replaced(1, "b").replaced_by(&promotion(1, "b", "copy")).is_err(),
            "a copy of it was promoted"
        );
        assert_eq!(replaced(1, "b").replaced_by(&c2).unwrap(), Some(replaced(2, "c")));
        assert!(replaced(2, "c").replaced_by(&b1).is_err());
        let promoted = Standing::Origin {
            epoch: 1,
            address: String::new(),
            former: Vec::new(),
            missing: Vec::new(),
            promotion: "a".into(),
            conflicts: Vec::new(),
        };
        assert!(promoted.replaced_by(&c1).is_err());
        assert!(promoted.replaced_by(&c2).unwrap().is_some());
        assert!(replaced(2, "c").knows_successor(&b1) && replaced(1, "b").knows_successor(&b1));
        assert!(!replaced(1, "c").knows_successor(&b1) && !origin.knows_successor(&b1));
        assert!(!replaced(1, "b").knows_successor(&promotion(1, "b", "copy")));
    }

    /// An origin that lies about its own standing: its names of files are not kept, and what would not fit is refused.
    #[test]
    fn the_standing_of_another_store_is_limited() {
        let access = OriginAccess {
            address: "https://a.lab:7440".into(),
            token_file: "/etc/platter/key".into(),
            fingerprint: "sha256:ab".into(),
            authorities: "/etc/hosts".into(),
        };
        let told = |epoch: u64, address: &str, former: usize| {
            let former = vec![FormerOrigin { store: "s".into(), access: access.clone(), told: true }; former];
            let conflicts = Vec::new();
            let standing = Standing::Origin {
                epoch,
                address: address.into(),
                former,
                missing: Vec::new(),
                promotion: "p".into(),
                conflicts,
            };
            standing.of_other()
        };
        let Standing::Origin { former, .. } = told(1, "b", 2).unwrap() else { panic!("an origin") };
        let kept = OriginAccess { token_file: String::new(), authorities: String::new(), ..access.clone() };
        assert!(former.len() == 2 && former.iter().all(|it| it.access == kept && it.told), "{former:?}");
        assert!(told(Standing::EPOCH_MAX, "b", FORMER_MAX).is_ok());
        assert!(told(Standing::EPOCH_MAX + 1, "b", 0).is_err());
        assert!(told(1, &"b".repeat(TEXT_MAX + 1), 0).is_err() && told(1, "a\nb", 0).is_err());
        assert!(told(1, "b", FORMER_MAX + 1).is_err());
        let conflicts = vec!["x".repeat(2 << 20)];
        let replaced = Standing::Replaced {
            epoch: 1,
            by: "b".into(),
            address: String::new(),
            former: Vec::new(),
            promotion: String::new(),
            conflicts,
        };
        assert!(replaced.of_other().is_err());
    }

    #[test]
    fn stores_may_replace_each_other_in_turn() {
        let former =
            |store: &str| FormerOrigin { store: store.into(), access: OriginAccess::default(), told: true };
        let origin = |epoch, promotion: &str, former| Standing::Origin {
            epoch,
            address: String::new(),
            former,
            missing: Vec::new(),
            promotion: promotion.into(),
            conflicts: Vec::new(),
        };
        let again = origin(2, "a2", vec![former("b")]);
        let b1 = promotion(1, "b", "b1");
        let untold = again.replaced_by(&b1).unwrap().unwrap();
        assert!(untold.has_untold() && untold.conflicts().is_empty(), "b returns, and learns of it from a");
        assert_eq!(untold.replaced_by(&b1).unwrap(), None);
        assert!(again.replaced_by(&promotion(2, "b", "b2")).is_err(), "b was promoted again");
        assert!(again.replaced_by(&promotion(1, "c", "c")).is_err());
        let b = origin(1, "b1", vec![former("a"), former("c")]);
        let replaced = b.replaced_by(&promotion(2, "a", "a2")).unwrap().unwrap();
        let told: Vec<&str> = replaced.successor("").unwrap().1.iter().map(|it| it.store.as_str()).collect();
        assert_eq!(told, ["c"], "its successor is not told of itself");
    }

    #[test]
    fn conflicts_stay_until_all_have_answered() {
        let known = replaced(1, "b").with_conflict("CONFLICT: x").unwrap();
        assert!(known.summary().contains("CONFLICT: x") && known.with_conflict("CONFLICT: x").is_none());
        let mut answers = FormerAnswers::default();
        assert_eq!(known.with_answers(&answers), None);
        answers.is_complete = true;
        assert_eq!(known.with_answers(&answers), Some(replaced(1, "b")));
    }

    #[test]
    fn an_address_stays_on_its_line() {
        let mut address = promotion(1, "b", "b");
        address.address = "unix:/a\nstore c".into();
        let standing = Standing::default().replaced_by(&address).unwrap().unwrap();
        assert_eq!(standing.summary().lines().count(), 1);
    }

    #[test]
    fn only_an_origin_accepts_changes() {
        assert!(Standing::default().refusal().is_none());
        let following = Following {
            access: OriginAccess { address: "unix:/a".into(), ..OriginAccess::default() },
            ..Following::default()
        };
        let text = Standing::Follower(Box::new(following)).refusal().unwrap().to_string();
        assert!(text.contains("unix:/a") && text.contains("platter promote"), "{text}");
        assert!(replaced(1, "b").refusal().unwrap().to_string().contains("the store b"));
    }
}
