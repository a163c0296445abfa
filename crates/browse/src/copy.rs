//! Copies files and trees out of an image: contents, modes, owners, times, links, attributes, devices.
//!
//! Why no name or link in an image leads to another place: every file is created with `O_EXCL` and without following links,
//! relative to the open directory that was created for its parent. Directories have mode 0700 until they are complete. Names
//! with `/` are refused by the reader of directories.
//!
//! Only root can set owners, devices and most attributes; what could not be set is counted.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platter_fetch::StoreLocation;
use platter_filesystem::{Attribute, FileInode, FileKind, FileTree, Listing, Piece, escaped, resolve};
use platter_image::{Error, ErrorKind, IoContext, Result};
use rustix::fs::{self as sys, AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags};
use serde::Serialize;

use crate::location::FileLocation;
use crate::opened::{SEVERAL_NAMES, open_directory, with_files};

/// Deeper directories are not copied: each level keeps a directory open.
const DEPTH_MAX: usize = 400;
/// The most messages about single files; further ones are counted.
const MESSAGES_MAX: usize = 100;

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Number of files that are no directories.
    pub files: u64,
    /// Number of directories.
    pub directories: u64,
    /// Bytes of contents, with holes.
    pub bytes: u64,
    /// Number of files and directories that could not be read or created.
    pub failed: u64,
    /// Why, one message each; at most a hundred.
    pub failures: Vec<String>,
    /// Number of owners, modes, times and attributes that could not be set, usually because only root may.
    pub not_set: u64,
    /// The first reason.
    pub not_set_reason: Option<String>,
    /// Whether root copied, who may set all of these.
    pub as_root: bool,
}

impl CopyReport {
    /// Whether all was copied that the user may set.
    pub fn is_complete(&self) -> bool {
        self.failed == 0 && !(self.as_root && self.not_set > 0)
    }
}

/// Copies a file, or with `recursive` a directory with everything below it, to `target`. An existing directory receives it
/// under its own name. Nothing is overwritten.
///
/// # Errors
/// `Missing` if there is no such version or path; `Refused` if the target exists, or a directory is to be copied without
/// `recursive`; those of reading the disk, and of writing when the disk is full.
pub fn copy_out(
    store: &StoreLocation,
    location: &FileLocation,
    target: &Path,
    recursive: bool,
) -> Result<CopyReport> {
    with_files(store, location, |files, path| {
        let inode = resolve(files, path, true)?;
        let is_directory = inode.metadata().kind == FileKind::Directory;
        if is_directory && !recursive {
            return Err(Error::refused(format!("{location} is a directory: add --recursive")));
        }
        let target = named_target(path, target)?;
        let name = target.file_name().unwrap_or_default().to_owned();
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let opened = sys::open(parent, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let opened = opened.map_err(io::Error::from).context(|| format!("opening {}", parent.display()))?;
        let is_root = rustix::process::geteuid().is_root();
        let (links, report) = (HashMap::new(), CopyReport { as_root: is_root, ..CopyReport::default() });
        let mut copy = Copy { files, is_root, links, report, seen: HashSet::new() };
        copy.run(&opened, &name, inode)?;
        Ok(copy.report)
    })
}

/// Returns the path to create.
fn named_target(path: &[u8], target: &Path) -> Result<PathBuf> {
    let target = match Path::new(OsStr::from_bytes(path)).file_name() {
        Some(name) if target.is_dir() => target.join(name),
        _ => target.to_owned(),
    };
    match std::fs::symlink_metadata(&target) {
        Ok(_) => Err(Error::refused(format!("{} exists: nothing is overwritten", target.display()))),
        Err(_) => Ok(target),
    }
}

/// A directory that is being filled.
struct Level {
    directory: OwnedFd,
    inode: FileInode,
    listing: Listing,
    next: usize,
    /// Length of the path of its parent.
    path_length: usize,
}

struct Copy<'f> {
    files: &'f mut dyn FileTree,
    is_root: bool,
    /// Paths, below the target's parent, of files with several names.
    links: HashMap<u64, Vec<u8>>,
    report: CopyReport,
    /// Directories that were entered.
    seen: HashSet<u64>,
}

