//! btrfs on one device: which bytes are allocated, and where files lie.
//!
//! Everything is in copy-on-write B-trees, whose pointers are logical addresses. The chunk tree maps them to places on the
//! device, once or twice (DUP). The extent tree lists every allocated extent by its logical address. What it does not list is
//! dropped, and so is space of the device outside of chunks, except for the first MiB and the copies of the superblock.
//!
//! Why it is safe. Nothing is dropped unless
//!
//! - every feature is known; there is one device, and it is neither zoned nor a seed ([`superblock`]);
//! - there is no log tree, whose blocks the extent tree does not list; otherwise the filesystem is refused;
//! - every tree block has the correct checksum, address, generation, level and order of keys ([`node`], [`walk`]);
//! - chunks, the extents of the device and block groups agree ([`chunks`], [`extents`]);
//! - the extents of each block group add up to what it says is used, and all together to the number in the superblock
//!   ([`extents`]);
//! - every block of every tree, subvolume and snapshot, and every extent that a file names, is in the extent tree
//!   ([`claims`]).
//!
//! Unwritten extents are dropped where no file has written them: they read as zeros, and have no checksums. A hibernated
//! system may be in those of a swap file; then the filesystem is refused ([`swap_files`]).
//!
//! Neither form of the cache of free space is used. Compressed extents are kept as they lie. Extents of which files use only a
//! part are kept in full, because their checksums cover all of it.
//!
//! Sources: the kernel's `fs/btrfs` and `include/uapi/linux/btrfs_tree.h`.

mod checksums;
mod chunks;
mod claims;
mod extents;
mod files;
mod node;
mod reader;
mod search;
mod superblock;
mod swap_files;
mod unpack;
mod volume;
mod walk;

pub(crate) use files::Files;
pub(crate) use reader::Btrfs;
