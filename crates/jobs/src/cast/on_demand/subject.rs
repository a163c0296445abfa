//! What a cast on demand sends.

use platter_image::{BlockId, Error, Kind, Result};
use platter_net::{ChunkSource, SessionDescription};
use platter_records::{HoardSnapshot, Resolved};
use platter_store::Store;

use crate::cast::hoard::{describe_hoard, hoard_title};
use crate::cast::{SEGMENT_DATA_MAX, describe};
use crate::install::title;

/// Names a subject among all casts of a store.
pub(super) type SubjectId = [u8; 32];

/// See above.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Version(Box<Resolved>),
    /// What the members that were added after revision `since` need, and older members do not.
    Hoard {
        snapshot: HoardSnapshot,
        since: u64,
    },
}

impl Subject {
    /// Equal for equal disks, and for nodes that read the same members of the same revision.
    ///
    /// # Errors
    /// `Bug` when the snapshot cannot be serialized.
    pub(super) fn id(&self) -> Result<SubjectId> {
        match self {
            Self::Version(resolved) => Ok(resolved.score.0.0),
            Self::Hoard { snapshot, .. } => {
                let text = serde_json::to_vec(snapshot)
                    .map_err(|error| Error::bug("cannot serialize a hoard").with_source(error))?;
                Ok(BlockId::of(Kind::BootSet, &text).0)
            }
        }
    }

    /// How people see it.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Version(resolved) => title(resolved),
            Self::Hoard { snapshot, .. } => hoard_title(snapshot.revision),
        }
    }

    /// Plans its cast.
    ///
    /// # Errors
    /// `Missing` or `Corrupt` when the store is damaged; `Refused` without the keys of an encrypted store; `Io`.
    pub(super) fn describe<'a>(
        &self,
        store: &'a Store,
    ) -> Result<(SessionDescription, Box<dyn ChunkSource + 'a>)> {
        Ok(match self {
            Self::Version(resolved) => {
                let (description, source) = describe(store, resolved, SEGMENT_DATA_MAX)?;
                (description, Box::new(source))
            }
            Self::Hoard { snapshot, since } => {
                let (description, source) = describe_hoard(store, snapshot, *since)?;
                (description, Box::new(source))
            }
        })
    }
}
