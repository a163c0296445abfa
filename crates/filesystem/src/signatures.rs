//! The marks that owners leave on a device: filesystems, members of RAID sets and volume groups, encrypted
//! containers, partition tables.
//!
//! It contains the facts: names, places and magic numbers, as libblkid of util-linux knows them, and a few
//! more. A mark missing here may cost data, because a filesystem beside it then looks like the only owner; a
//! mark found by mistake only costs space. So magics of four or more bytes suffice on their own; shorter ones
//! need a test ([`crate::weak_signatures`]). Names are those of `blkid`.

use platter_image::Result;

use crate::place::ProbedExtent;
use crate::weak_signatures as weak;

/// Where a magic may be, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// This far after the start.
    Start(u64),
    /// This far before the end.
    End(u64),
    /// Before the last multiple of the first number; the second number is the distance.
    AlignedEnd(u64, u64),
}

impl At {
    /// The offset in an extent of that length; `None` if the extent is too short.
    pub(crate) fn offset(self, length: u64) -> Option<u64> {
        match self {
            Self::Start(offset) => (offset < length).then_some(offset),
            Self::End(back) => length.checked_sub(back),
            Self::AlignedEnd(multiple, back) => (length / multiple * multiple).checked_sub(back),
        }
    }
}

/// How a mark is recognized.
pub(crate) enum Rule {
    /// One of the magics at one of the places.
    Magic(&'static [At], &'static [&'static [u8]]),
    /// A test that returns the mark's offset in the extent.
    Test(fn(&ProbedExtent<'_>) -> Result<Option<u64>>),
}

/// A mark.
pub(crate) struct Signature {
    /// Its owner.
    pub(crate) name: &'static str,
    pub(crate) rule: Rule,
}

const fn magic(name: &'static str, places: &'static [At], magics: &'static [&'static [u8]]) -> Signature {
    Signature { name, rule: Rule::Magic(places, magics) }
}

const fn test(name: &'static str, test: fn(&ProbedExtent<'_>) -> Result<Option<u64>>) -> Signature {
    Signature { name, rule: Rule::Test(test) }
}

use At::{AlignedEnd, End, Start};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// A sector, the unit of old RAID controllers.
const S: u64 = 512;

/// Where the second header of LUKS2 is, depending on the size of the first.
const LUKS2_SECOND: &[At] = &[
    Start(0x4000),
    Start(0x8000),
    Start(0x1_0000),
    Start(0x2_0000),
    Start(0x4_0000),
    Start(0x8_0000),
    Start(0x10_0000),
    Start(0x20_0000),
    Start(0x40_0000),
];

const PROMISE: &[At] = &[
    End(63 * S),
    End(255 * S),
    End(256 * S),
    End(16 * S),
    End(399 * S),
    End(591 * S),
    End(675 * S),
    End(735 * S),
    End(911 * S),
    End(974 * S),
    End(991 * S),
    End(951 * S),
    End(3087 * S),
];

/// 1372 bytes into a superblock, which may be at one of four offsets.
const UFS: &[At] = &[Start(1372), Start(8 * KIB + 1372), Start(64 * KIB + 1372), Start(256 * KIB + 1372)];

/// With blocks of 512 to 4096 bytes: in the second or third block, after a key of four bytes or none.
const DASD: &[At] = &[
    Start(512),
    Start(516),
    Start(1024),
    Start(1028),
    Start(2048),
    Start(2052),
    Start(4096),
    Start(4100),
    Start(8192),
    Start(8196),
];

/// Members of RAID sets, volume groups and pools, and encrypted containers.
const CONTAINERS: &[Signature] = &[
    // Versions 1.1, 1.2, 0.90 and 1.0, either endianness.
    magic(
        "linux_raid_member",
        &[Start(0), Start(4096), AlignedEnd(64 * KIB, 64 * KIB), AlignedEnd(4096, 8 * KIB)],
        &[b"\xfc\x4e\x2b\xa9", b"\xa9\x2b\x4e\xfc"],
    ),
    magic("ddf_raid_member", &[End(S), End(257 * S)], &[b"\xde\x11\xde\x11"]),
    magic("isw_raid_member", &[End(2 * S), End(2 * 4096)], &[b"Intel Raid ISM Cfg Sig. "]),
    magic("lsi_mega_raid_member", &[End(S)], &[b"$XIDE$"]),
    test("via_raid_member", weak::via_raid),
    test("silicon_medley_raid_member", weak::silicon_raid),
    magic("nvidia_raid_member", &[End(2 * S)], &[b"NVIDIA"]),
    magic("promise_fasttrack_raid_member", PROMISE, &[b"Promise Technology, Inc."]),
    magic("hpt45x_raid_member", &[End(11 * S)], &[b"\xf3\x16\x78\x5a", b"\xfd\x16\x78\x5a"]),
    magic("hpt37x_raid_member", &[Start(9 * S + 32)], &[b"\xf0\x16\x78\x5a", b"\xfd\x16\x78\x5a"]),
    magic("adaptec_raid_member", &[End(S)], &[b"\x37\xfc\x4d\x1e"]),
    test("jmicron_raid_member", weak::jmicron_raid),
    magic(
        "bcache",
        &[Start(4096 + 24)],
        &[b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"],
    ),
    magic(
        "bcachefs",
        &[Start(4096 + 24), Start(2 * MIB + 24), End(MIB - 24), AlignedEnd(MIB, MIB - 24)],
        &[b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"],
    ),
    magic("ceph_bluestore", &[Start(0)], &[b"bluestore block device"]),
    magic("drbd", &[End(4096 - 60)], &[b"\x83\x74\x02\x6b", b"\x83\x74\x02\x6c", b"\x83\x74\x02\x6d"]),
    magic("drbdmanage_control_volume", &[Start(0)], &[b"$DRBDmgr=q"]),
    magic("drbdproxy_datalog", &[Start(0)], &[b"DRBDdlh*"]),
    magic("LVM2_member", &[Start(24), Start(536), Start(1048), Start(1560)], &[b"LVM2 001"]),
    test("LVM1_member", weak::lvm1),
    magic("DM_snapshot_cow", &[Start(0)], &[b"SnAp"]),
    magic("DM_verity_hash", &[Start(0)], &[b"verity\0\0"]),
    magic("DM_integrity", &[Start(0)], &[b"integrt\0"]),
    magic("crypto_LUKS", &[Start(0)], &[b"LUKS\xba\xbe"]),
    magic("crypto_LUKS", LUKS2_SECOND, &[b"SKUL\xba\xbe"]),
    magic("VMFS_volume_member", &[Start(MIB)], &[b"\x0d\xd0\x01\xc0"]),
    magic("ubi", &[Start(0)], &[b"UBI#"]),
    magic("vdo", &[Start(0)], &[b"dmvdo001"]),
    magic("stratis", &[Start(S + 4), Start(9 * S + 4)], &[b"!Stra0tis\x86\xff\x02^\x41rh"]),
    magic("BitLocker", &[Start(3)], &[b"-FVE-FS-"]),
    test("BitLocker", weak::bitlocker_to_go),
    test("cs_fvault2", weak::core_storage),
    test("zfs_member", weak::zfs),
    magic("oracleasm", &[Start(32)], &[b"ORCLDISK"]),
    magic("windows_ldm", &[Start(6 * S), End(S), End(192 * S)], &[b"PRIVHEAD"]),
];

/// Filesystems other than ext and swap, which have their own readers.
const FILESYSTEMS: &[Signature] = &[
    magic("vfat", &[Start(82)], &[b"FAT32   ", b"MSWIN"]),
    magic("vfat", &[Start(54)], &[b"FAT12   ", b"FAT16   ", b"FAT     ", b"MSDOS"]),
    test("vfat", weak::unnamed_fat),
    magic("ntfs", &[Start(3)], &[b"NTFS    "]),
    magic("exfat", &[Start(3)], &[b"EXFAT   "]),
    magic("ReFS", &[Start(0)], &[b"\0\0\0ReFS\0"]),
    magic("xfs", &[Start(0)], &[b"XFSB"]),
    test("xfs_external_log", weak::xfs_log),
    magic("exfs", &[Start(0)], &[b"EXFS"]),
    magic("btrfs", &[Start(64 * KIB + 64)], &[b"_BHRfS_M"]),
    magic("f2fs", &[Start(KIB), Start(5 * KIB)], &[b"\x10\x20\xf5\xf2"]),
    magic("erofs", &[Start(KIB)], &[b"\xe2\xe1\xf5\xe0"]),
    magic("squashfs", &[Start(0)], &[b"hsqs", b"sqsh"]),
    magic("cramfs", &[Start(0), Start(S)], &[b"\x45\x3d\xcd\x28", b"\x28\xcd\x3d\x45"]),
    magic("romfs", &[Start(0)], &[b"-rom1fs-"]),
    magic("iso9660", &[Start(32 * KIB + 1)], &[b"CD001"]),
    magic("iso9660", &[Start(32 * KIB + 9)], &[b"CDROM"]),
    test("udf", weak::udf),
    magic("jfs", &[Start(32 * KIB)], &[b"JFS1"]),
    magic("reiserfs", &[Start(8 * KIB + 52), Start(8 * KIB + 20), Start(64 * KIB + 52)], &[b"ReIsEr"]),
    magic("reiser4", &[Start(64 * KIB)], &[b"ReIsEr4"]),
    test("hfs", weak::hfs),
    test("hfsplus", weak::hfs_plus),
    magic("apfs", &[Start(32)], &[b"NXSB"]),
    magic(
        "ufs",
        UFS,
        &[
            b"\x54\x19\x01\x00",
            b"\x00\x01\x19\x54",
            b"\x19\x01\x54\x19",
            b"\x19\x54\x01\x19",
            b"\x95\x56\x19\x00",
            b"\x00\x19\x56\x12",
            b"\x12\x56\x19\x00",
            b"\x14\x50\x09\x00",
            b"\x00\x09\x50\x14",
            b"\x95\x21\x61\x00",
            b"\x00\x61\x21\x95",
            b"\x94\x19\x23\x05",
            b"\x05\x23\x19\x94",
        ],
    ),
    magic("hpfs", &[Start(8 * KIB)], &[b"\x49\xe8\x95\xf9"]),
    magic(
        "sysv",
        &[Start(1016), Start(9 * KIB + 1016), Start(15 * KIB + 1016), Start(18 * KIB + 1016)],
        &[b"\x20\x7e\x18\xfd", b"\xfd\x18\x7e\x20"],
    ),
    magic("xenix", &[Start(2040), Start(2048)], &[b"\x2b\x55\x44", b"\x44\x55\x2b"]),
    magic("scoutfs", &[Start(64 * KIB + 4)], &[b"\x8b\x42\x3c\x10"]),
    test("minix", weak::minix),
    magic("gfs2", &[Start(64 * KIB)], &[b"\x01\x16\x19\x70"]),
    magic("ocfs", &[Start(8 * KIB)], &[b"OracleCFS"]),
    magic("ocfs2", &[Start(KIB), Start(2 * KIB), Start(4 * KIB), Start(8 * KIB)], &[b"OCFSV2"]),
    magic("vxfs", &[Start(KIB)], &[b"\xf5\xfc\x01\xa5"]),
    magic("vxfs", &[Start(8 * KIB)], &[b"\xa5\x01\xfc\xf5"]),
    magic("nss", &[Start(4 * KIB)], &[b"SPB5"]),
    magic("ubifs", &[Start(0)], &[b"\x31\x18\x10\x06"]),
    magic("bfs", &[Start(0)], &[b"\xce\xfa\xad\x1b"]),
    magic("befs", &[Start(32), Start(S + 32)], &[b"BFS1", b"1SFB"]),
    magic("VMFS", &[Start(2 * MIB)], &[b"\x5e\xf1\xab\x2f"]),
    // The revision, 2.0, is before the 2-byte magic.
    magic("nilfs2", &[Start(KIB), End(4096), AlignedEnd(4096, 4096)], &[b"\x02\0\0\0\0\0\x34\x34"]),
    magic("mpool", &[Start(0)], &[b"mpoolDev"]),
    magic("zonefs", &[Start(0)], &[b"SFOZ"]),
    magic("qnx6", &[Start(8 * KIB)], &[b"\x22\x11\x19\x68", b"\x68\x19\x11\x22"]),
];

/// Partition tables, on a disk or inside a partition.
const TABLES: &[Signature] = &[
    magic("bsd", &[Start(S), Start(64), Start(128)], &[b"\x57\x45\x56\x82", b"\x82\x56\x45\x57"]),
    magic("solaris", &[Start(S + 12)], &[b"\xee\xde\x0d\x60"]),
    magic("unixware", &[Start(29 * S + 4)], &[b"\x0d\x60\xe5\xca"]),
    test("sun", weak::sun_label),
    test("mac", weak::mac_table),
    test("atari", weak::atari_table),
    magic("sgi", &[Start(0)], &[b"\x0b\xe5\xa9\x41"]),
    magic("aix", &[Start(0)], &[b"\xc9\xc2\xd4\xc1"]),
    magic("ultrix", &[Start(16384 - 72)], &[b"\x57\x29\x03\0\x01\0\0\0"]),
    magic("dasd", DASD, &[b"\xe5\xd6\xd3\xf1", b"\xd3\xd5\xe7\xf1", b"\xc3\xd4\xe2\xf1"]),
    magic("gpt", &[Start(S), Start(4096), End(S), End(4096)], &[b"EFI PART"]),
    test("dos", weak::nested_record),
    magic("amiga", &[Start(0), Start(S), Start(2 * S), Start(3 * S)], &[b"RDSK"]),
];

/// Tables that Platter reads, besides disklabels. Inside a partition, or where the disk's table was not recognized, they count as
/// owners.
pub const TABLES_READ: [&str; 2] = ["gpt", "dos"];

/// All marks.
pub(crate) fn all() -> impl Iterator<Item = &'static Signature> {
    CONTAINERS.iter().chain(FILESYSTEMS).chain(TABLES)
}
