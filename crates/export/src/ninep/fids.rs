//! The fids of a session: the client's numbers for places in the tree.
//!
//! Owns their limits: on fids per client, and on open directories, because each holds a list of names.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::names::Listing;
use super::wire::NO_FID;
use crate::tree::{Access, NodeId, OpenFile};

/// Maximum open directories per session.
const DIRECTORIES_OPEN_MAX: usize = 256;

/// A place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FidNode {
    /// The node.
    pub(super) node: NodeId,
    /// Its kind.
    pub(super) is_directory: bool,
    /// The directory in which a file was found; for a directory, the tree knows it.
    pub(super) found_in: NodeId,
    /// The directory that the client attached to; it cannot walk above it.
    pub(super) root: NodeId,
}

/// Open state of a fid.
pub(super) enum Opened {
    /// Not open.
    No,
    /// A file.
    File(Arc<dyn OpenFile>, Access),
    /// A directory, with its names at the last read from the beginning.
    Directory(Mutex<Option<Arc<Listing>>>),
}

/// A fid. Immutable; it is replaced instead.
pub(super) struct Fid {
    pub(super) place: FidNode,
    pub(super) opened: Opened,
}

impl Fid {
    /// A fid that is not open.
    pub(super) fn at(place: FidNode) -> Self {
        Self { place, opened: Opened::No }
    }

    /// Whether it was opened or created.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.opened, Opened::No)
    }

    fn is_open_directory(&self) -> bool {
        matches!(self.opened, Opened::Directory(_))
    }

    /// The place, if it is a directory.
    ///
    /// # Errors
    /// `NOTDIR`.
    pub(super) fn directory(&self) -> Result<FidNode, Errno> {
        if self.place.is_directory { Ok(self.place) } else { Err(Errno::NOTDIR) }
    }
}

#[derive(Default)]
struct Table {
    fids: HashMap<u32, Arc<Fid>>,
    directories_open: usize,
}

/// All fids of a session.
pub(super) struct Fids {
    fids_max: usize,
    table: Mutex<Table>,
}

impl Fids {
    pub(super) fn new(fids_max: usize) -> Self {
        Self { fids_max, table: Mutex::default() }
    }

    /// The fid with this number.
    ///
    /// # Errors
    /// `BADF`.
    pub(super) fn get(&self, number: u32) -> Result<Arc<Fid>, Errno> {
        self.table.lock().fids.get(&number).cloned().ok_or(Errno::BADF)
    }

    /// Adds a fid that is not open.
    ///
    /// # Errors
    /// `BADF` when the number is in use or invalid; `MFILE` when there are too many.
    pub(super) fn insert(&self, number: u32, place: FidNode) -> Result<(), Errno> {
        let mut table = self.table.lock();
        let count = table.fids.len();
        match table.fids.entry(number) {
            Entry::Vacant(entry) if number != NO_FID => {
                if count >= self.fids_max {
                    return Err(Errno::MFILE);
                }
                entry.insert(Arc::new(Fid::at(place)));
                Ok(())
            }
            _ => Err(Errno::BADF),
        }
    }

    /// Replaces `old` by another fid.
    ///
    /// # Errors
    /// `BADF` when another request has replaced or removed it meanwhile; `MFILE` when too many directories are open.
    pub(super) fn replace(&self, number: u32, old: &Arc<Fid>, new: Fid) -> Result<(), Errno> {
        let mut table = self.table.lock();
        let directories_open = table.directories_open + usize::from(new.is_open_directory())
            - usize::from(old.is_open_directory());
        match table.fids.get_mut(&number) {
            Some(fid) if Arc::ptr_eq(fid, old) => {
                if directories_open > DIRECTORIES_OPEN_MAX {
                    return Err(Errno::MFILE);
                }
                *fid = Arc::new(new);
                table.directories_open = directories_open;
                Ok(())
            }
            _ => Err(Errno::BADF),
        }
    }

    /// All fids, by their numbers.
    pub(super) fn all(&self) -> Vec<(u32, Arc<Fid>)> {
        let table = self.table.lock();
        table.fids.iter().map(|(number, fid)| (*number, Arc::clone(fid))).collect()
    }

    /// The fids of a resumed session.
    pub(super) fn restored(fids_max: usize, fids: HashMap<u32, Arc<Fid>>) -> Self {
        let directories_open = fids.values().filter(|fid| fid.is_open_directory()).count();
        Self { fids_max, table: Mutex::new(Table { fids, directories_open }) }
    }

    /// Removes a fid.
    ///
    /// # Errors
    /// `BADF`.
    pub(super) fn remove(&self, number: u32) -> Result<Arc<Fid>, Errno> {
        let mut table = self.table.lock();
        let fid = table.fids.remove(&number).ok_or(Errno::BADF)?;
        table.directories_open -= usize::from(fid.is_open_directory());
        Ok(fid)
    }
}
