//! What a store is among its copies: the origin of its changes, a follower of another store, or replaced by one.
//!
//! Each promotion has an epoch, one higher than the origin had that it replaces. A store that was told a higher epoch never accepts
//! changes again, so two stores never both go on from the same state. Nothing here does I/O: the store keeps the standing in its
//! catalog, and changes it in the transaction that reads it.

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
}

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
        /// Versions that were known when it was promoted, and had not arrived.
        missing: Vec<String>,
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
    },
}

impl Default for Standing {
    fn default() -> Self {
        Self::Origin { epoch: 0, address: String::new(), former: Vec::new(), missing: Vec::new() }
    }
}

impl Standing {
    /// The epoch.
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Origin { epoch, .. } | Self::Replaced { epoch, .. } => *epoch,
            Self::Follower(following) => following.epoch,
        }
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

    /// Returns the standing after a successor reported itself; `None` if it is known already.
    ///
    /// # Errors
    /// `Refused` when this store has that epoch by another promotion, or a higher one.
    pub fn replaced_by(&self, id: &str, epoch: u64, address: &str) -> Result<Option<Self>> {
        let former = match self {
            Self::Origin { former, .. } | Self::Replaced { former, .. } => former.clone(),
            Self::Follower(_) => Vec::new(),
        };
        let former = former.into_iter().map(|it| FormerOrigin { told: false, ..it }).collect();
        let replaced = Self::Replaced { epoch, by: id.to_owned(), address: address.to_owned(), former };
        match self {
            Self::Replaced { epoch: known, by, .. } if *known == epoch && by == id => Ok(None),
            Self::Follower(following) => Err(Error::refused(format!(
                "this store follows {} and replaces nobody, so nobody replaces it",
                following.access.address
            ))),
            known if known.epoch() < epoch => Ok(Some(replaced)),
            Self::Replaced { epoch: known, by, address, .. } => Err(Error::refused(format!(
                "this store was replaced by {} with epoch {known}, so epoch {epoch} of {id} is a conflict: two followers \
                 were promoted; stop one of them",
                named(by, address)
            ))),
            known => Err(Error::refused(format!(
                "this store has epoch {} itself, so epoch {epoch} of {id} is a conflict: two stores were promoted; stop one of \
                 them",
                known.epoch()
            ))),
        }
    }

    /// Whether this store knows that it was replaced by that store with that epoch, or later by another one.
    pub fn knows_successor(&self, id: &str, epoch: u64) -> bool {
        match self {
            Self::Replaced { epoch: known, by, .. } => *known > epoch || (*known == epoch && by == id),
            _ => false,
        }
    }

    /// Returns the id, epoch and address of the origin that replaced others, and those others: this store, or its successor.
    pub fn successor(&self, own: &str) -> Option<(String, u64, String, &[FormerOrigin])> {
        match self {
            Self::Origin { epoch: epoch @ 1.., address, former, .. } => {
                Some((own.to_owned(), *epoch, address.clone(), former))
            }
            Self::Replaced { epoch, by, address, former } => {
                Some((by.clone(), *epoch, address.clone(), former))
            }
            _ => None,
        }
    }

    /// Returns the standing in which these stores know of their replacement; `None` if nothing changes.
    pub fn with_told(&self, stores: &[String]) -> Option<Self> {
        let mut next = self.clone();
        match &mut next {
            Self::Origin { former, .. } | Self::Replaced { former, .. } => {
                former.iter_mut().filter(|it| stores.contains(&it.store)).for_each(|it| it.told = true);
            }
            Self::Follower(_) => {}
        }
        (next != *self).then_some(next)
    }

    /// Whether some replaced store does not know it yet.
    pub fn has_untold(&self) -> bool {
        self.successor("").is_some_and(|(_, _, _, former)| former.iter().any(|it| !it.told))
    }

    /// What it is, in a line.
    pub fn summary(&self) -> String {
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

fn named(id: &str, address: &str) -> String {
    if address.is_empty() { format!("the store {id}") } else { format!("the store {id} at {address}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(epoch: u64, by: &str) -> Standing {
        Standing::Replaced { epoch, by: by.into(), address: String::new(), former: Vec::new() }
    }

    #[test]
    fn epochs_only_grow_and_conflicts_are_errors() {
        let origin = Standing::default();
        assert_eq!(origin.replaced_by("b", 1, "").unwrap(), Some(replaced(1, "b")));
        assert_eq!(replaced(1, "b").replaced_by("b", 1, "").unwrap(), None);
        assert!(replaced(1, "b").replaced_by("c", 1, "").is_err(), "two followers were promoted");
        assert_eq!(replaced(1, "b").replaced_by("c", 2, "").unwrap(), Some(replaced(2, "c")));
        assert!(replaced(2, "c").replaced_by("b", 1, "").is_err());
        let promoted =
            Standing::Origin { epoch: 1, address: String::new(), former: Vec::new(), missing: Vec::new() };
        assert!(promoted.replaced_by("c", 1, "").is_err());
        assert!(promoted.replaced_by("c", 2, "").unwrap().is_some());
        assert!(replaced(2, "c").knows_successor("b", 1) && replaced(1, "b").knows_successor("b", 1));
        assert!(!replaced(1, "c").knows_successor("b", 1) && !origin.knows_successor("b", 1));
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