impl Copy<'_> {
    fn run(&mut self, parent: &OwnedFd, name: &OsStr, inode: FileInode) -> Result<()> {
        let mut path = name.as_bytes().to_vec();
        let mut stack = Vec::new();
        if inode.metadata().kind != FileKind::Directory {
            return self
                .file(parent.as_fd(), name.as_bytes(), &inode)
                .map_err(|error| error.within(escaped(&path)));
        }
        stack.push(self.enter(parent.as_fd(), name.as_bytes(), inode, 0)?);
        self.faults(stack.last(), &path);
        while let Some(level) = stack.last_mut() {
            let Some((name, number)) = level.listing.get(level.next) else {
                let Some(level) = stack.pop() else { break };
                match self.finish(level.directory.as_fd(), &level.inode) {
                    Err(error) if is_of_one_file(&error) => self.failed(&path, &error),
                    finished => finished?,
                }
                path.truncate(level.path_length);
                continue;
            };
            level.next += 1;
            let name = name.to_vec();
            let before = path.len();
            path.push(b'/');
            path.extend_from_slice(&name);
            let depth = stack.len();
            let Some(level) = stack.last() else { break };
            let done = self.child(parent, level.directory.as_fd(), (&name, number), &path, (depth, before));
            match done {
                Ok(Some(deeper)) => {
                    stack.push(deeper);
                    self.faults(stack.last(), &path);
                    continue;
                }
                Ok(None) => {}
                Err(error) if is_of_one_file(&error) => self.failed(&path, &error),
                Err(error) => return Err(error),
            }
            path.truncate(before);
        }
        Ok(())
    }

    /// Copies one name in a directory. Returns the directory to fill if it is one.
    fn child(
        &mut self,
        top: &OwnedFd,
        directory: BorrowedFd<'_>,
        (name, number): (&[u8], u64),
        path: &[u8],
        (depth, before): (usize, usize),
    ) -> Result<Option<Level>> {
        let inode = self.files.inode(number)?;
        if inode.metadata().kind == FileKind::Directory {
            if !self.seen.insert(number) {
                return Err(Error::corrupt(SEVERAL_NAMES));
            }
            if depth >= DEPTH_MAX {
                return Err(Error::refused(format!("deeper than {DEPTH_MAX} directories")));
            }
            return self.enter(directory, name, inode, before).map(Some);
        }
        if inode.metadata().links > 1 {
            if let Some(first) = self.links.get(&number) {
                link(top.as_fd(), first, directory, name)?;
                self.report.files += 1;
                return Ok(None);
            }
            self.file(directory, name, &inode)?;
            self.links.insert(number, path.to_vec());
            return Ok(None);
        }
        self.file(directory, name, &inode)?;
        Ok(None)
    }

    /// Counts the names in a directory that are left out.
    fn faults(&mut self, level: Option<&Level>, path: &[u8]) {
        for fault in level.into_iter().flat_map(|level| level.listing.faults()) {
            self.failed(path, &Error::corrupt(fault.clone()));
        }
    }

    fn failed(&mut self, path: &[u8], error: &Error) {
        self.report.failed += 1;
        if self.report.failures.len() < MESSAGES_MAX {
            self.report.failures.push(format!("{}: {}", escaped(path), error.with_causes()));
        }
    }

    fn enter(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        inode: FileInode,
        path_length: usize,
    ) -> Result<Level> {
        self.seen.insert(inode.number());
        let listing = open_directory(self.files, &inode)?;
        sys::mkdirat(parent, name, Mode::RWXU).map_err(|error| created(name, error))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory =
            sys::openat(parent, name, flags, Mode::empty()).map_err(|error| created(name, error))?;
        self.report.directories += 1;
        Ok(Level { directory, inode, listing, next: 0, path_length })
    }

    /// Sets what an open file or directory has besides its contents. Damaged attributes do not keep it from the rest.
    fn finish(&mut self, file: BorrowedFd<'_>, inode: &FileInode) -> Result<()> {
        let metadata = inode.metadata();
        if self.is_root {
            let done = sys::fchown(file, Some(uid(metadata.owner.0)), Some(gid(metadata.owner.1)));
            self.set("the owner", done);
        }
        let attributes = self.files.attributes(inode);
        for attribute in attributes.iter().flatten().filter(|attribute| is_of_the_system(attribute)) {
            let Attribute { name, value } = attribute;
            let done = sys::fsetxattr(file, name.as_slice(), value, XattrFlags::empty());
            self.set(&escaped(name), done);
        }
        // After the owner, whose change clears these bits. Nobody but root gives away who runs a program.
        let mode = if self.is_root { metadata.mode } else { metadata.mode & 0o1777 };
        let done = sys::fchmod(file, Mode::from_raw_mode(u32::from(mode)));
        self.set("the mode", done);
        let done = sys::futimens(file, &times(inode));
        self.set("the time", done);
        attributes.map(drop)
    }

    fn set(&mut self, what: &str, done: rustix::io::Result<()>) {
        if let Err(error) = done {
            self.report.not_set += 1;
            self.report.not_set_reason.get_or_insert_with(|| format!("{what}: {error}"));
        }
    }

    fn file(&mut self, directory: BorrowedFd<'_>, name: &[u8], inode: &FileInode) -> Result<()> {
        match inode.metadata().kind {
            FileKind::Regular => self.regular(directory, name, inode)?,
            FileKind::Link => self.symbolic_link(directory, name, inode)?,
            _ => self.special(directory, name, inode)?,
        }
        self.report.files += 1;
        Ok(())
    }

    fn regular(&mut self, directory: BorrowedFd<'_>, name: &[u8], inode: &FileInode) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = sys::openat(directory, name, flags, Mode::RUSR | Mode::WUSR);
        let file = std::fs::File::from(file.map_err(|error| created(name, error))?);
        let context = || format!("writing {}", escaped(name));
        let written = self.files.visit_contents(inode, &mut |offset, piece| match piece {
            Piece::Zeros(_) => Ok(()),
            Piece::Bytes(bytes) => {
                std::os::unix::fs::FileExt::write_all_at(&file, bytes, offset).context(context)
            }
        });
        let written = written.and_then(|()| file.set_len(inode.metadata().size).context(context));
        if let Err(error) = written {
            // A part of a file could pass for all of it.
            let _ = sys::unlinkat(directory, name, AtFlags::empty());
            return Err(error);
        }
        self.report.bytes += inode.metadata().size;
        self.finish(file.as_fd(), inode)
    }

    fn symbolic_link(&mut self, directory: BorrowedFd<'_>, name: &[u8], inode: &FileInode) -> Result<()> {
        if inode.is_encrypted() {
            return Err(Error::refused("the link's target is encrypted, and the key is not in the image"));
        }
        let target = self.files.target(inode)?;
        sys::symlinkat(target.as_slice(), directory, name).map_err(|error| created(name, error))?;
        self.finish_by_name(directory, name, inode)
    }

    fn special(&mut self, directory: BorrowedFd<'_>, name: &[u8], inode: &FileInode) -> Result<()> {
        let metadata = inode.metadata();
        let kind = match metadata.kind {
            FileKind::CharacterDevice => sys::FileType::CharacterDevice,
            FileKind::BlockDevice => sys::FileType::BlockDevice,
            FileKind::Socket => sys::FileType::Socket,
            _ => sys::FileType::Fifo,
        };
        let mode = Mode::from_raw_mode(u32::from(metadata.mode & 0o777));
        let (major, minor) = metadata.device;
        sys::mknodat(directory, name, kind, mode, sys::makedev(major, minor))
            .map_err(|error| created(name, error))?;
        self.finish_by_name(directory, name, inode)?;
        let done =
            sys::chmodat(directory, name, Mode::from_raw_mode(u32::from(metadata.mode)), AtFlags::empty());
        self.set("the mode", done);
        Ok(())
    }

    /// Sets owner and time of a file that is not opened.
    fn finish_by_name(&mut self, directory: BorrowedFd<'_>, name: &[u8], inode: &FileInode) -> Result<()> {
        let owner = inode.metadata().owner;
        if self.is_root {
            let done = sys::chownat(
                directory,
                name,
                Some(uid(owner.0)),
                Some(gid(owner.1)),
                AtFlags::SYMLINK_NOFOLLOW,
            );
            self.set("the owner", done);
            let path = [format!("/proc/self/fd/{}/", directory.as_raw_fd()).as_bytes(), name].concat();
            for attribute in self.files.attributes(inode)? {
                if is_of_the_system(&attribute) {
                    let Attribute { name, value } = attribute;
                    let done = sys::lsetxattr(&path[..], name.as_slice(), &value, XattrFlags::empty());
                    self.set(&escaped(&name), done);
                }
            }
        }
        let done = sys::utimensat(directory, name, &times(inode), AtFlags::SYMLINK_NOFOLLOW);
        self.set("the time", done);
        Ok(())
    }
}

