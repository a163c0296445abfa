//! The feature bits of ext superblocks, and which of them do not change what Platter reads.

pub(super) const COMPAT_HAS_JOURNAL: u32 = 0x4;
pub(super) const COMPAT_SPARSE_SUPER2: u32 = 0x200;
pub(super) const COMPAT_ORPHAN_FILE: u32 = 0x1000;

pub(super) const INCOMPAT_RECOVER: u32 = 0x4;
pub(super) const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
pub(super) const INCOMPAT_META_BG: u32 = 0x10;
pub(super) const INCOMPAT_64BIT: u32 = 0x80;
pub(super) const INCOMPAT_MMP: u32 = 0x100;
pub(super) const INCOMPAT_EA_INODE: u32 = 0x400;
pub(super) const INCOMPAT_CSUM_SEED: u32 = 0x2000;
pub(super) const INCOMPAT_LARGEDIR: u32 = 0x4000;

pub(super) const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
pub(super) const RO_COMPAT_HUGE_FILE: u32 = 0x8;
pub(super) const RO_COMPAT_GDT_CSUM: u32 = 0x10;
pub(super) const RO_COMPAT_QUOTA: u32 = 0x100;
pub(super) const RO_COMPAT_BIGALLOC: u32 = 0x200;
pub(super) const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
pub(super) const RO_COMPAT_ORPHAN_PRESENT: u32 = 0x1_0000;

/// filetype, recover, meta_bg, extents, 64bit, mmp, flex_bg, ea_inode, dirdata, csum_seed, largedir,
/// inline_data, encrypt, casefold. Not included: compression, journal_dev, and all later features.
const INCOMPAT_KNOWN: u32 = 0x2
    | 0x4
    | 0x10
    | 0x40
    | 0x80
    | 0x100
    | 0x200
    | 0x400
    | 0x1000
    | 0x2000
    | 0x4000
    | 0x8000
    | 0x1_0000
    | 0x2_0000;

/// sparse_super, large_file, btree_dir, huge_file, gdt_csum, dir_nlink, extra_isize, quota, bigalloc,
/// metadata_csum, readonly, project, verity, orphan_present. Not included: snapshot, replica, shared_blocks
/// (whose blocks have several owners), and all later features.
const RO_COMPAT_KNOWN: u32 =
    0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x100 | 0x200 | 0x400 | 0x1000 | 0x2000 | 0x8000 | 0x1_0000;

/// Features that only ext4 has.
const INCOMPAT_EXT4: u32 = !(0x2 | 0x4 | 0x8 | 0x10);
const RO_COMPAT_EXT4: u32 = !(0x1 | 0x2 | 0x4);

/// The three feature words of a superblock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Features {
    pub(super) compat: u32,
    pub(super) incompat: u32,
    pub(super) ro_compat: u32,
}

impl Features {
    pub(super) fn compat(self, bit: u32) -> bool {
        self.compat & bit != 0
    }

    pub(super) fn incompat(self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    pub(super) fn ro_compat(self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    /// Whether group descriptors have checksums and the related flags.
    pub(super) fn has_group_checksums(self) -> bool {
        self.ro_compat(RO_COMPAT_GDT_CSUM | RO_COMPAT_METADATA_CSUM)
    }

    /// The unknown features as text; `None` if all are known.
    pub(super) fn unknown(self) -> Option<String> {
        let (incompat, ro_compat) = (self.incompat & !INCOMPAT_KNOWN, self.ro_compat & !RO_COMPAT_KNOWN);
        let mut unknown = Vec::new();
        if incompat != 0 {
            unknown.push(format!("incompatible feature bits {incompat:#x}"));
        }
        if ro_compat != 0 {
            unknown.push(format!("read-only compatible feature bits {ro_compat:#x}"));
        }
        (!unknown.is_empty()).then(|| unknown.join(" and "))
    }

    /// The name of a filesystem with these features.
    pub(super) fn filesystem(self) -> &'static str {
        if self.incompat(INCOMPAT_EXT4) || self.ro_compat(RO_COMPAT_EXT4) {
            "ext4"
        } else if self.compat(COMPAT_HAS_JOURNAL) {
            "ext3"
        } else {
            "ext2"
        }
    }
}
