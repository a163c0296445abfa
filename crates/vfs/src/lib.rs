//! The few file operations that durable parts may use, and nothing else.
//!
//! Owns the one trait ([`Vfs`]) through which stores and overlays touch files, its implementation on the operating
//! system ([`OsVfs`]), and a simulated disk ([`simulated::SimulatedDisk`]) that loses what was not synced, tears
//! what was, and fails any call. A crate of its own so that the truth about durability stands in one place. It
//! must never hide an error, retry a failed sync, or sync more than it was asked to.
//!
//! What makes bytes durable, here as on POSIX: [`VfsFile::sync`] for a file's bytes and length, [`Vfs::sync_dir`]
//! for the names in a directory (a new file's name, a rename, a removal). Neither does the other's work.

mod os;
pub mod simulated;
mod whole;

use std::fmt::Debug;
use std::io;
use std::path::Path;

pub use os::OsVfs;
pub use whole::{read_whole, replace};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenMode {
    /// To read; it must exist.
    Read,
    /// To read and write; it must exist.
    Write,
    /// To read and write; it must not exist yet.
    CreateNew,
    /// To read and write; made when it does not exist, kept as it is when it does.
    Create,
}

/// Those bits of a file's mode that let its group and everybody else in.
pub const OTHERS: u32 = 0o077;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name, without its directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// The world of files as durable parts see it. Every call may be made from many threads.
pub trait Vfs: Debug + Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` as the mode has it; or what the system says.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn VfsFile>>;

    /// Gives a file another name in the same directory, replacing a file of that name. Durable after
    /// [`Vfs::sync_dir`].
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Durable after [`Vfs::sync_dir`].
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes one directory, whose parent exists. Durable after [`Vfs::sync_dir`] of the parent.
    ///
    /// # Errors
    /// `AlreadyExists`, or what the system says.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Which bits of [`OTHERS`] a file or directory has; none for whatever is neither.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    fn access_of_others(&self, _path: &Path) -> io::Result<u32> {
        Ok(0)
    }

    /// Takes these bits away.
    ///
    /// # Errors
    /// What the system says: only the owner may.
    fn close_to_others(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the system says; which names are durable is then unknown.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// What a directory holds, sorted by name. Names that are not UTF-8 are left out: nothing of ours has one.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Whether a file or directory of that name exists.
    ///
    /// # Errors
    /// What the system says.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Takes the exclusive lock on a file, which is made when missing: `None` when somebody else has it. Advisory;
    /// released when the file is dropped or its process dies.
    ///
    /// # Errors
    /// What the system says.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsFile>>>;

    /// Sixteen unpredictable bytes, for names that are never used twice.
    ///
    /// # Errors
    /// What the system says.
    fn random_id(&self) -> io::Result<[u8; 16]>;
}

/// An open file, used by offset from many threads.
pub trait VfsFile: Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer at the end of the file, 0 past it.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes up to `bytes.len()` bytes at `offset`; the file grows as needed. May write fewer.
    ///
    /// # Errors
    /// What the system says; some of the bytes may stand in the file.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Sets the length: cuts off, or adds zeros.
    ///
    /// # Errors
    /// What the system says.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes the part of a range that lies inside the file read as zeros, and gives its space back where the filesystem
    /// can. The length stays. As durable as a write; without a hole punched, it is one.
    ///
    /// # Errors
    /// What the system says; some of the bytes may be zeros.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        write_zeros(self, offset, length)
    }

    /// Returns when the bytes and the length are durable; not the name.
    ///
    /// # Errors
    /// What the system says. What was written since the last success is then in doubt for ever: a later success
    /// says nothing about it (Rebello et al., ATC 2020).
    fn sync(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn length(&self) -> io::Result<u64>;

    /// What is read from now on comes from the disk, as far as the system can do that, and not from memory: after a failed
    /// sync, memory may hold what the disk does not. Of what was not synced nothing is lost by it.
    ///
    /// # Errors
    /// What the system says.
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }

    /// This range will be read soon: a system that can do so reads it meanwhile. Only a hint, which nobody waits for.
    fn will_read(&self, _offset: u64, _length: u64) {}

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; or what the system says.
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
    /// `WriteZero` when the system takes no more; or what it says. Some of the bytes may stand in the file.
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

/// What [`VfsFile::punch`] does where no hole can be punched.
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
