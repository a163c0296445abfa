//! Open files and directories, and how the kernel reads each node.
//!
//! Owns the limits on memory used by clients. No other state of the mount is kept between requests.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fuser::{BackingId, Errno};
use platter_image::{Error, Result};

use super::failure::Answer;
use super::state::HandlesState;
use crate::tree::{Access, Node, NodeId, OpenFile, Tree, open_again};

/// Maximum open files of all processes.
const FILES_MAX: usize = 16 << 10;
/// Maximum open directories of all processes.
const DIRECTORIES_MAX: usize = 4 << 10;
/// Maximum names in all open directories together.
const NAMES_MAX: usize = 1 << 20;

/// A limited resource.
#[derive(Debug)]
struct Budget {
    taken: AtomicUsize,
    max: usize,
}

impl Budget {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), max })
    }

    fn take(self: &Arc<Self>, amount: usize) -> Answer<Share> {
        let more = |taken: usize| taken.checked_add(amount).filter(|sum| *sum <= self.max);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Share { budget: Arc::clone(self), amount }),
            Err(_) => Err(Errno::ENFILE.into()),
        }
    }
}

/// A share of a budget, returned on drop.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    amount: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// An open file.
pub(super) struct FileHandle {
    pub(super) node: NodeId,
    pub(super) file: Arc<dyn OpenFile>,
    pub(super) access: Access,
    _place: Share,
}

/// An open directory.
pub(super) struct DirectoryHandle {
    pub(super) node: NodeId,
    /// The names at the last read from the beginning.
    pub(super) names: Mutex<Option<Snapshot>>,
    _place: Share,
}

/// A snapshot of the names in a directory.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) names: Arc<[(String, Node)]>,
    _share: Arc<Share>,
}

/// An open node.
struct OpenNode {
    handles: usize,
    /// The plain file that the kernel reads instead (passthrough). It is the same for all opens of the node, because
    /// the kernel does not allow mixing.
    backing: Option<Arc<BackingId>>,
}

/// All open files and directories.
pub(super) struct Handles {
    next: AtomicU64,
    files: RwLock<HashMap<u64, Arc<FileHandle>>>,
    directories: RwLock<HashMap<u64, Arc<DirectoryHandle>>>,
    nodes: Mutex<HashMap<NodeId, OpenNode>>,
    file_places: Arc<Budget>,
    directory_places: Arc<Budget>,
    name_places: Arc<Budget>,
}

impl Default for Handles {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            files: RwLock::default(),
            directories: RwLock::default(),
            nodes: Mutex::default(),
            file_places: Budget::new(FILES_MAX),
            directory_places: Budget::new(DIRECTORIES_MAX),
            name_places: Budget::new(NAMES_MAX),
        }
    }
}

impl Handles {
    /// What was open in another process.
    ///
    /// # Errors
    /// `Refused` when it is too much.
    pub(super) fn restored(state: HandlesState, tree: &Arc<dyn Tree>) -> Result<Self> {
        let handles = Self { next: AtomicU64::new(state.next), ..Self::default() };
        let too_much = |_| Error::refused("more is open than there is room for");
        for (number, node, access) in state.files {
            let (file, place) = (open_again(tree, node, access), handles.file_place().map_err(too_much)?);
            handles.nodes().entry(node).or_insert(OpenNode { handles: 0, backing: None }).handles += 1;
            let handle = Arc::new(FileHandle { node, file, access, _place: place });
            handles.files.write().insert(number, handle);
        }
        for (number, node, names) in state.directories {
            let place = handles.directory_places.take(1).map_err(too_much)?;
            let names = names.map(|names| handles.snapshot(names)).transpose().map_err(too_much)?;
            let handle = Arc::new(DirectoryHandle { node, names: Mutex::new(names), _place: place });
            handles.directories.write().insert(number, handle);
        }
        Ok(handles)
    }

    /// What is open, for another process.
    pub(super) fn state(&self) -> HandlesState {
        let file = |(number, handle): (&u64, &Arc<FileHandle>)| (*number, handle.node, handle.access);
        let directory = |(number, handle): (&u64, &Arc<DirectoryHandle>)| {
            (*number, handle.node, handle.names.lock().as_ref().map(|snapshot| snapshot.names.to_vec()))
        };
        HandlesState {
            next: self.next.load(Ordering::Relaxed),
            files: self.files.read().iter().map(file).collect(),
            directories: self.directories.read().iter().map(directory).collect(),
        }
    }

