//! Decodes and answers the kernel's requests. All decisions are made in [`Served`] and [`contents`].

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FileType, Filesystem, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use platter_image::Extent;

use super::attributes::{NAME_TIME, attribute_time};
use super::contents::{self, REQUEST_BYTES_MAX};
use super::failure::{Answer, Failure};
use super::names::Served;
use crate::tree::{Access, NAME_LENGTH_MAX, Node, NodeId, NodeKind};

/// Node numbers are never reused.
const GENERATION: Generation = Generation(0);
/// Maximum concurrent read-ahead and asynchronous requests of the kernel.
const BACKGROUND_MAX: u16 = 64;
/// Plain files may be on a stacked filesystem (overlayfs) of depth one; the kernel allows two.
const STACK_DEPTH: u32 = 2;
/// Unit for free space.
const ROOM_UNIT: u32 = 4096;

/// The filesystem that the kernel talks to.
pub(super) struct Requests(pub(super) Arc<Served>);

impl Requests {
    fn entry(&self, directory: INodeNo, result: Answer<Node>, reply: ReplyEntry) {
        match result {
            Ok(node) => {
                let attributes = self.0.owner.attributes(&node);
                reply.entry_with_ttls(&attribute_time(&node), &NAME_TIME, &attributes, GENERATION);
            }
            Err(failure) => reply.error(self.0.number(directory.0, None, &failure)),
        }
    }

    fn attributes(&self, node: INodeNo, result: Answer<Node>, reply: ReplyAttr) {
        match result {
            Ok(node) => reply.attr(&attribute_time(&node), &self.0.owner.attributes(&node)),
            Err(failure) => reply.error(self.0.number_of_node(node.0, &failure)),
        }
    }

    fn done(&self, node: INodeNo, range: Option<Extent>, result: Answer<()>, reply: ReplyEmpty) {
        match result {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(self.0.number(node.0, range, &failure)),
        }
    }

    /// Calls `add` with each name of a directory behind `offset`, until it says that there is no more room: with
    /// the offset to go on from, the name and its node.
    fn each_name(
        &self,
        handle: FileHandle,
        offset: u64,
        mut add: impl FnMut(u64, &str, NodeId, &Node) -> bool,
    ) -> Answer<()> {
        let directory = self.0.handles.directory(handle.0)?;
        let snapshot = self.0.names(&directory, offset == 0)?;
        let node = self.0.node(directory.node)?;
        let above = self.0.tree.parent(directory.node)?;
        let dots = [(".", node.id, &node), ("..", above, &node)];
        let names = snapshot.names.iter().map(|(name, node)| (name.as_str(), node.id, node));
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (name, id, node)) in (1..).zip(dots.into_iter().chain(names)).skip(skipped) {
            if add(next, name, id, node) {
                break;
            }
        }
        Ok(())
    }
}

fn access_of(flags: OpenFlags) -> Access {
    match flags.acc_mode() {
        OpenAccMode::O_RDONLY => Access::Read,
        OpenAccMode::O_WRONLY => Access::Write,
        OpenAccMode::O_RDWR => Access::ReadWrite,
    }
}

