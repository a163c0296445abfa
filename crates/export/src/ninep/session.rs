//! A session: checks a request, executes it on the tree, and builds the reply. Knows no sockets and threads.

use std::sync::Arc;

use rustix::io::Errno;

use super::contents::SetAttributes;
use super::failure::Failure;
use super::fids::Fids;
use super::wire::{DATA_HEADER_BYTES, Kind, Reply, Request, data_header};
use crate::buffer::Buffer;
use crate::tree::Tree;

/// The negotiated message size of a client, and its fids.
pub(super) struct Session {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) fids: Fids,
    /// Maximum bytes of a message.
    pub(super) msize: u32,
}

impl Session {
    /// Most bytes of a message that a client may agree on, from the fewest: names and their qids have room in it.
    pub(super) const MSIZES: std::ops::RangeInclusive<u32> = 4096..=1 << 20;

    /// A session without fids, with messages of at most `msize` bytes.
    pub(super) fn new(tree: Arc<dyn Tree>, msize: u32, fids_max: usize) -> Self {
        Self { tree, fids: Fids::new(fids_max), msize }
    }

    /// Maximum bytes of a read that fit in a message.
    pub(super) fn data_bytes(&self, count: u32) -> u32 {
        count.min(self.msize - DATA_HEADER_BYTES as u32)
    }

    /// Executes a request and appends the complete reply. On failure, the caller removes partial output.
    ///
    /// # Errors
    /// The error number for the client.
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
            // The socket decides who may connect. This error number tells clients that no authentication is needed.
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
                self.set_attributes(fid, &SetAttributes { valid, mode, user, group, length })
            }
            Request::Sync { fid } => self.sync(fid),
            // Locks apply between processes of one client, and the client manages them itself.
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
