//! Requests that open, read, write and close files.

use parking_lot::Mutex;
use std::sync::Arc;

use platter_image::ErrorKind;
use rustix::io::Errno;

use super::attributes::{PERMISSIONS, attributes, qid};
use super::failure::Failure;
use super::fids::{Fid, FidNode, Opened};
use super::names::name;
use super::session::Session;
use super::wire::{
    IO_HEADER_BYTES, Kind, OPEN_ACCESS, OPEN_DIRECTORY, OPEN_EXCLUSIVE, OPEN_READ_WRITE, OPEN_TRUNCATE,
    OPEN_WRITE, Reply, SET_GROUP, SET_LENGTH, SET_MODE, SET_USER, data_header,
};
use crate::buffer::Buffer;
use crate::tree::{Access, Node, NodeKind, OpenFile};

/// Attributes to set. Setting times succeeds and has no effect.
pub(super) struct SetAttributes {
    pub(super) valid: u32,
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) length: u64,
}

/// Access mode requested by a client.
fn access(flags: u32) -> Result<Access, Errno> {
    match flags & OPEN_ACCESS {
        0 => Ok(Access::Read),
        OPEN_WRITE => Ok(Access::Write),
        OPEN_READ_WRITE => Ok(Access::ReadWrite),
        _ => Err(Errno::INVAL),
    }
}

