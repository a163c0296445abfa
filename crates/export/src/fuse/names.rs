//! The tree as the kernel requests it: names, nodes and open files.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackingId, Errno, FopenFlags, RenameFlags};
use platter_image::{Error, ErrorKind, Extent};

use super::attributes::Owner;
use super::event::FuseEvent;
use super::failure::{Answer, Failure};
use super::gate::Gate;
use super::handles::{DirectoryHandle, Handles, Share, Snapshot};
use super::server::FuseOptions;
use crate::tree::{Access, NAME_LENGTH_MAX, Node, NodeId, NodeKind, OpenFile, Tree};

/// A mounted tree.
pub(super) struct Served {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) options: FuseOptions,
    pub(super) owner: Owner,
    pub(super) handles: Handles,
    /// Where threads wait while a pause lasts.
    pub(super) gate: Gate,
    /// New opens are refused (shutdown).
    pub(super) is_ending: AtomicBool,
    was_refusal_told: AtomicBool,
}

/// An opened file, as reported to the kernel.
pub(super) struct Opened {
    pub(super) number: u64,
    pub(super) flags: FopenFlags,
    pub(super) backing: Option<Arc<BackingId>>,
}

impl Served {
    pub(super) fn new(tree: Arc<dyn Tree>, options: FuseOptions, handles: Handles) -> Self {
        Self {
            tree,
            options,
            owner: Owner::current(),
            handles,
            gate: Gate::default(),
            is_ending: AtomicBool::new(false),
            was_refusal_told: AtomicBool::new(false),
        }
    }

    pub(super) fn tell(&self, event: &FuseEvent<'_>) {
        (self.options.on_event)(event);
    }

    /// The error number for a request by node number. For a removed node it is ESTALE: the kernel then looks up its
    /// cached name again, and the program gets the node that has the name now.
    pub(super) fn number_of_node(&self, node: NodeId, failure: &Failure) -> Errno {
        match self.number(node, None, failure) {
            number if number.code() == libc::ENOENT => Errno::ESTALE,
            number => number,
        }
    }

    /// The error number for the program; the server's caller gets the error.
    pub(super) fn number(&self, node: NodeId, range: Option<Extent>, failure: &Failure) -> Errno {
        if let Some(error) = failure.reportable() {
            self.tell(&FuseEvent::RequestFailed { node, range, error });
        }
        failure.number()
    }

    pub(super) fn lookup(&self, directory: NodeId, name: &OsStr) -> Answer<Node> {
        // The tree never contains such names.
        let name = name.to_str().ok_or(Errno::ENOENT)?;
        Ok(self.tree.lookup(directory, check(name)?)?)
    }

    /// Attributes of a node, also for an open node without a name.
    pub(super) fn node(&self, id: NodeId) -> Answer<Node> {
        let error = match self.tree.node(id) {
            Ok(node) => return Ok(node),
            Err(error) => error,
        };
        match self.handles.file_of(id).filter(|_| error.kind() == ErrorKind::Missing) {
            Some(file) => {
                let length = file.length();
                let kind = NodeKind::File { length, allocated: length };
                Ok(Node { id, kind, writable: true, modified_unix_ms: 0 })
            }
            None => Err(error.into()),
        }
    }

    /// Sets attributes. Times, modes and owners of writable files are accepted and ignored, because programs that copy
    /// files set them.
    pub(super) fn set(&self, id: NodeId, handle: Option<u64>, length: Option<u64>) -> Answer<Node> {
        let node = self.node(id)?;
        if !node.writable {
            return Err(Errno::EROFS.into());
        }
        let Some(length) = length else { return Ok(node) };
        match handle {
            Some(number) => self.writable_file(number)?.set_length(length)?,
            None => {
                let file = self.tree.open(id, Access::Write)?;
                file.set_length(length)?;
                file.close()?;
            }
        }
        self.node(id)
    }

    /// An open, writable file.
    pub(super) fn writable_file(&self, number: u64) -> Answer<Arc<dyn OpenFile>> {
        let handle = self.handles.file(number)?;
        match handle.access {
            Access::Read => Err(Errno::EBADF.into()),
            Access::Write | Access::ReadWrite => Ok(Arc::clone(&handle.file)),
        }
    }

    /// Opens a file, and truncates it through the same handle if requested. A second handle would have to be closed,
    /// and the tree would then treat the still empty file as finished.
    pub(super) fn open(
        &self,
        id: NodeId,
        (access, truncates): (Access, bool),
        open_backing: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<BackingId>,
    ) -> Answer<Opened> {
        self.check_not_ending()?;
        let place = self.handles.file_place()?;
        if (truncates || access != Access::Read) && !self.node(id)?.writable {
            return Err(Errno::EROFS.into());
        }
        let file = self.tree.open(id, access)?;
        if truncates {
            file.set_length(0)?;
        }
        Ok(self.add_file((id, file, access), place, open_backing))
    }

    pub(super) fn create(
        &self,
        directory: NodeId,
        name: &OsStr,
        access: Access,
        open_backing: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<BackingId>,
    ) -> Answer<(Node, Opened)> {
        self.check_not_ending()?;
        let place = self.handles.file_place()?;
        let name = new_name(name)?;
        let created = self.tree.create(directory, name, access);
        let (node, file) = created.map_err(|error| self.why_not_made(directory, name, error))?;
        let opened = self.add_file((node.id, file, access), place, open_backing);
        Ok((node, opened))
    }

