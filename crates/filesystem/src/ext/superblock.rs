//! The superblock, 1024 bytes at offset 1024: geometry, features, state.

use platter_image::{Error, Result};

use super::features::{self, Features};
use crate::checksum::crc32c;
use crate::fields::{has, le16, le32, le64, text, uuid};
use crate::reader::{needs_recovery, unsupported};

/// Its offset in the filesystem and its length, in bytes.
pub(super) const SUPERBLOCK_OFFSET: u64 = 1024;
pub(super) const SUPERBLOCK_LENGTH: usize = 1024;

/// A filesystem with more block groups is kept in full, because descriptors are held in memory. 128 TiB with
/// 4 KiB blocks.
const GROUPS_MAX: u64 = 1 << 20;

/// What the user can do about a filesystem that was not unmounted.
pub(super) const MOUNT_OR_CHECK: &str = "Mount and unmount it, or run e2fsck on it";

const STATE_CLEAN: u16 = 1;
const STATE_ERRORS: u16 = 2;

/// The contents of a superblock, checked for plausibility.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) features: Features,
    pub(super) block_size: u32,
    pub(super) blocks: u64,
    /// 1 with 1024-byte blocks and no clusters, otherwise 0.
    pub(super) first_data_block: u64,
    pub(super) blocks_per_group: u64,
    /// Blocks per bit of a bitmap.
    pub(super) cluster_blocks: u64,
    pub(super) groups: u64,
    pub(super) inodes_per_group: u32,
    pub(super) inode_size: u32,
    /// The first inode that is not reserved for the filesystem.
    pub(super) first_inode: u32,
    pub(super) descriptor_size: u32,
    pub(super) reserved_descriptor_blocks: u64,
    pub(super) first_meta_group: u64,
    pub(super) backup_groups: [u32; 2],
    /// The journal's inode; 0 if there is no journal inside.
    pub(super) journal_inode: u32,
    /// Inodes named in the superblock, including the journal's: quota, and deleted files that were open. 0
    /// for missing ones.
    pub(super) own_inodes: [u32; 5],
    /// The block with which machines tell each other that the filesystem is mounted; 0 if there is none.
    pub(super) mmp_block: u64,
    pub(super) last_orphan: u32,
    pub(super) uuid_bytes: [u8; 16],
    /// It was made by Linux, which is the only one whose inodes have checksums.
    pub(super) is_of_linux: bool,
    /// The initial value of metadata checksums.
    pub(super) seed: u32,
    pub(super) state: u16,
    pub(super) label: Option<String>,
    pub(super) uuid: Option<String>,
}

impl Superblock {
    /// Decodes and checks a superblock.
    ///
    /// # Errors
    /// `Corrupt` if it is not a superblock, its checksum is wrong, or it contains impossible values;
    /// [`unsupported`] if it has unknown features.
    pub(super) fn parse(bytes: &[u8; SUPERBLOCK_LENGTH]) -> Result<Self> {
        if !has(bytes, 0x38, &[0x53, 0xef]) {
            return Err(Error::corrupt("there is no superblock"));
        }
        let is_old = le32(bytes, 0x4c) == 0;
        let words =
            Features { compat: le32(bytes, 0x5c), incompat: le32(bytes, 0x60), ro_compat: le32(bytes, 0x64) };
        let features = if is_old { Features::default() } else { words };
        check_checksum(bytes, features)?;
        if features.incompat(features::INCOMPAT_JOURNAL_DEV) {
            return Err(unsupported("it is a journal of another filesystem"));
        }
        if let Some(unknown) = features.unknown() {
            return Err(unsupported(format!("it has unknown {unknown}")));
        }
        let is_64bit = features.incompat(features::INCOMPAT_64BIT);
        let high = |offset| if is_64bit { u64::from(le32(bytes, offset)) << 32 } else { 0 };
        let mut uuid_bytes = [0; 16];
        uuid_bytes.copy_from_slice(&bytes[0x68..0x78]);
        let log_block_size = possible("block size", le32(bytes, 0x18), 0..=6)?;
        let is_clustered = features.ro_compat(features::RO_COMPAT_BIGALLOC);
        let log_cluster_size = if is_clustered { le32(bytes, 0x1c) } else { log_block_size };
        possible("cluster size", log_cluster_size, log_block_size..=20)?;
        let inode = |has: bool, offset| if has { le32(bytes, offset) } else { 0 };
        let has_journal = features.compat(features::COMPAT_HAS_JOURNAL);
        let has_quota = features.ro_compat(features::RO_COMPAT_QUOTA);
        let superblock = Self {
            features,
            block_size: 1024 << log_block_size,
            blocks: u64::from(le32(bytes, 4)) | high(0x150),
            first_data_block: u64::from(le32(bytes, 0x14)),
            blocks_per_group: u64::from(le32(bytes, 0x20)),
            cluster_blocks: 1 << (log_cluster_size - log_block_size),
            groups: 0,
            inodes_per_group: le32(bytes, 0x28),
            inode_size: if is_old { 128 } else { u32::from(le16(bytes, 0x58)) },
            first_inode: if is_old { 11 } else { le32(bytes, 0x54) },
            descriptor_size: if is_64bit { u32::from(le16(bytes, 0xfe)) } else { 32 },
            reserved_descriptor_blocks: u64::from(le16(bytes, 0xce)),
            first_meta_group: u64::from(le32(bytes, 0x104)),
            backup_groups: [le32(bytes, 0x24c), le32(bytes, 0x250)],
            journal_inode: inode(has_journal, 0xe0),
            own_inodes: [
                inode(has_journal, 0xe0),
                inode(has_quota, 0x240),
                inode(has_quota, 0x244),
                inode(has_quota, 0x26c),
                inode(features.compat(features::COMPAT_ORPHAN_FILE), 0x280),
            ],
            mmp_block: if features.incompat(features::INCOMPAT_MMP) { le64(bytes, 0x168) } else { 0 },
            last_orphan: le32(bytes, 0xe8),
            uuid_bytes,
            is_of_linux: le32(bytes, 0x48) == 0,
            seed: if features.incompat(features::INCOMPAT_CSUM_SEED) {
                le32(bytes, 0x270)
            } else {
                crc32c(!0, &[&uuid_bytes])
            },
            state: le16(bytes, 0x3a),
            label: text(&bytes[0x78..0x88]),
            uuid: uuid(bytes, 0x68),
        };
        superblock.with_groups(le32(bytes, 0))
    }

