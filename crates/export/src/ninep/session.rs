//! A session: one request checked, done on the tree, answered. Knows no socket and no thread.

use std::sync::Arc;

use rustix::io::Errno;

use super::contents::Wish;
use super::failure::Failure;
use super::fids::Fids;
use super::wire::{DATA_HEADER_BYTES, Kind, Reply, Request, data_header};
use crate::buffer::Buffer;
use crate::tree::Tree;

/// What a client has agreed on, and its fids.
pub(super) struct Session {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) fids: Fids,
    /// Most bytes of a message.
    pub(super) msize: u32,
}

impl Session {
    /// Most bytes of a message that a client may agree on, from the fewest: names and their qids have room in it.
    pub(super) const MSIZES: std::ops::RangeInclusive<u32> = 4096..=1 << 20;

    /// One without fids, in which a message has at most `msize` bytes.
    pub(super) fn new(tree: Arc<dyn Tree>, msize: u32, fids_max: usize) -> Self {
        Self { tree, fids: Fids::new(fids_max), msize }
    }

    /// Bytes of a read that fit in a message.
    pub(super) fn data_bytes(&self, count: u32) -> u32 {
        count.min(self.msize - DATA_HEADER_BYTES as u32)
    }

    /// Does a request, and appends the whole reply. What was appended when it fails is for the caller to remove.
    ///
    /// # Errors
    /// What the client shall hear.
    pub(super) fn perform(
        &self,
        kind: Kind,
        tag: u16,
        request: &Request<'_>,
        reply: &mut Buffer,
    ) -> Result<(), Failure> {
        match *request {
            Request::Read { fid, offset, count } => self.read(tag, fid, offset, count, reply),
            Request::ReadDirectory { fid, offset, count } => {
                let entries = self.read_directory(fid, offset, self.data_bytes(count))?;
                reply.push(&data_header(kind, tag, entries.len() as u32));
                reply.push(&entries);
                Ok(())
            }
            _ => {
                let answer = self.answer(request)?;
                reply.push(&answer.to_bytes(kind, tag));
                Ok(())
            }
        }
    }

    fn answer<'a>(&self, request: &Request<'a>) -> Result<Reply<'a>, Failure> {
        match *request {
            // Who may connect is the socket's business. To clients this number says that nothing has to be proved.
            Request::Auth => Err(Errno::NOENT.into()),
            Request::Attach { fid, auth_fid, path } => self.attach(fid, auth_fid, path),
            Request::Walk { fid, new_fid, ref names } => self.walk(fid, new_fid, names),
            Request::Open { fid, flags } => self.open(fid, flags),
            Request::Create { fid, name, flags } => self.create(fid, name, flags),
            Request::Write { fid, offset, bytes } => self.write(fid, offset, bytes),
            Request::Clunk { fid } => self.clunk(fid),
            Request::Remove { fid } => self.remove(fid),
            Request::StatFs { fid } => {
                self.fids.get(fid)?;
                Ok(Reply::Room(self.tree.room()))
            }
            Request::Rename { fid, directory, name } => self.rename(fid, directory, name),
            Request::GetAttributes { fid } => self.get_attributes(fid),
            Request::SetAttributes { fid, valid, mode, user, group, length } => {
                self.set_attributes(fid, &Wish { valid, mode, user, group, length })
            }
            Request::Sync { fid } => self.sync(fid),
            // Locks hold between the processes of one client, which that client sees to itself.
            Request::Lock { fid } => self.fids.get(fid).map(|_| Reply::Locked).map_err(Failure::from),
            Request::GetLock { fid, start, length, process, client } => {
                self.fids.get(fid)?;
                Ok(Reply::NoLock { start, length, process, client })
            }
            Request::MakeDirectory { fid, name } => self.make_directory(fid, name),
            Request::RenameAt { from, from_name, to, to_name } => {
                self.rename_at((from, from_name), (to, to_name))
            }
            Request::UnlinkAt { fid, name, flags } => self.unlink(fid, name, flags),
            Request::Version { .. } | Request::Flush { .. } | Request::Unsupported => {
                Err(Errno::OPNOTSUPP.into())
            }
            Request::Read { .. } | Request::ReadDirectory { .. } => Err(Errno::INVAL.into()),
        }
    }
}
