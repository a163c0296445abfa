//! FAT12, FAT16 and FAT32: which clusters are kept, and where files lie.
//!
//! A volume has reserved sectors (boot sector, FSInfo, a backup of both), one or two copies of the allocation table, on
//! FAT12 and FAT16 a root directory of fixed length, and clusters with the numbers 2 and up. Everything outside of
//! clusters is kept. A cluster is kept if any copy of the table gives it a value other than zero, so bad clusters and
//! chains without a name are kept, too. FSInfo contains hints, which are not used.
//!
//! # Why it is safe to drop free clusters
//!
//! Systems read a cluster only if a chain leads to it, and chains begin at directory entries or, on FAT32, at the root
//! directory. All chains are followed: if one leads to a cluster that is free, bad, missing, or part of another chain,
//! or ends before its file does, then the table is wrong and the whole partition is kept. So is a volume that was not
//! unmounted, one that is larger than its partition, and one on whose width of entries systems may disagree. The
//! sectors after a file's end in its last cluster are dropped: no system reads them.
//!
//! Source: Microsoft's *FAT32 File System Specification* 1.03; the kernel's `fs/fat`.

mod boot_sector;
mod copies;
mod directory;
mod examine;
mod files;
mod names;

pub(crate) use examine::Fat;
pub(crate) use files::Files;
