//! Adding to a store of either kind: frames, and finally a version.

use std::sync::Arc;

use platter_image::frame::EncodedFrame;
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, Error, FrameAddress, FrameIndex, FrameSource, FrameStore, Lease, Pin, Result,
};
use platter_records::{Imported, PublishedVersion, Repairs, VersionName, VersionRecord};
use platter_store::{Session, Store};

use platter_client::UploadSession;

use crate::node::NodeCache;

/// A session of a store. If dropped without publishing, its frames stay in the store for the next session.
pub enum OpenSession {
    /// A session of a store in a directory, whose lock it holds.
    Local {
        /// The store.
        store: Arc<Store>,
        /// `None` once it has ended.
        session: Option<Box<Session>>,
    },
    /// A session of an origin.
    Remote {
        /// The session.
        session: UploadSession,
        /// The cache through which this process reads the origin.
        cache: Option<Arc<NodeCache>>,
    },
}

impl OpenSession {
    /// Whether it ended by itself; another session would find its data.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Local { .. } => false,
            Self::Remote { session, .. } => session.is_lost(),
        }
    }

    /// Waits until the store has accepted everything that was added.
    ///
    /// # Errors
    /// The store's errors.
    pub fn finish(&self) -> Result<()> {
        match self {
            Self::Local { .. } => Ok(()),
            Self::Remote { session, .. } => session.finish(),
        }
    }

    /// Publishes a version and ends. If given, `expect` is the number that the image's newest version must have (0: no
    /// version exists).
    ///
    /// # Errors
    /// `Refused` when the newest version has another number; as [`Session::publish`].
    pub fn publish(&mut self, draft: VersionRecord, expect: Option<u64>) -> Result<PublishedVersion> {
        let (store, session) = match self {
            Self::Remote { session, .. } => return session.publish(&draft, expect),
            Self::Local { store, session } => (store, session.take().ok_or_else(ended)?),
        };
        let published = session.publish_after(draft, expect)?;
        let others = store.repaired_by(&published.repaired, &published.version.name)?;
        let names = |names: Vec<VersionName>| names.iter().map(VersionName::to_string).collect();
        let repairs = Repairs {
            repaired: names(others.whole),
            still_damaged: names(others.damaged),
            known_frames_read: published.known_frames_read,
        };
        Ok(PublishedVersion { version: published.version, repairs })
    }

    /// Returns what importing a version would do.
    ///
    /// # Errors
    /// As [`Session::foresee_import`].
    pub fn foresee_import(&self, record: &VersionRecord, restore: bool) -> Result<Imported> {
        match self {
            Self::Remote { session, .. } => session.foresee_import(record, restore),
            Self::Local { session, .. } => Self::local(session)?.foresee_import(record, restore),
        }
    }

    /// Imports a version of another store and ends. With `restore`, also a version that was forgotten or renamed here.
    ///
    /// # Errors
    /// As [`Session::import`].
    pub fn import(&mut self, record: &VersionRecord, restore: bool) -> Result<Imported> {
        match self {
            Self::Remote { session, .. } => session.import(record, restore),
            Self::Local { session, .. } => session.take().ok_or_else(ended)?.import(record, restore),
        }
    }

    /// Reads a page that was added, or that the store has. An origin's session reads nothing.
    ///
    /// # Errors
    /// `Missing`; `Corrupt`, also for a page that is in no pack; `Io`.
    pub fn read_page(&self, id: &BlockId) -> Result<Vec<u8>> {
        match self {
            Self::Remote { .. } => Err(Error::missing("an origin's session reads nothing")),
            Self::Local { session, .. } => Self::local(session)?.page(id),
        }
    }

    fn local(session: &Option<Box<Session>>) -> Result<&Session> {
        session.as_deref().ok_or_else(ended)
    }
}

fn ended() -> Error {
    Error::bug("adding to a session that has ended")
}

impl FrameSource for OpenSession {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }

    fn found_damaged(&self, address: FrameAddress) {
        if let Self::Local { session: Some(session), .. } = self {
            session.found_damaged(address);
        }
    }
}

impl FrameIndex for OpenSession {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        match self {
            Self::Local { session, .. } => Self::local(session)?.locate(id),
            Self::Remote { session, .. } => session.locate(id),
        }
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Local { session, .. } => Self::local(session)?.read_frame(address, stored),
            Self::Remote { session, .. } => session.read_frame(address, stored),
        }
    }
}

impl FrameStore for OpenSession {
    fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<Pin>> {
        match self {
            Self::Local { session, .. } => Self::local(session)?.lookup_and_pin(id),
            Self::Remote { session, .. } => session.lookup_and_pin(id),
        }
    }

    fn lookup_and_pin_all(&self, ids: &[BlockId]) -> Result<Vec<Option<Pin>>> {
        match self {
            Self::Local { session, .. } => Self::local(session)?.lookup_and_pin_all(ids),
            Self::Remote { session, .. } => session.lookup_and_pin_all(ids),
        }
    }

    fn pin_stored(&self, id: &BlockId) -> Result<Option<Pin>> {
        match self {
            Self::Local { session, .. } => Self::local(session)?.pin_stored(id),
            Self::Remote { session, .. } => session.pin_stored(id),
        }
    }

    fn lookups_under_way(&self) -> usize {
        match self {
            Self::Local { .. } => 1,
            Self::Remote { session, .. } => session.lookups_under_way(),
        }
    }

    fn append(&self, frame: &EncodedFrame) -> Result<Pin> {
        match self {
            Self::Local { session, .. } => Self::local(session)?.append(frame),
            Self::Remote { session, cache } => {
                let pin = session.append(frame)?;
                if let Some(cache) = cache {
                    cache.put_own(&frame.stored);
                }
                Ok(pin)
            }
        }
    }
}
