//! exFAT: which clusters are kept, and where files lie.
//!
//! A volume has two boot regions of twelve sectors, an allocation table, and clusters with the numbers 2 and up. One of
//! the first entries of the root directory names the allocation bitmap, which says what is free; the table only chains
//! the clusters of files that are not in one piece. Everything outside of clusters is kept.
//!
//! # Why it is safe to drop free clusters
//!
//! The boot region has a checksum, and so has every set of directory entries. All sets are read, and everything they
//! name is followed: each cluster must exist, be marked as used, and have one owner, and a file must have as many
//! clusters as it needs. If anything is different, or if there is an entry that is not in the specification, the whole
//! partition is kept. So is a volume that was not unmounted, one with two tables and bitmaps (TexFAT), and one that
//! is larger than its partition. The space of a file after its valid data reads as zeros, so its sectors are dropped.
//!
//! Source: Microsoft's *exFAT file system specification* 1.00.

mod boot_region;
mod directory;
mod entry_set;
mod examine;
mod files;
mod label;

pub(crate) use examine::ExFat;
pub(crate) use files::Files;
pub(crate) use label::label;
