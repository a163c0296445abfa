//! A look at the files inside a version, without installing it: partitions, names, contents, copies of trees.
//!
//! It reads the version as a disk, through the same stack of sources as a live disk, and the filesystem on it with the readers
//! of `filesystem`; it never mounts anything. Only blocks with the wanted directories, inodes and contents are read. It is a
//! crate of its own because it writes files that a stranger named: everything that guards against hostile names and links is
//! here ([`copy_out`]).
//!
//! Must never follow a symbolic link outside of the filesystem in which it is stored, and never overwrite a file.

mod contents;
mod copy;
mod entry;
mod location;
mod mount;
mod open_filesystem;
mod opened;
mod partitions;
mod read;
mod version_files;

pub use copy::{CopyReport, copy_out};
pub use entry::partition_name;
pub use location::{FileLocation, PartitionName};
pub use mount::{Admit, MountEvent, MountRequest, mount};
pub use opened::{Visit, find, list, partitions};
pub use platter_api::{DirectoryPage, FileEntry, FileType, PartitionEntry};
pub use platter_fetch::memory_cache;
pub use platter_filesystem::escaped;
pub use platter_vdisk::BlockCache;
pub use read::read_file;
pub use version_files::{OpenFile, VersionFiles};
