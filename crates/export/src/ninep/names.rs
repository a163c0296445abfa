//! Requests that look up, create, rename and remove names.

use std::sync::Arc;

use platter_image::{Error, ErrorKind};
use rustix::io::Errno;

use super::attributes::qid;
use super::failure::Failure;
use super::fids::{Fid, FidNode, Opened};
use super::session::Session;
use super::wire::{NO_FID, Qid, Reply, UNLINK_DIRECTORY, directory_entry};
use crate::tree::{NAME_LENGTH_MAX, Node, NodeId, NodeKind, ROOT};

/// The names of an open directory, as they were when they were first read.
pub(super) type Listing = Vec<(String, Qid)>;

/// The name sent by a client, if it is valid.
///
/// # Errors
/// `INVAL`, `ILSEQ`, `NAMETOOLONG`.
pub(super) fn name(bytes: &[u8]) -> Result<&str, Errno> {
    if bytes.is_empty()
        || bytes == b"."
        || bytes == b".."
        || bytes.iter().any(|byte| matches!(byte, 0 | b'/'))
    {
        return Err(Errno::INVAL);
    }
    if bytes.len() > NAME_LENGTH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    str::from_utf8(bytes).map_err(|_| Errno::ILSEQ)
}

impl Session {
    pub(super) fn attach(&self, fid: u32, auth_fid: u32, path: &[u8]) -> Result<Reply<'static>, Failure> {
        if auth_fid != NO_FID {
            return Err(Errno::BADF.into());
        }
        let root = self.tree.node(ROOT)?;
        let mut place = FidNode { node: root.id, is_directory: true, found_in: ROOT, root: ROOT };
        let mut found = qid(&root);
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            found = self.step(&mut place, name)?;
        }
        if !place.is_directory {
            return Err(Errno::NOTDIR.into());
        }
        place.root = place.node;
        self.fids.insert(fid, place)?;
        Ok(Reply::Qid(found))
    }

    pub(super) fn walk(&self, number: u32, new: u32, names: &[&[u8]]) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.get(number)?;
        let mut place = fid.place;
        let mut qids = Vec::with_capacity(names.len());
        for name in names {
            match self.step(&mut place, name) {
                Ok(qid) => qids.push(qid),
                Err(failure) if qids.is_empty() => return Err(failure),
                // The client gets the successful part of the walk, and no new fid.
                Err(_) => return Ok(Reply::Qids(qids)),
            }
        }
        if new != number {
            self.fids.insert(new, place)?;
        } else if fid.is_open() {
            return Err(Errno::BADF.into());
        } else {
            self.fids.replace(number, &fid, Fid::at(place))?;
        }
        Ok(Reply::Qids(qids))
    }

    /// Walks one name.
    fn step(&self, place: &mut FidNode, bytes: &[u8]) -> Result<Qid, Failure> {
        if !place.is_directory {
            return Err(Errno::NOTDIR.into());
        }
        let node = if bytes == b".." {
            self.tree.node(self.above(place)?)?
        } else {
            self.tree.lookup(place.node, name(bytes)?)?
        };
        let is_directory = node.kind == NodeKind::Directory;
        *place = FidNode { node: node.id, is_directory, found_in: place.node, root: place.root };
        Ok(qid(&node))
    }

    /// The parent of a directory; the client's root is its own parent.
    fn above(&self, place: &FidNode) -> Result<NodeId, Error> {
        if place.node == place.root { Ok(place.root) } else { self.tree.parent(place.node) }
    }

    /// The names from `offset` on that fit into `count` bytes.
    pub(super) fn read_directory(&self, number: u32, offset: u64, count: u32) -> Result<Vec<u8>, Failure> {
        let fid = self.fids.get(number)?;
        let Opened::Directory(kept) = &fid.opened else { return Err(Errno::BADF.into()) };
        let known = kept.lock().clone();
        let listing = match known {
            Some(listing) if offset > 0 => listing,
            _ => {
                let listing = Arc::new(self.list(&fid.place)?);
                *kept.lock() = Some(Arc::clone(&listing));
                listing
            }
        };
        let mut entries = Vec::new();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (name, qid)) in listing.iter().enumerate().skip(start) {
            let entry = directory_entry(*qid, index as u64 + 1, name);
            if entries.len() + entry.len() > count as usize {
                if entries.is_empty() {
                    return Err(Errno::INVAL.into());
                }
                break;
            }
            entries.extend_from_slice(&entry);
        }
        Ok(entries)
    }

    fn list(&self, place: &FidNode) -> Result<Listing, Error> {
        let (own, above) = (self.tree.node(place.node)?, self.tree.node(self.above(place)?)?);
        let dots = [(".".to_owned(), qid(&own)), ("..".to_owned(), qid(&above))];
        let names = self.tree.list(place.node)?;
        Ok(dots.into_iter().chain(names.into_iter().map(|(name, node)| (name, qid(&node)))).collect())
    }

    pub(super) fn make_directory(&self, fid: u32, bytes: &[u8]) -> Result<Reply<'static>, Failure> {
        let (directory, name) = (self.fids.get(fid)?.directory()?.node, name(bytes)?);
        let made = self.tree.make_directory(directory, name);
        let node = made.map_err(|error| self.unless_taken(directory, name, error))?;
        Ok(Reply::Qid(qid(&node)))
    }

    /// The error number for a failed creation: EEXIST if the name exists, else the tree's error.
    pub(super) fn unless_taken(&self, directory: NodeId, name: &str, error: Error) -> Failure {
        if error.kind() == ErrorKind::Refused && self.tree.lookup(directory, name).is_ok() {
            return Errno::EXIST.into();
        }
        error.into()
    }

    pub(super) fn unlink(&self, fid: u32, bytes: &[u8], flags: u32) -> Result<Reply<'static>, Failure> {
        let (directory, name) = (self.fids.get(fid)?.directory()?.node, name(bytes)?);
        let node = self.tree.lookup(directory, name)?;
        match (node.kind, flags & UNLINK_DIRECTORY != 0) {
            (NodeKind::Directory, false) => Err(Errno::ISDIR.into()),
            (NodeKind::File { .. }, true) => Err(Errno::NOTDIR.into()),
            _ => self.remove_node(directory, name, &node),
        }
    }

    fn remove_node(&self, directory: NodeId, name: &str, node: &Node) -> Result<Reply<'static>, Failure> {
        if node.kind != NodeKind::Directory {
            self.tree.remove_file(directory, name)?;
            return Ok(Reply::Done);
        }
        match self.tree.remove_directory(directory, name) {
            Ok(()) => Ok(Reply::Done),
            Err(error) if error.kind() == ErrorKind::Refused && !self.tree.list(node.id)?.is_empty() => {
                Err(Errno::NOTEMPTY.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the file or directory of a fid. The fid is removed in any case.
    pub(super) fn remove(&self, number: u32) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.remove(number)?;
        let (directory, name, node) = self.find(&fid.place)?;
        self.remove_node(directory, &name, &node)
    }

    /// The current name of a place.
    fn find(&self, place: &FidNode) -> Result<(NodeId, String, Node), Failure> {
        if place.node == place.root {
            return Err(Errno::BUSY.into());
        }
        let directory = if place.is_directory { self.tree.parent(place.node)? } else { place.found_in };
        let mut names = self.tree.list(directory)?.into_iter();
        let (name, node) = names.find(|(_, node)| node.id == place.node).ok_or(Errno::NOENT)?;
        Ok((directory, name, node))
    }

    /// Renames the file or directory of a fid.
    pub(super) fn rename(&self, number: u32, to: u32, bytes: &[u8]) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.get(number)?;
        let (to, to_name) = (self.fids.get(to)?.directory()?.node, name(bytes)?);
        let (from, from_name, _) = self.find(&fid.place)?;
        self.rename_node((from, &from_name), (to, to_name))?;
        if !fid.is_open() {
            let moved = Fid::at(FidNode { found_in: to, ..fid.place });
            self.fids.replace(number, &fid, moved)?;
        }
        Ok(Reply::Done)
    }

    /// Renames a name.
    pub(super) fn rename_at(&self, from: (u32, &[u8]), to: (u32, &[u8])) -> Result<Reply<'static>, Failure> {
        let (from, from_name) = (self.fids.get(from.0)?.directory()?.node, name(from.1)?);
        let (to, to_name) = (self.fids.get(to.0)?.directory()?.node, name(to.1)?);
        self.rename_node((from, from_name), (to, to_name))
    }

    fn rename_node(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<Reply<'static>, Failure> {
        let renamed = self.tree.rename(from, to);
        renamed.map(|()| Reply::Done).map_err(|error| self.unless_taken(to.0, to.1, error))
    }
}
