//! Filesystems: which bytes of a partition can still be read, and where files lie in it.
//!
//! A filesystem is recognized by its own superblock, never by the partition table ([`probe()`]). If a reader
//! here understands it, its own checks hold, and there is no mark of another owner ([`Owners`]), it yields an
//! allocation map and the places of files; anything else is kept in full. Each kind of filesystem has a folder
//! with a [`reader::Reader`]; what is kept is decided in [`reader`] alone. Readers take any
//! [`DiskRead`](platter_image::DiskRead), trust no number, and never fail because of the disk's contents:
//! what they cannot trust, they keep in full with a note. Only a filesystem that needs recovery is refused,
//! because its maps may be wrong.
//!
//! It is a crate of its own because everything that parses a filesystem is pure: it needs neither devices nor the
//! operating system.

pub mod boot_record;
mod btrfs;
mod checksum;
mod clusters;
mod contents;
pub mod disklabel;
mod examine;
mod exfat;
pub mod ext;
mod fat;
pub mod fields;
mod file_name;
mod file_runs;
mod files;
mod filesystem_place;
mod label;
mod layout;
mod lvm;
mod ntfs;
mod open_files;
mod path;
mod place;
mod probe;
mod raid;
pub mod reader;
mod signatures;
mod swap;
mod ufs;
mod volume_files;
mod volumes;
mod weak_signatures;
mod xfs;

pub use contents::Contents;
pub use examine::{Trust, examine, filesystem_length, names};
pub use file_name::escaped;
pub use files::{
    Attribute, FileContents, FileInode, FileKind, FileTree, Listing, Metadata, Piece, Run, Visit,
};
pub use filesystem_place::{FilesystemPlace, LogicalVolumes, PlaceContents, VolumePlace, logical_volumes};
pub use label::label;
pub use open_files::{READABLE, filesystem_name, is_readable, open_files};
pub use path::resolve;
pub use probe::{Found, Owner, Owners, probe};
pub use reader::ExamineOptions;
pub use signatures::TABLES_READ;
pub use volumes::{PHYSICAL_VOLUME, examine_volumes};