/// Gives a file that was copied another name. `first` is its path below `top`.
fn link(top: BorrowedFd<'_>, first: &[u8], directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let only_below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file =
        sys::openat2(top, first, flags, Mode::empty(), only_below).map_err(|error| created(name, error))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    sys::linkat(CWD, path, directory, name, AtFlags::SYMLINK_FOLLOW).map_err(|error| created(name, error))
}

fn created(name: &[u8], error: rustix::io::Errno) -> Error {
    if error == rustix::io::Errno::EXIST {
        return Error::refused(format!("{} exists: nothing is overwritten", escaped(name)));
    }
    let error = Err::<(), _>(io::Error::from(error)).context(|| format!("creating {}", escaped(name)));
    error.err().unwrap_or_else(|| Error::bug("an error is none"))
}

/// Whether other files can still be copied after this error.
fn is_of_one_file(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    // Too large a file, also for the numbers of the system.
    let is_known = source.is_some_and(|source| {
        use io::ErrorKind::{FileTooLarge, InvalidInput, PermissionDenied};
        matches!(source.kind(), PermissionDenied | FileTooLarge | InvalidInput)
    });
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused | ErrorKind::Missing) || is_known
}

fn uid(number: u32) -> sys::Uid {
    sys::Uid::from_raw(number)
}

fn gid(number: u32) -> sys::Gid {
    sys::Gid::from_raw(number)
}

fn times(inode: &FileInode) -> Timestamps {
    let (seconds, nanoseconds) = inode.metadata().mtime;
    let omitted = Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT };
    let modified = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds.min(999_999_999)) };
    Timestamps { last_access: omitted, last_modification: modified }
}

/// Whether an attribute has a name that the system knows.
pub(crate) fn is_of_the_system(attribute: &Attribute) -> bool {
    const PREFIXES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
    PREFIXES.iter().any(|prefix| attribute.name.starts_with(prefix))
}
