//! The operating system's files. Nothing is cached, retried or synced beyond what the caller requests.
//!
//! Files and directories are created for their owner only, whatever the umask: they contain disk contents.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags, fadvise, fallocate, fchmod, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::{Entry, Location, OTHERS, OpenMode, Vfs, VfsFile, write_zeros};

/// The mode of a new file.
const FILE_MODE: u32 = 0o600;
/// The mode of a new directory.
const DIRECTORY_MODE: u32 = 0o700;

/// The random id of this installation (machine-id(5)).
const MACHINE_ID: &str = "/etc/machine-id";

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsVfs;

impl Vfs for OsVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn VfsFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read).mode(FILE_MODE);
        options.create(mode == OpenMode::Create).create_new(mode == OpenMode::CreateNew);
        // Somebody may have put a link there before the directory became ours.
        let links = if mode == OpenMode::Read { OFlags::empty() } else { OFlags::NOFOLLOW };
        Ok(Box::new(OsFile(open_regular(&mut options, path, links)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(DIRECTORY_MODE).create(path)
    }

    fn access_of_others(&self, path: &Path) -> io::Result<u32> {
        let metadata = path.symlink_metadata()?;
        let is_contents = metadata.is_file() || metadata.is_dir();
        Ok(if is_contents { metadata.mode() & OTHERS } else { 0 })
    }

    fn close_to_others(&self, path: &Path) -> io::Result<()> {
        // Do not follow a link and do not wait for a pipe that someone may have put there in the meantime.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        restrict(&OpenOptions::new().read(true).custom_flags(flags).open(path)?)
    }

    fn is_ours(&self, path: &Path) -> io::Result<bool> {
        Ok(path.metadata()?.uid() == geteuid().as_raw())
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        Ok(path.symlink_metadata()?.is_symlink())
    }

    fn is_special(&self, path: &Path) -> io::Result<bool> {
        Ok(!path.metadata()?.is_file())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                let kind = entry.file_type()?;
                // Whoever opens a file below a link to a directory finds it there, too.
                let is_dir = kind.is_dir() || (kind.is_symlink() && entry.path().is_dir());
                entries.push(Entry { name, is_dir });
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        path.metadata().map(|metadata| Some((metadata.dev(), metadata.ino())))
    }

    fn links(&self, path: &Path) -> io::Result<u64> {
        path.metadata().map(|metadata| metadata.nlink())
    }

    fn location(&self, dir: &Path) -> io::Result<Option<Location>> {
        let machine = std::fs::read_to_string(MACHINE_ID).unwrap_or_default().trim().to_owned();
        let path = dir.canonicalize()?.to_string_lossy().into_owned();
        Ok(Some(Location { machine, path }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsFile>>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let file = open_regular(&mut options, path, OFlags::NOFOLLOW)?;
        // Anyone who can open a file can lock it and so block its owner. Only the owner can change the mode.
        if file.metadata()?.mode() & OTHERS != 0 {
            let _ = restrict(&file);
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(OsFile(file)))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(dir)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn random_id(&self) -> io::Result<[u8; 16]> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        Ok(id)
    }
}

/// Opens a regular file. Does not block if someone has put a pipe there.
fn open_regular(options: &mut OpenOptions, path: &Path, links: OFlags) -> io::Result<File> {
    let special = |what: &str| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("this is {what}, not a regular file"))
    };
    let opened = options.custom_flags((OFlags::NONBLOCK | links).bits().cast_signed()).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => special("a socket"),
        Some(Errno::LOOP) if !links.is_empty() => special("a link"),
        _ => error,
    })?;
    let kind = file.metadata()?.file_type();
    match kind.is_file() {
        true => Ok(file),
        false => Err(special(if kind.is_dir() { "a directory" } else { "a pipe or a device" })),
    }
}

/// Removes all access by users other than the owner.
fn restrict(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.mode() & !OTHERS;
    Ok(fchmod(file, Mode::from_raw_mode(mode))?)
}

/// An open file of the system. Closing it releases its lock, if it has one.
#[derive(Debug)]
struct OsFile(File);

