//! The only file operations that durable parts may use.
//!
//! Contains the trait through which stores and overlays access files ([`Vfs`]), its implementation on the
//! operating system ([`OsVfs`]), and a simulated disk ([`simulated::SimulatedDisk`]) that loses or tears
//! unsynced data and can fail any call. It is a crate of its own so that all knowledge about durability is in
//! one place. It must never hide an error, retry a failed sync, or sync more than requested.
//!
//! As on POSIX, [`VfsFile::sync`] makes a file's bytes and length durable, and [`Vfs::sync_dir`] makes the
//! names in a directory durable (a new file, a rename, a removal). Neither replaces the other.

mod directories;
mod os;
pub mod simulated;
mod whole;

use std::fmt::Debug;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use directories::{create_dirs, remove_if_there};
pub use os::OsVfs;
pub use whole::{read_whole, replace};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; it must not exist.
    CreateNew,
    /// For reading and writing; it is created if it does not exist, and otherwise kept unchanged.
    Create,
}

/// The mode bits that grant access to a file's group and to all other users.
pub const OTHERS: u32 = 0o077;

/// Where a directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The id of the machine; empty if it has none.
    pub machine: String,
    /// The absolute path, without links. Bytes that are not UTF-8 are replaced.
    pub path: String,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name, without the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A filesystem as durable parts see it. All calls may be made from many threads.
pub trait Vfs: Debug + Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound` or `AlreadyExists`, depending on the mode; other system errors.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn VfsFile>>;

    /// Renames a file within its directory, replacing an existing file of the new name. Durable after
    /// [`Vfs::sync_dir`].
    ///
    /// # Errors
    /// System errors.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable after [`Vfs::sync_dir`].
    ///
    /// # Errors
    /// `NotFound`; other system errors.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory in an existing parent. Durable after [`Vfs::sync_dir`] of the parent.
    ///
    /// # Errors
    /// `AlreadyExists`; other system errors.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The bits of [`OTHERS`] that are set for a file or directory; 0 for other kinds of files.
    ///
    /// # Errors
    /// `NotFound`; other system errors.
    fn access_of_others(&self, _path: &Path) -> io::Result<u32> {
        Ok(0)
    }

    /// Clears the bits of [`OTHERS`].
    ///
    /// # Errors
    /// System errors; only the owner may do this.
    fn close_to_others(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Whether the file or directory belongs to the user of this process.
    ///
    /// # Errors
    /// `NotFound`; other system errors.
    fn is_ours(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }

    /// Whether the name is that of a symbolic link.
    ///
    /// # Errors
    /// `NotFound`; other system errors.
    fn is_link(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Whether the name is that of something else than a regular file, such as a pipe or a device. A link counts as what it leads to.
    /// For files that others open: [`Vfs::open`] looks by itself.
    ///
    /// # Errors
    /// `NotFound`; other system errors.
    fn is_special(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// System errors; it is then unknown which names are durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// The entries of a directory, sorted by name. Names that are not UTF-8 are skipped: Platter creates
    /// none.
    ///
    /// # Errors
    /// `NotFound`; other system errors.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Whether a file or directory with that name exists.
    ///
    /// # Errors
    /// System errors.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Returns numbers that differ if the name now belongs to another file than before; `None` if that is unknown.
    ///
    /// # Errors
    /// System errors.
    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        let _ = path;
        Ok(None)
    }

    /// Returns how many names a file has, in all directories.
    ///
    /// # Errors
    /// System errors.
    fn links(&self, path: &Path) -> io::Result<u64> {
        let _ = path;
        Ok(1)
    }

    /// Returns where a directory is; `None` if that is unknown. A copy of it, or the directory after it was moved, is elsewhere.
    ///
    /// # Errors
    /// System errors.
    fn location(&self, dir: &Path) -> io::Result<Option<Location>> {
        let _ = dir;
        Ok(None)
    }

    /// Takes the exclusive advisory lock on a file, creating it if necessary; `None` if someone else holds
    /// the lock. It is released when the returned file is dropped or the process dies.
    ///
    /// # Errors
    /// System errors.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsFile>>>;

    /// How many bytes can still be stored in the filesystem of a directory. Others may use them at any time.
    ///
    /// # Errors
    /// System errors.
    fn free_space(&self, dir: &Path) -> io::Result<u64>;

    /// Sixteen unpredictable bytes, for ids that never repeat.
    ///
    /// # Errors
    /// System errors.
    fn random_id(&self) -> io::Result<[u8; 16]>;
}

/// An open file, accessed by offset from many threads.
pub trait VfsFile: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer at the end of the file, 0 beyond it.
    ///
    /// # Errors
    /// System errors.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes up to `bytes.len()` bytes at `offset` and returns how many were written. The file grows as
    /// needed.
    ///
    /// # Errors
    /// System errors; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Sets the length: truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// System errors.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes the part of a range that lies inside the file read as zeros, and frees its space if the
    /// filesystem can. The length does not change. As durable as a write; where holes are not supported,
    /// zeros are written.
    ///
    /// # Errors
    /// System errors; some of the bytes may be zeros.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        write_zeros(self, offset, length)
    }

    /// Returns once the file's bytes and length are durable. Its name is not included.
    ///
    /// # Errors
    /// System errors. Everything written since the last successful sync is then uncertain for good: a later
    /// successful sync proves nothing about it (Rebello et al., ATC 2020).
    fn sync(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// System errors.
    fn length(&self) -> io::Result<u64>;

    /// Makes later reads come from the disk instead of memory, as far as the system can: after a failed sync,
    /// memory may hold data that the disk lacks. Unsynced data is not lost by this call.
    ///
    /// # Errors
    /// System errors.
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }

    /// Announces that this range will be read soon, so that the system can read it ahead. Only a hint; does
    /// not wait.
    fn will_read(&self, _offset: u64, _length: u64) {}

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends first; other system errors.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// `WriteZero` when the system accepts no more bytes; other system errors. Some of the bytes may have
    /// been written.
    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// [`VfsFile::punch`] where holes are not supported.
fn write_zeros<F: VfsFile + ?Sized>(file: &F, offset: u64, length: u64) -> io::Result<()> {
    const ZEROS: &[u8] = &[0; 64 << 10];
    let end = offset.saturating_add(length).min(file.length()?);
    let mut at = offset;
    while at < end {
        let piece = (end - at).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..piece as usize], at)?;
        at += piece;
    }
    Ok(())
}
