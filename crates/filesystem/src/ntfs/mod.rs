//! NTFS: which clusters are kept, and where files lie.
//!
//! Everything on a volume is a file: clusters from 0 on, the master file table (MFT) with a record for each file, and a
//! bitmap of used clusters. A record has attributes, which are in the record or in runs of clusters; the attributes of
//! a file with many runs are spread over several records. A cluster is kept if the bitmap marks it as used. Compressed
//! and encrypted contents are kept as they lie.
//!
//! # Why it is safe to drop free clusters
//!
//! All records in use are read, each with its update sequence, and everything that they claim is compared with the
//! bitmap: every cluster must exist, be marked as used, and have one owner. If anything is different, the whole
//! partition is kept. A volume is refused if its log contains changes that were not applied, if Windows is hibernated on
//! it, or if it is marked for checking: then maps may be wrong. Clusters after the initialized part of a file read as
//! zeros, so they are dropped. A volume with shadow copies is kept in full: they may need its free clusters
//! ([`shadow_copies`]).
//!
//! The contents of `pagefile.sys`, `swapfile.sys` and `hiberfil.sys` in the root directory mean nothing to the next boot
//! of a system that was shut down. They are reported as volatile; the caller decides whether they are kept. Which files
//! these are is what their records and the index of the root directory agree on ([`volatile`]).
//!
//! Sources: the kernel's `fs/ntfs3` and the headers of ntfs-3g.

mod attribute;
mod bitmap;
mod boot_sector;
mod claims;
mod compressed;
mod examine;
mod files;
mod index;
mod label;
mod links;
mod log_file;
mod master_table;
mod record;
mod runs;
mod shadow_copies;
mod stream;
mod volatile;

pub(crate) use examine::Ntfs;
pub(crate) use files::Files;
pub(crate) use label::label;