/// Each method begins with a turn, at whose end the thread may have to wait. Methods missing here return ENOSYS, and
/// the kernel does not call them again: extended attributes, links, remote locks.
impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Features that an older kernel lacks are not used.
        for wished in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            let _ = config.add_capabilities(wished);
        }
        if self.0.options.passthrough && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            let _ = config.set_max_stack_depth(STACK_DEPTH);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX as u32);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.0.gate.turn();
        self.entry(parent, self.0.lookup(parent.0, name), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.0.gate.turn();
        self.attributes(ino, self.0.node(ino.0), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.0.gate.turn();
        self.attributes(ino, self.0.set(ino.0, handle.map(|handle| handle.0), size), reply);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        let _turn = self.0.gate.turn();
        self.entry(parent, self.0.make_directory(parent.0, name), reply);
    }

    fn mknod(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.0.gate.turn();
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.0.gate.turn();
        self.done(parent, None, self.0.remove_file(parent.0, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.0.gate.turn();
        self.done(parent, None, self.0.remove_directory(parent.0, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.0.gate.turn();
        let result = self.0.rename((parent.0, name), (newparent.0, newname), flags);
        self.done(parent, None, result, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.0.gate.turn();
        let how = (access_of(flags), flags.0 & libc::O_TRUNC != 0);
        let opened = self.0.open(ino.0, how, |descriptor| reply.open_backing(descriptor));
        match opened {
            Ok(opened) => match &opened.backing {
                Some(backing) => reply.opened_passthrough(FileHandle(opened.number), opened.flags, backing),
                None => reply.opened(FileHandle(opened.number), opened.flags),
            },
            Err(failure) => reply.error(self.0.number_of_node(ino.0, &failure)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.0.gate.turn();
        let access = access_of(OpenFlags(flags));
        let created = self.0.create(parent.0, name, access, |descriptor| reply.open_backing(descriptor));
        let (node, opened) = match created {
            Ok(created) => created,
            Err(failure) => return reply.error(self.0.number(parent.0, None, &failure)),
        };
        let (attributes, handle) = (self.0.owner.attributes(&node), FileHandle(opened.number));
        // One cache time for both name and attributes: the shorter one.
        let time = attribute_time(&node).min(NAME_TIME);
        match &opened.backing {
            Some(backing) => {
                reply.created_passthrough(&time, &attributes, GENERATION, handle, opened.flags, backing);
            }
            None => reply.created(&time, &attributes, GENERATION, handle, opened.flags),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.0.gate.turn();
        let file = match self.0.handles.file(handle.0) {
            Ok(handle) => Arc::clone(&handle.file),
            Err(failure) => return reply.error(failure.number()),
        };
        let mut reply = Some(reply);
        let result = contents::read(&*file, offset, size, |bytes| {
            if let Some(reply) = reply.take() {
                reply.data(bytes);
            }
        });
        if let (Err(failure), Some(reply)) = (result, reply) {
            let range = Extent::new(offset, u64::from(size));
            reply.error(self.0.number(ino.0, Some(range), &failure));
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.0.gate.turn();
        // Pages changed by a mapping arrive with any handle of the node.
        let is_synchronous = flags.0 & (libc::O_SYNC | libc::O_DSYNC) != 0;
        let is_mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let file = self.0.writable_file(handle.0);
        let result =
            file.and_then(|file| contents::write(&*file, offset, data, is_synchronous && !is_mapped));
        match result {
            Ok(()) => reply.written(data.len() as u32),
            Err(failure) => {
                let range = Extent::new(offset, data.len() as u64);
                reply.error(self.0.number(ino.0, Some(range), &failure));
            }
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let _turn = self.0.gate.turn();
        let handle = self.0.handles.file(handle.0);
        let result = handle.and_then(|handle| handle.file.close().map_err(Into::into));
        self.done(ino, None, result, reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.0.gate.turn();
        self.0.handles.remove_file(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let _turn = self.0.gate.turn();
        let handle = self.0.handles.file(handle.0);
        let result = handle.and_then(|handle| handle.file.sync().map_err(Failure::Contents));
        self.done(ino, None, result, reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _turn = self.0.gate.turn();
        match self.0.open_directory(ino.0) {
            Ok(number) => reply.opened(FileHandle(number), fuser::FopenFlags::empty()),
            Err(failure) => reply.error(self.0.number(ino.0, None, &failure)),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let _turn = self.0.gate.turn();
        let result = self.each_name(handle, offset, |next, name, id, node| {
            let kind = match node.kind {
                NodeKind::Directory => FileType::Directory,
                NodeKind::File { .. } => FileType::RegularFile,
            };
            reply.add(INodeNo(id), next, kind, name)
        });
        match result {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(self.0.number(ino.0, None, &failure)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.0.gate.turn();
        let result = self.each_name(handle, offset, |next, name, id, node| {
            // The snapshot may be outdated when later names are read; removed names must not reappear.
            let time = if offset == 0 { attribute_time(node).min(NAME_TIME) } else { Duration::ZERO };
            reply.add(INodeNo(id), next, name, &time, &self.0.owner.attributes(node), GENERATION)
        });
        match result {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(self.0.number(ino.0, None, &failure)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let _turn = self.0.gate.turn();
        self.0.handles.remove_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let _turn = self.0.gate.turn();
        // Name changes are durable before they are answered.
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _turn = self.0.gate.turn();
        let room = self.0.tree.room();
        let (total, free) = (room.total / u64::from(ROOM_UNIT), room.free / u64::from(ROOM_UNIT));
        reply.statfs(total, free, free, 0, 0, ROOM_UNIT, NAME_LENGTH_MAX as u32, ROOM_UNIT);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.0.gate.turn();
        let file = self.0.writable_file(handle.0);
        let result = file.and_then(|file| contents::allocate(&*file, offset, length, mode));
        self.done(ino, Some(Extent::new(offset, length)), result, reply);
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.0.gate.turn();
        let handle = self.0.handles.file(handle.0);
        match handle.and_then(|handle| contents::seek(&*handle.file, offset, whence)) {
            Ok(place) => reply.offset(i64::try_from(place).unwrap_or(i64::MAX)),
            Err(failure) => reply.error(self.0.number(ino.0, None, &failure)),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.0.gate.turn();
        let copy = || {
            let source = self.0.handles.file(handle_in.0)?;
            let target = self.0.writable_file(handle_out.0)?;
            contents::copy((&*source.file, offset_in), (&*target, offset_out), length)
        };
        match copy() {
            Ok(copied) => reply.written(copied),
            Err(failure) => {
                let range = Extent::new(offset_out, length);
                reply.error(self.0.number(ino_out.0, Some(range), &failure));
            }
        }
    }
}
