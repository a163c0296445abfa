//! The negotiated options and the fids of a 9P client, in the form in which they are passed to the next server.
//!
//! A fid is passed as the number of its node, so the next server's tree must use the same numbers. An open file is
//! opened again with the same access mode; an open directory keeps the names that the client is reading.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_image::{Error, Result};
use serde::{Deserialize, Serialize};

use super::fids::{Fid, FidNode, Fids, Opened};
use super::server::Shared;
use super::session::Session;
use super::wire::Qid;
use crate::moved::{from_text, to_text};
use crate::tree::{Access, open_again};

/// The state of a 9P client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NinepState {
    /// The negotiated options, if the negotiation has finished.
    session: Option<SessionState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SessionState {
    msize: u32,
    fids: Vec<FidState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FidState {
    number: u32,
    place: FidNode,
    opened: OpenedState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum OpenedState {
    No,
    File(Access),
    /// Names, each with its kind (directory or not), version and node; `None` if the directory was not read yet.
    Directory(Option<Vec<(String, bool, u32, u64)>>),
}

impl NinepState {
    pub(super) fn of(session: Option<&Session>) -> Self {
        let fid = |(number, fid): (u32, Arc<Fid>)| {
            let opened = match &fid.opened {
                Opened::No => OpenedState::No,
                Opened::File(_, access) => OpenedState::File(*access),
                Opened::Directory(listing) => {
                    OpenedState::Directory(listing.lock().as_ref().map(|listing| {
                        let name = |(name, qid): &(String, Qid)| {
                            (name.clone(), qid.is_directory, qid.version, qid.path)
                        };
                        listing.iter().map(name).collect()
                    }))
                }
            };
            FidState { number, place: fid.place, opened }
        };
        let session = session.map(|session| SessionState {
            msize: session.msize,
            fids: session.fids.all().into_iter().map(fid).collect(),
        });
        Self { session }
    }

    /// Serializes the state.
    ///
    /// # Errors
    /// `Bug`.
    pub fn to_text(&self) -> Result<String> {
        to_text(self)
    }

    /// Parses the result of [`NinepState::to_text`].
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_text(text: &str) -> Result<Self> {
        let state: Self = from_text(text)?;
        match &state.session {
            Some(session) if !Session::MSIZES.contains(&session.msize) => {
                Err(Error::corrupt(format!("messages of {} bytes", session.msize)))
            }
            _ => Ok(state),
        }
    }

    /// Restores the session, if there was one.
    pub(super) fn session(self, shared: &Shared) -> Option<Arc<Session>> {
        let SessionState { msize, fids } = self.session?;
        let mut restored = HashMap::with_capacity(fids.len());
        for FidState { number, place, opened } in fids {
            let opened = match opened {
                OpenedState::No => Opened::No,
                OpenedState::File(access) => {
                    Opened::File(open_again(&shared.tree, place.node, access), access)
                }
                OpenedState::Directory(names) => {
                    let entry =
                        |(name, is_directory, version, path)| (name, Qid { is_directory, version, path });
                    let listing = names.map(|names| Arc::new(names.into_iter().map(entry).collect()));
                    Opened::Directory(Mutex::new(listing))
                }
            };
            restored.insert(number, Arc::new(Fid { place, opened }));
        }
        let fids = Fids::restored(shared.options.fids_max, restored);
        Some(Arc::new(Session { tree: Arc::clone(&shared.tree), fids, msize }))
    }
}