    /// Whether the kernel reads a plain file by itself.
    pub(super) fn has_backing(&self) -> bool {
        self.nodes().values().any(|node| node.backing.is_some())
    }

    /// Reserves a place for one more file.
    pub(super) fn file_place(&self) -> Answer<Share> {
        self.file_places.take(1)
    }

    /// Adds an open file, and returns the plain file that the kernel reads instead, if any. `open_backing` is called
    /// for the first open of the node.
    pub(super) fn add_file(
        &self,
        (node, file, access): (NodeId, Arc<dyn OpenFile>, Access),
        place: Share,
        open_backing: impl FnOnce(BorrowedFd<'_>) -> Option<BackingId>,
    ) -> (u64, Option<Arc<BackingId>>) {
        let mut nodes = self.nodes();
        let open = nodes.entry(node).or_insert_with(|| OpenNode {
            handles: 0,
            backing: file.backing().and_then(open_backing).map(Arc::new),
        });
        open.handles += 1;
        let backing = open.backing.clone();
        drop(nodes);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let handle = Arc::new(FileHandle { node, file, access, _place: place });
        self.files.write().insert(number, handle);
        (number, backing)
    }

    /// An open file.
    pub(super) fn file(&self, number: u64) -> Answer<Arc<FileHandle>> {
        let files = self.files.read();
        files.get(&number).cloned().ok_or(Errno::EBADF.into())
    }

    /// Removes an open file.
    pub(super) fn remove_file(&self, number: u64) {
        let removed = self.files.write().remove(&number);
        let Some(handle) = removed else { return };
        let mut nodes = self.nodes();
        if let Some(open) = nodes.get_mut(&handle.node) {
            open.handles -= 1;
            if open.handles == 0 {
                nodes.remove(&handle.node);
            }
        }
    }

    /// An open file by its node. Slow; for nodes without a name.
    pub(super) fn file_of(&self, node: NodeId) -> Option<Arc<dyn OpenFile>> {
        let files = self.files.read();
        files.values().find(|handle| handle.node == node).map(|handle| Arc::clone(&handle.file))
    }

    /// Adds an open directory.
    pub(super) fn add_directory(&self, node: NodeId) -> Answer<u64> {
        let place = self.directory_places.take(1)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let handle = Arc::new(DirectoryHandle { node, names: Mutex::default(), _place: place });
        self.directories.write().insert(number, handle);
        Ok(number)
    }

    /// An open directory.
    pub(super) fn directory(&self, number: u64) -> Answer<Arc<DirectoryHandle>> {
        let directories = self.directories.read();
        directories.get(&number).cloned().ok_or(Errno::EBADF.into())
    }

    /// Removes an open directory.
    pub(super) fn remove_directory(&self, number: u64) {
        self.directories.write().remove(&number);
    }

    /// Reserves space for names within the common limit.
    pub(super) fn snapshot(&self, names: Vec<(String, Node)>) -> Answer<Snapshot> {
        let share = self.name_places.take(names.len())?;
        Ok(Snapshot { names: names.into(), _share: Arc::new(share) })
    }

    /// Removes all entries at shutdown.
    pub(super) fn clear(&self) {
        self.files.write().clear();
        self.directories.write().clear();
        self.nodes().clear();
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<NodeId, OpenNode>> {
        self.nodes.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_and_comes_back() {
        let budget = Budget::new(3);
        let two = budget.take(2).unwrap();
        assert!(budget.take(2).is_err());
        assert!(budget.take(usize::MAX).is_err());
        let one = budget.take(1).unwrap();
        assert!(budget.take(1).is_err());
        drop((two, one));
        budget.take(3).unwrap();
    }

    #[test]
    fn open_directories_are_limited() {
        let handles = Handles::default();
        let numbers: Vec<_> = (0..DIRECTORIES_MAX).map(|_| handles.add_directory(1).unwrap()).collect();
        assert_eq!(handles.add_directory(1).unwrap_err().number().code(), libc::ENFILE);
        handles.remove_directory(numbers[7]);
        handles.add_directory(1).unwrap();
    }
}