    /// Checks the geometry, so that no sum of its values overflows and every loop over it ends.
    fn with_groups(mut self, inodes: u32) -> Result<Self> {
        let bits = u64::from(self.block_size) * 8;
        let per_group = self.blocks_per_group / self.cluster_blocks;
        possible("number of blocks in a group", per_group, 8..=bits)?;
        if !self.blocks_per_group.is_multiple_of(self.cluster_blocks * 8) {
            return Err(Error::corrupt(format!(
                "impossible block groups of {} blocks",
                self.blocks_per_group
            )));
        }
        let first = u64::from(self.block_size == 1024 && self.cluster_blocks == 1);
        possible("first data block", self.first_data_block, first..=first)?;
        possible("number of blocks", self.blocks, first + 8..=1 << 48)?;
        self.groups = (self.blocks - first).div_ceil(self.blocks_per_group);
        possible("number of groups", self.groups, 1..=GROUPS_MAX)?;
        possible("inode size", self.inode_size, 128..=self.block_size)?;
        possible("number of inodes in a group", u64::from(self.inodes_per_group), 1..=bits)?;
        possible("size of group descriptors", self.descriptor_size, 32..=1024)?;
        if !self.inode_size.is_power_of_two() || !self.descriptor_size.is_power_of_two() {
            return Err(Error::corrupt("the size of inodes or descriptors is not a power of two"));
        }
        if u64::from(inodes) != self.groups * u64::from(self.inodes_per_group)
            || self.inode_table_blocks() >= self.blocks_per_group
        {
            return Err(Error::corrupt(format!(
                "impossible number of {inodes} inodes in {} groups",
                self.groups
            )));
        }
        possible(
            "reserved descriptor blocks",
            self.reserved_descriptor_blocks,
            0..=u64::from(self.block_size),
        )?;
        Ok(self)
    }

    /// Number of inodes.
    pub(super) fn inodes(&self) -> u32 {
        // `with_groups` has checked that the product fits.
        (self.groups * u64::from(self.inodes_per_group)) as u32
    }

    /// Length of the filesystem in bytes.
    pub(super) fn length(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }

    pub(super) fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size)).div_ceil(u64::from(self.block_size))
    }

    /// The first block of a group, and the block after its last.
    pub(super) fn group_blocks(&self, group: u64) -> (u64, u64) {
        let start = self.first_data_block + group * self.blocks_per_group;
        (start, (start + self.blocks_per_group).min(self.blocks))
    }

    /// Checks that the bitmaps can be trusted.
    ///
    /// # Errors
    /// `Refused` if they cannot.
    pub(super) fn check_recovery(&self) -> Result<()> {
        if self.features.incompat(features::INCOMPAT_RECOVER) {
            let reason = "it was not unmounted: its newest metadata is only in its journal";
            return Err(needs_recovery(reason, MOUNT_OR_CHECK));
        }
        if self.state & STATE_ERRORS != 0 {
            // A mount does not clear this mark.
            return Err(needs_recovery("it is marked as having errors", "Run e2fsck on it"));
        }
        match self.state & STATE_CLEAN {
            0 => Err(needs_recovery("it was not unmounted", MOUNT_OR_CHECK)),
            _ => Ok(()),
        }
    }

    /// Peculiarities that are harmless.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.last_orphan != 0 || self.features.ro_compat(features::RO_COMPAT_ORPHAN_PRESENT) {
            notes.push("the next mount will clean up files that were deleted while open".to_owned());
        }
        if self.features.compat(features::COMPAT_HAS_JOURNAL) && self.journal_inode == 0 {
            notes.push("its journal is on another device, which is not captured with it".to_owned());
        }
        notes
    }
}

fn check_checksum(bytes: &[u8; SUPERBLOCK_LENGTH], features: Features) -> Result<()> {
    if !features.ro_compat(features::RO_COMPAT_METADATA_CSUM) {
        return Ok(());
    }
    if bytes[0x175] != 1 {
        return Err(unsupported(format!("it has the unknown checksum type {}", bytes[0x175])));
    }
    if crc32c(!0, &[&bytes[..0x3fc]]) != le32(bytes, 0x3fc) {
        return Err(Error::corrupt("its superblock has a wrong checksum"));
    }
    Ok(())
}

fn possible<T: PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<T> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Error::corrupt(format!("its {what} has the impossible value {value}")))
}