impl VfsFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        match fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(self, offset, length),
            punched => Ok(punched?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(fadvise(&self.0, 0, None, Advice::DontNeed)?)
    }

    fn will_read(&self, offset: u64, length: u64) {
        // In one call, Linux reads at most as much as it would read ahead on its own.
        const PIECE: u64 = 128 << 10;
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end {
            let piece = PIECE.min(end - at);
            let _ = fadvise(&self.0, at, NonZeroU64::new(piece), Advice::WillNeed);
            at += piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::SimulatedDisk;

    /// The same checks for the system's files and for the simulated disk.
    fn check_behaviour(vfs: &dyn Vfs, root: &Path) {
        let (dir, file) = (root.join("d"), root.join("d/f"));
        vfs.create_dir(&dir).unwrap();
        assert_eq!(vfs.create_dir(&dir).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for mode in [OpenMode::Read, OpenMode::Write] {
            assert_eq!(vfs.open(&file, mode).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        let opened = vfs.open(&file, OpenMode::CreateNew).unwrap();
        assert_eq!(vfs.open(&file, OpenMode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        opened.write_all_at(b"cd", 2).unwrap();
        assert_eq!(opened.length().unwrap(), 4);
        let mut bytes = [9; 6];
        assert_eq!(opened.read_at(&mut bytes, 0).unwrap(), 4);
        assert_eq!(&bytes, b"\0\0cd\x09\x09");
        assert_eq!(opened.read_at(&mut bytes, 4).unwrap(), 0);
        assert_eq!(opened.read_exact_at(&mut bytes, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        opened.punch(1, 2).unwrap();
        opened.punch(3, 9).unwrap();
        opened.read_exact_at(&mut bytes[..4], 0).unwrap();
        assert_eq!((&bytes[..4], opened.length().unwrap()), (&[0; 4][..], 4), "the length stays");
        opened.set_length(3).unwrap();
        opened.sync().unwrap();
        vfs.sync_dir(&dir).unwrap();
        assert!(vfs.open(&file, OpenMode::Read).unwrap().write_at(b"x", 0).is_err());
        let moved = root.join("d/g");
        vfs.rename(&file, &moved).unwrap();
        assert!(!vfs.exists(&file).unwrap() && vfs.exists(&moved).unwrap());
        assert_eq!(vfs.open(&moved, OpenMode::Create).unwrap().length().unwrap(), 3);
        assert_eq!(vfs.list(root).unwrap(), [Entry { name: "d".into(), is_dir: true }]);
        assert_eq!(vfs.list(&dir).unwrap(), [Entry { name: "g".into(), is_dir: false }]);
        vfs.remove(&moved).unwrap();
        assert_eq!(vfs.remove(&moved).unwrap_err().kind(), io::ErrorKind::NotFound);
        let lock = vfs.lock(&file).unwrap().unwrap();
        assert!(vfs.lock(&file).unwrap().is_none());
        drop(lock);
        assert!(vfs.lock(&file).unwrap().is_some());
        assert_ne!(vfs.random_id().unwrap(), vfs.random_id().unwrap());
    }

    #[test]
    fn opening_a_pipe_fails_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create] {
            let error = OsVfs.open(&pipe, mode).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{mode:?}: {error}");
        }
        assert!(OsVfs.lock(&pipe).is_err());
        assert!(OsVfs.open(Path::new("/dev/zero"), OpenMode::Read).is_err());
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for (path, mode) in [(&socket, OpenMode::Read), (&socket, OpenMode::Write), (&link, OpenMode::Write)]
        {
            let error = OsVfs.open(path, mode).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{mode:?}: {error}");
        }
        assert!([&pipe, &socket, &link].iter().all(|path| OsVfs.is_special(path).unwrap()));
    }

    #[test]
    fn write_zeros_replaces_a_hole() {
        let folder = tempfile::tempdir().unwrap();
        let file = OsVfs.open(&folder.path().join("f"), OpenMode::CreateNew).unwrap();
        file.write_all_at(&[7; 200_000], 0).unwrap();
        write_zeros(&*file, 10, 150_000).unwrap();
        write_zeros(&*file, 199_999, u64::MAX).unwrap();
        let mut bytes = vec![0; 200_001];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 200_000, "the length stays");
        let expected = |at| if (10..150_010).contains(&at) || at >= 199_999 { 0 } else { 7 };
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    }

    /// The umask belongs to the whole process and all test threads: this test only narrows it, and its value
    /// does not matter.
    #[test]
    fn new_files_are_accessible_to_their_owner_only() {
        let before = rustix::process::umask(Mode::empty());
        let folder = tempfile::tempdir().unwrap();
        let (dir, file) = (folder.path().join("d"), folder.path().join("d/f"));
        let lock = folder.path().join("d/lock");
        OsVfs.create_dir(&dir).unwrap();
        drop(OsVfs.open(&file, OpenMode::CreateNew).unwrap());
        drop(OsVfs.lock(&lock).unwrap());
        rustix::process::umask(before);
        let mode = |path: &Path| path.symlink_metadata().unwrap().mode() & 0o7777;
        assert_eq!([mode(&dir), mode(&file), mode(&lock)], [0o700, 0o600, 0o600]);
    }

    #[test]
    fn access_of_others_is_reported_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("f"), folder.path().join("l"));
        let widen = || {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o654);
            std::fs::set_permissions(&file, mode).unwrap();
        };
        drop(OsVfs.open(&file, OpenMode::Create).unwrap());
        assert_eq!(OsVfs.access_of_others(&file).unwrap(), 0);
        widen();
        assert_eq!(OsVfs.access_of_others(&file).unwrap(), 0o054);
        OsVfs.close_to_others(&file).unwrap();
        assert_eq!(OsVfs.access_of_others(&file).unwrap(), 0);
        widen();
        drop(OsVfs.lock(&file).unwrap());
        assert_eq!(OsVfs.access_of_others(&file).unwrap(), 0, "locking removes it");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(OsVfs.access_of_others(&link).unwrap(), 0);
        assert!(OsVfs.close_to_others(&link).is_err());
    }

    #[test]
    fn system_and_simulation_behave_alike() {
        let folder = tempfile::tempdir().unwrap();
        check_behaviour(&OsVfs, folder.path());
        check_behaviour(&SimulatedDisk::new(1), Path::new("/"));
    }
}