    fn add_file(
        &self,
        file: (NodeId, Arc<dyn OpenFile>, Access),
        place: Share,
        open_backing: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<BackingId>,
    ) -> Opened {
        let (node, access) = (file.0, file.2);
        let mut flags = match file.1.score() {
            Some(_) => FopenFlags::FOPEN_KEEP_CACHE,
            None => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        };
        let (number, backing) = self.handles.add_file(file, place, |descriptor| {
            if !self.options.passthrough {
                return None;
            }
            open_backing(descriptor).map_err(|error| self.tell_refusal(node, error)).ok()
        });
        if backing.is_some() {
            // The kernel would send requests to the server anyway.
            flags = FopenFlags::empty();
        }
        if access == Access::Read {
            // Nothing was written, so there is no result to report.
            flags |= FopenFlags::FOPEN_NOFLUSH;
        }
        Opened { number, flags, backing }
    }

    fn tell_refusal(&self, node: NodeId, error: std::io::Error) {
        if !self.was_refusal_told.swap(true, Ordering::Relaxed) {
            let error = Error::io("the kernel would not take a plain file", error);
            self.tell(&FuseEvent::PassthroughRefused { node, error: &error });
        }
    }

    pub(super) fn make_directory(&self, directory: NodeId, name: &OsStr) -> Answer<Node> {
        let name = new_name(name)?;
        let made = self.tree.make_directory(directory, name);
        made.map_err(|error| self.why_not_made(directory, name, error))
    }

    pub(super) fn remove_file(&self, directory: NodeId, name: &OsStr) -> Answer<()> {
        let name = check(name.to_str().ok_or(Errno::ENOENT)?)?;
        self.tree.remove_file(directory, name).map_err(|error| self.why_not_changed(directory, error))
    }

    pub(super) fn remove_directory(&self, directory: NodeId, name: &OsStr) -> Answer<()> {
        let name = check(name.to_str().ok_or(Errno::ENOENT)?)?;
        self.tree.remove_directory(directory, name).map_err(|error| {
            let failure = self.why_not_changed(directory, error);
            let removed = self.tree.lookup(directory, name).and_then(|node| self.tree.list(node.id));
            match removed {
                Ok(names) if failure.is_refused() && !names.is_empty() => Errno::ENOTEMPTY.into(),
                _ => failure,
            }
        })
    }

    pub(super) fn rename(
        &self,
        (from, name): (NodeId, &OsStr),
        (to, new): (NodeId, &OsStr),
        flags: RenameFlags,
    ) -> Answer<()> {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return Err(Errno::EINVAL.into());
        }
        let name = check(name.to_str().ok_or(Errno::ENOENT)?)?;
        let new = new_name(new)?;
        self.tree.rename((from, name), (to, new)).map_err(|error| {
            let failure = self.why_not_made(to, new, error);
            match failure {
                Failure::Tree(error) => self.why_not_changed(from, error),
                other => other,
            }
        })
    }

    pub(super) fn open_directory(&self, id: NodeId) -> Answer<u64> {
        self.check_not_ending()?;
        self.handles.add_directory(id)
    }

    /// The names of an open directory. They are read again when a listing starts from the beginning.
    pub(super) fn names(&self, directory: &DirectoryHandle, is_beginning: bool) -> Answer<Snapshot> {
        let mut kept = directory.names.lock();
        if let Some(snapshot) = kept.as_ref().filter(|_| !is_beginning) {
            return Ok(snapshot.clone());
        }
        // The old names are dropped first, because they count against the limit.
        *kept = None;
        let snapshot = self.handles.snapshot(self.tree.list(directory.node)?)?;
        *kept = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// A more precise error number for a failed creation.
    fn why_not_made(&self, directory: NodeId, name: &str, error: Error) -> Failure {
        let failure = self.why_not_changed(directory, error);
        if failure.is_refused() && self.tree.lookup(directory, name).is_ok() {
            return Errno::EEXIST.into();
        }
        failure
    }

    /// A more precise error number for failed changes in a directory.
    fn why_not_changed(&self, directory: NodeId, error: Error) -> Failure {
        let failure = Failure::Tree(error);
        match self.tree.node(directory) {
            Ok(node) if failure.is_refused() && !node.writable => Errno::EROFS.into(),
            _ => failure,
        }
    }

    fn check_not_ending(&self) -> Answer<()> {
        match self.is_ending.load(Ordering::Relaxed) {
            true => Err(Errno::ESHUTDOWN.into()),
            false => Ok(()),
        }
    }
}

/// A name to be created.
fn new_name(name: &OsStr) -> Answer<&str> {
    check(name.to_str().ok_or(Errno::EILSEQ)?)
}

/// The preconditions of the tree.
fn check(name: &str) -> Answer<&str> {
    if name.len() > NAME_LENGTH_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(Errno::EINVAL.into());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_tree_never_sees() {
        for name in ["", ".", "..", "a/b", &"x".repeat(NAME_LENGTH_MAX + 1)] {
            assert!(check(name).is_err(), "{name}");
        }
        assert!(check(&"x".repeat(NAME_LENGTH_MAX)).is_ok());
    }
}