impl Session {
    pub(super) fn open(&self, number: u32, flags: u32) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.get(number)?;
        if fid.is_open() {
            return Err(Errno::BADF.into());
        }
        let place = fid.place;
        let access = access(flags)?;
        let opened = match place.is_directory {
            true if access != Access::Read => return Err(Errno::ISDIR.into()),
            true => Opened::Directory(Mutex::default()),
            false if flags & OPEN_DIRECTORY != 0 => return Err(Errno::NOTDIR.into()),
            false => Opened::File(self.open_file(&place, access, flags)?, access),
        };
        let node = self.tree.node(place.node)?;
        self.fids.replace(number, &fid, Fid { place, opened })?;
        Ok(self.opened(&node))
    }

    fn open_file(&self, place: &FidNode, access: Access, flags: u32) -> Result<Arc<dyn OpenFile>, Failure> {
        let file = self.tree.open(place.node, access)?;
        if flags & OPEN_TRUNCATE != 0 && access != Access::Read {
            file.set_length(0)?;
        }
        Ok(file)
    }

    fn opened(&self, node: &Node) -> Reply<'static> {
        Reply::Opened(qid(node), self.msize - IO_HEADER_BYTES)
    }

    /// Creates a file in the directory, unless it exists, and turns the fid into the file's.
    pub(super) fn create(&self, number: u32, bytes: &[u8], flags: u32) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.get(number)?;
        let directory = fid.directory()?;
        if fid.is_open() {
            return Err(Errno::BADF.into());
        }
        let (name, access) = (name(bytes)?, access(flags)?);
        let place = FidNode { is_directory: false, found_in: directory.node, ..directory };
        let (node, file) = match self.tree.lookup(directory.node, name) {
            Ok(_) if flags & OPEN_EXCLUSIVE != 0 => return Err(Errno::EXIST.into()),
            Ok(Node { kind: NodeKind::Directory, .. }) => return Err(Errno::ISDIR.into()),
            Ok(node) => {
                let file = self.open_file(&FidNode { node: node.id, ..place }, access, flags)?;
                (node, file)
            }
            Err(error) if error.kind() != ErrorKind::Missing => return Err(error.into()),
            Err(_) => {
                let made = self.tree.create(directory.node, name, access);
                made.map_err(|error| self.unless_taken(directory.node, name, error))?
            }
        };
        let place = FidNode { node: node.id, ..place };
        self.fids.replace(number, &fid, Fid { place, opened: Opened::File(file, access) })?;
        Ok(self.opened(&node))
    }

    /// The open file of a fid, with its access mode.
    fn file(fid: &Fid) -> Result<(&Arc<dyn OpenFile>, Access), Errno> {
        match &fid.opened {
            Opened::File(file, access) => Ok((file, *access)),
            Opened::Directory(_) => Err(Errno::ISDIR),
            Opened::No => Err(Errno::BADF),
        }
    }

    /// Appends the complete reply to a read.
    pub(super) fn read(
        &self,
        tag: u16,
        number: u32,
        offset: u64,
        count: u32,
        reply: &mut Buffer,
    ) -> Result<(), Failure> {
        let fid = self.fids.get(number)?;
        let (file, access) = Self::file(&fid)?;
        if access == Access::Write {
            return Err(Errno::BADF.into());
        }
        let left = file.length().saturating_sub(offset);
        let count = self.data_bytes(count).min(u32::try_from(left).unwrap_or(u32::MAX));
        reply.push(&data_header(Kind::READ, tag, count));
        if count > 0 {
            file.read(reply.grow(count as usize), offset).map_err(Failure::of_contents)?;
        }
        Ok(())
    }

    pub(super) fn write(&self, number: u32, offset: u64, bytes: &[u8]) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.get(number)?;
        let (file, access) = Self::file(&fid)?;
        if access == Access::Read {
            return Err(Errno::BADF.into());
        }
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::FBIG.into());
        }
        if !bytes.is_empty() {
            file.write(bytes, offset).map_err(Failure::of_contents)?;
        }
        Ok(Reply::Count(bytes.len() as u32))
    }

    pub(super) fn sync(&self, number: u32) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.get(number)?;
        match &fid.opened {
            Opened::File(file, _) => file.sync().map_err(Failure::of_contents)?,
            // Names are durable once the tree returns them.
            Opened::Directory(_) => {}
            Opened::No => return Err(Errno::BADF.into()),
        }
        Ok(Reply::Done)
    }

    /// The fid is removed in any case.
    pub(super) fn clunk(&self, number: u32) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.remove(number)?;
        if let Opened::File(file, _) = &fid.opened {
            file.close()?;
        }
        Ok(Reply::Done)
    }

    pub(super) fn get_attributes(&self, number: u32) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.get(number)?;
        let mut found = attributes(&self.tree.node(fid.place.node)?);
        if let Opened::File(file, _) = &fid.opened {
            found.length = file.length();
        }
        Ok(Reply::Attributes(found))
    }

    pub(super) fn set_attributes(
        &self,
        number: u32,
        wish: &SetAttributes,
    ) -> Result<Reply<'static>, Failure> {
        let fid = self.fids.get(number)?;
        if self.tree.is_read_only() {
            return Err(Errno::ROFS.into());
        }
        let now = attributes(&self.tree.node(fid.place.node)?);
        let SetAttributes { valid, mode, user, group, length } = *wish;
        let differs = |bit: u32, differs: bool| valid & bit != 0 && differs;
        if differs(SET_MODE, (mode ^ now.mode) & PERMISSIONS != 0)
            || differs(SET_USER, user != now.user)
            || differs(SET_GROUP, group != now.group)
        {
            return Err(Errno::PERM.into());
        }
        if valid & SET_LENGTH != 0 {
            self.set_length(&fid, length)?;
        }
        Ok(Reply::Done)
    }

    fn set_length(&self, fid: &Fid, length: u64) -> Result<(), Failure> {
        if fid.place.is_directory {
            return Err(Errno::ISDIR.into());
        }
        if length > i64::MAX as u64 {
            return Err(Errno::FBIG.into());
        }
        match &fid.opened {
            Opened::File(file, Access::Write | Access::ReadWrite) => file.set_length(length)?,
            _ => {
                let file = self.tree.open(fid.place.node, Access::Write)?;
                file.set_length(length)?;
                file.close()?;
            }
        }
        Ok(())
    }
}
