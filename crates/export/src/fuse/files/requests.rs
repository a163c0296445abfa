//! Decodes and answers the kernel's requests.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuser::{
    AccessFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use platter_image::{Error, ErrorKind, Extent, Result};

use super::attributes::{attributes, cache_time, file_type};
use crate::errno::errno_of;
use crate::file_view::{FileView, ViewKind, ViewNode};
use crate::fuse::contents::REQUEST_BYTES_MAX;
use crate::fuse::event::FuseEvent;
use crate::fuse::server::FuseOptions;
use crate::tree::NodeId;

/// A number always names the same node.
const GENERATION: Generation = Generation(0);
/// Maximum concurrent read-ahead requests of the kernel.
const BACKGROUND_MAX: u16 = 64;
/// No open file or directory has a state.
const NO_HANDLE: FileHandle = FileHandle(0);
/// The most bytes of an attribute's value, and of all names of a file's attributes, as in the kernel.
const ATTRIBUTES_MAX: usize = 64 << 10;
/// Maximum bytes of a name, as in the kernel. Names of NTFS and exFAT have up to 765.
const NAME_LENGTH_MAX: usize = 1024;
/// Size of a block in the answer to `statfs`.
const BLOCK: u32 = 4096;

thread_local! {
    /// One buffer per serving thread, so that reads need not allocate.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The mounted view.
pub(super) struct Served {
    pub(super) view: Arc<dyn FileView>,
    pub(super) options: FuseOptions,
    /// New opens are refused (shutdown).
    pub(super) is_ending: AtomicBool,
}

/// The filesystem that the kernel talks to.
pub(super) struct Requests(pub(super) Arc<Served>);

impl Requests {
    /// The error number for the program; whoever runs the server gets the error.
    fn number(&self, node: NodeId, range: Option<Extent>, error: &Error) -> Errno {
        if error.kind() != ErrorKind::Missing {
            (self.0.options.on_event)(&FuseEvent::RequestFailed { node, range, error });
        }
        Errno::from_i32(errno_of(error).raw_os_error())
    }

    fn check_not_ending(&self) -> std::result::Result<(), Errno> {
        if self.0.is_ending.load(Ordering::Relaxed) { Err(Errno::ESHUTDOWN) } else { Ok(()) }
    }

    /// Passes the names of a directory to `add` from an offset on, until it says that there is no more room: with the offset to
    /// go on from. `.` and `..` have the first two offsets.
    fn each_name(
        &self,
        directory: NodeId,
        offset: u64,
        mut add: impl FnMut(u64, &[u8], std::result::Result<ViewNode, NodeId>) -> bool,
    ) -> Result<()> {
        let own = self.0.view.node(directory)?;
        for (at, dots) in [(0, &b"."[..]), (1, b"..")] {
            if offset <= at && add(at + 1, dots, Ok(own)) {
                return Ok(());
            }
        }
        self.0.view.list(directory, offset.saturating_sub(2), &mut |at, name, node| match name.len()
            <= NAME_LENGTH_MAX
            && add(at + 3, name, node)
        {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    fn attribute_reply(&self, id: INodeNo, size: u32, found: Result<Option<Vec<u8>>>, reply: ReplyXattr) {
        match found {
            Ok(Some(bytes)) if bytes.len() > ATTRIBUTES_MAX => reply.error(Errno::E2BIG),
            Ok(Some(bytes)) if size == 0 => reply.size(bytes.len() as u32),
            Ok(Some(bytes)) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(Some(bytes)) => reply.data(&bytes),
            Ok(None) => reply.error(Errno::NO_XATTR),
            Err(error) => reply.error(self.number(id.0, None, &error)),
        }
    }
}

/// Methods missing here are answered with ENOSYS, and the kernel refuses all changes by itself, because the mount is read-only.
impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Features that an older kernel lacks are not used.
        for wished in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            let _ = config.add_capabilities(wished);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX as u32);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name.len() > NAME_LENGTH_MAX {
            return reply.error(Errno::ENAMETOOLONG);
        }
        match self.0.view.lookup(parent.0, name.as_bytes()) {
            Ok(node) => reply.entry(&cache_time(&node), &attributes(&node), GENERATION),
            Err(error) => reply.error(self.number(parent.0, None, &error)),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.view.node(ino.0) {
            Ok(node) => reply.attr(&cache_time(&node), &attributes(&node)),
            Err(error) => reply.error(self.number(ino.0, None, &error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.0.view.target(ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.number(ino.0, None, &error)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        if let Err(number) = self.check_not_ending() {
            return reply.error(number);
        }
        match self.0.view.open(ino.0) {
            Ok(()) => reply.opened(NO_HANDLE, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
            Err(error) => reply.error(self.number(ino.0, None, &error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // The read must not be shortened: the kernel takes a short reply as the end of the file.
        let size = size as usize;
        if size > REQUEST_BYTES_MAX {
            return reply.error(Errno::EINVAL);
        }
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.0.view.read(ino.0, offset, &mut buffer[..size]) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => {
                    let range = Extent::new(offset, size as u64);
                    reply.error(self.number(ino.0, Some(range), &error));
                }
            }
        });
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if let Err(number) = self.check_not_ending() {
            return reply.error(number);
        }
        match self.0.view.node(ino.0) {
            Ok(node) if node.kind == ViewKind::Directory => {
                let flags = if node.is_fixed {
                    FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE
                } else {
                    FopenFlags::empty()
                };
                reply.opened(NO_HANDLE, flags);
            }
            Ok(_) => reply.error(Errno::ENOTDIR),
            Err(error) => reply.error(self.number(ino.0, None, &error)),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.each_name(ino.0, offset, |next, name, node| {
            let (id, kind) = match node {
                Ok(node) => (node.id, file_type(node.kind)),
                Err(id) => (id, FileType::RegularFile),
            };
            reply.add(INodeNo(id), next, kind, OsStr::from_bytes(name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.number(ino.0, None, &error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.each_name(ino.0, offset, |next, name, node| {
            // The kernel asks again for a node that could not be read, and gets the error.
            let (node, time) = match node {
                Ok(node) => (node, cache_time(&node)),
                Err(id) => (unreadable(id), Duration::ZERO),
            };
            let name = OsStr::from_bytes(name);
            reply.add(INodeNo(node.id), next, name, &time, &attributes(&node), GENERATION)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.number(ino.0, None, &error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, BLOCK, NAME_LENGTH_MAX as u32, BLOCK);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = self.0.view.attributes(ino.0);
        let value = |all: Vec<(Vec<u8>, Vec<u8>)>| {
            all.into_iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value)
        };
        self.attribute_reply(ino, size, found.map(value), reply);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = |all: Vec<(Vec<u8>, Vec<u8>)>| {
            Some(all.into_iter().flat_map(|(name, _)| name.into_iter().chain([0])).collect())
        };
        self.attribute_reply(ino, size, self.0.view.attributes(ino.0).map(names), reply);
    }

    fn access(&self, _: &Request, _: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        match mask.contains(AccessFlags::W_OK) {
            true => reply.error(Errno::EROFS),
            false => reply.ok(),
        }
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let is_hole = match whence {
            libc::SEEK_DATA => false,
            libc::SEEK_HOLE => true,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.0.view.seek(ino.0, offset, is_hole) {
            Ok(Some(place)) => reply.offset(i64::try_from(place).unwrap_or(i64::MAX)),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(self.number(ino.0, None, &error)),
        }
    }
}

/// What the kernel gets for a node that could not be read, for no time.
fn unreadable(id: NodeId) -> ViewNode {
    ViewNode {
        id,
        kind: ViewKind::Regular,
        mode: 0,
        owner: (0, 0),
        size: 0,
        allocated: 0,
        times: [(0, 0); 3],
        links: 0,
        device: (0, 0),
        is_fixed: false,
    }
}
