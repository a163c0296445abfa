//! What a cast on demand sends.

use platter_image::{BlockId, Error, Kind, Result};
use platter_net::{ChunkSource, SessionDescription};
use platter_records::{HoardSnapshot, Resolved};
use platter_store::Store;

use crate::cast::hoard::{describe_hoard, hoard_title};
use crate::cast::{Others, SEGMENT_DATA_MAX, describe};
use crate::install::title;

/// Names a subject among all casts of a store.
pub(super) type SubjectId = [u8; 32];

/// See above.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Version {
        resolved: Box<Resolved>,
        /// Of receivers that may not read everything: their sharing group. They are sent no other block.
        group: Option<String>,
    },
    /// What the members that were added after revision `since` need, and older members do not.
    Hoard { snapshot: HoardSnapshot, since: u64 },
}

impl Subject {
    /// Equal for equal disks and receivers that may read the same images, and for nodes that read the same members of the same
    /// revision. Receivers of different groups have casts of their own: the state of a cast, and its list of receivers, would tell one
    /// tenant that another has the same disk.
    ///
    /// # Errors
    /// `Bug` when the snapshot cannot be serialized.
    pub(super) fn id(&self) -> Result<SubjectId> {
        match self {
            Self::Version { resolved, group: None } => Ok(resolved.score.0.0),
            Self::Version { resolved, group: Some(group) } => {
                let text = [b"alone", &resolved.score.0.0[..], group.as_bytes()].concat();
                Ok(BlockId::of(Kind::Version, &text).0)
            }
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
            Self::Version { resolved, .. } => title(resolved),
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
            Self::Version { resolved, group } => {
                let others = if group.is_none() { Others::Along } else { Others::Never };
                let (description, source) = describe(store, resolved, SEGMENT_DATA_MAX, others)?;
                (description, Box::new(source))
            }
            Self::Hoard { snapshot, since } => {
                let (description, source) = describe_hoard(store, snapshot, *since)?;
                (description, Box::new(source))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use platter_image::frame::{FrameDecoder, Verify};
    use platter_store::StorePlace;

    use super::*;
    use crate::receive::Frames;
    use crate::tests::capture_bytes;

    #[test]
    fn who_may_not_read_everything_is_sent_no_other_block() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let block = |n: usize| (0..32 << 10).map(move |at| (at / 97 + n * 7) as u8 ^ n as u8 | 1);
        let disk = |numbers: &mut dyn Iterator<Item = usize>| numbers.flat_map(block).collect::<Vec<u8>>();
        // Three of four blocks of each frame are of the second disk, too.
        capture_bytes(&place, "hidden/a", &disk(&mut (0..64)));
        capture_bytes(&place, "lab/a", &disk(&mut (0..64).filter(|n| n % 4 != 3)));
        let store = Store::open_reader(&place).unwrap();
        let resolved = Box::new(store.resolve("lab/a").unwrap());
        let sent = |group: Option<&str>| {
            let subject = Subject::Version { resolved: resolved.clone(), group: group.map(str::to_owned) };
            let (description, source) = subject.describe(&store).unwrap();
            let mut decoder = FrameDecoder::new().unwrap();
            let mut ids = BTreeSet::new();
            for index in description.data_chunks(0) {
                for stored in Frames(&source.read(index).unwrap()) {
                    let (header, _) = decoder.decode(stored.unwrap(), Verify::Hashes).unwrap();
                    ids.extend(header.blocks.iter().map(|block| block.id));
                }
            }
            (subject.id().unwrap(), ids.len())
        };
        let (along, alone, other) = (sent(None), sent(Some("lab")), sent(Some("both")));
        assert_eq!((along.1, alone.1, other.1), (64, 48, 48));
        let unique = BTreeSet::from([along.0, alone.0, other.0]);
        assert_eq!(unique.len(), 3, "three casts with keys of their own");
    }
}
