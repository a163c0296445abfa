//! Arguments of commands over images and versions in the store.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use platter_browse::FileLocation;
use platter_jobs::{BackingFile, ForgetRequest, Format, ImageName};

use super::collect::Keep;
use super::files::location_of_version;
use super::live::OfNode;
use super::lock::LockOptions;
use super::version::VersionArgument;
use crate::sizes::{duration, filesystem, label};

#[derive(Args, Debug)]
pub(crate) struct Image {
    /// Image, such as lab/debian12
    pub(crate) name: ImageName,
}

#[derive(Args, Debug)]
pub(crate) struct Log {
    /// Only changes of this image, such as lab/debian12
    pub(crate) name: Option<ImageName>,
}

#[derive(Args, Debug)]
pub(crate) struct Which {
    /// NAME (the latest version), NAME@NUMBER, or a score
    pub(crate) version: VersionArgument,
}

#[derive(Args, Debug)]
pub(crate) struct Rename {
    /// Image or name prefix, such as lab/debian12 or lab
    pub(crate) from: ImageName,
    /// New name
    pub(crate) to: ImageName,
}

#[derive(Args, Debug)]
pub(crate) struct Forget {
    /// NAME@NUMBER for one version, NAME for all versions of the image
    #[arg(value_name = "NAME[@NUMBER]", value_parser = ForgetRequest::parse)]
    pub(crate) what: ForgetRequest,
    /// With NAME alone: forget all versions of the image without asking
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) keep: Keep,
}

#[derive(Args, Debug)]
pub(crate) struct Protect {
    /// NAME@NUMBER for one version, NAME for all present versions of the image
    #[arg(value_name = "NAME[@NUMBER]", value_parser = ForgetRequest::parse)]
    pub(crate) what: ForgetRequest,
}

#[derive(Args, Debug)]
pub(crate) struct Capture {
    /// Block device, raw file, or image of another program; - is standard input, and `disk.raw:2` partition 2 of disk.raw
    pub(crate) source: PathBuf,
    /// Image name: parts of a-z 0-9 . _ - separated by /, such as lab/debian12
    pub(crate) name: ImageName,
    /// Format of the source [default: by its suffix (.gz, .zst and .xz are compressed raw disks), else raw]: raw, qcow2, vmdk,
    /// vdi, vhd, vhdx, raw.gz, raw.zst, raw.xz, ndz (Frisbee), clonezilla (a folder), partclone (one filesystem)
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Backing file of a qcow2 image; repeat the option for the backing file of the backing file. Names in images are never
    /// followed
    #[arg(long, value_name = "[FORMAT:]FILE")]
    pub(crate) backing: Vec<BackingFile>,
    /// The disk in a folder of Clonezilla that has several, such as sda
    #[arg(long, value_name = "NAME")]
    pub(crate) disk: Option<String>,
    /// Capture a disk that is in use or changes during the capture (`show` then calls the version torn), and store a
    /// filesystem that needs recovery in full
    #[arg(long)]
    pub(crate) force: bool,
    /// Ignore partitions and filesystems: store every sector that is not zero; also accepts compressed files and image files
    /// of other programs, unconverted
    #[arg(long)]
    pub(crate) raw: bool,
    /// Also store the contents of page files and hibernation files of Windows, which otherwise become zeros: pagefile.sys,
    /// swapfile.sys and hiberfil.sys in the root directory of NTFS
    #[arg(long)]
    pub(crate) all: bool,
    /// Leave out space outside of partitions. Always kept: partition tables, the space before the first partition, the last MiB
    /// of the disk, and gaps of at most 1 MiB. Data of RAID controllers, boot loaders and deleted partitions in the gaps is lost
    #[arg(long, conflicts_with = "raw")]
    pub(crate) skip_gaps: bool,
    /// Leave out the contents of this partition, like free space: they read as zeros, but `install` keeps what the target holds
    /// there, unless --free zero is given. Can be repeated
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["raw", "audit"])]
    pub(crate) skip_partition: Vec<u32>,
    /// Store every byte of this partition, whatever its filesystem does not use. Can be repeated
    #[arg(long, value_name = "NUMBER", conflicts_with = "raw")]
    pub(crate) whole_partition: Vec<u32>,
    /// Read this partition as ext, xfs, btrfs, vfat, exfat, ntfs, ufs or swap, even if there are marks of others. Without a number,
    /// the whole disk, whatever its partition table says. Can be repeated
    #[arg(long = "filesystem", value_name = "[NUMBER=]KIND", value_parser = filesystem, conflicts_with = "raw")]
    pub(crate) filesystems: Vec<(Option<u32>, String)>,
    /// Read back every block of this disk that the store already has, not only a sample; damaged blocks are stored again
    #[arg(long)]
    pub(crate) verify_known: bool,
    /// Store zeros for sectors that cannot be read; the version lists them
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// After the capture, compare what was kept with the space that partx, blkid, e2fsck, dumpe2fs and debugfs report as used;
    /// exit code 6 if used space was left out
    #[arg(long)]
    pub(crate) audit: bool,
    /// Sector size of the disk in the raw file
    #[arg(long, value_name = "BYTES", value_parser = ["512", "4096"])]
    pub(crate) sector_size: Option<String>,
    /// Label for this version; can be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Note for this version
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    /// zstd compression level: 1 is fastest, 19 smallest
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(crate) level: i32,
    /// Frame size before compression, in KiB
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(4..=256), hide = true)]
    pub(crate) frame_size: u16,
    /// Block size in files, in KiB
    #[arg(long, default_value = "64", value_parser = ["32", "64"], hide = true)]
    pub(crate) block_size: String,
    /// Number of hashing threads, and of compression threads [default: number of cores]
    #[arg(long)]
    pub(crate) threads: Option<usize>,
}

#[derive(Args, Debug)]
pub(crate) struct Clone {
    /// NAME (the latest version), NAME@NUMBER, or a score
    pub(crate) version: VersionArgument,
    /// New image
    pub(crate) name: ImageName,
    /// Allow an existing image, and create its next version
    #[arg(long)]
    pub(crate) next: bool,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    #[command(flatten)]
    pub(crate) of: OfNode,
}

#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// NAME (the latest version), NAME@NUMBER, or a score; or a partition, file or directory in it: NAME:PARTITION/PATH
    #[arg(value_parser = location_of_version())]
    pub(crate) first: FileLocation,
    /// Version, or place in one, to compare with, named in the same way
    #[arg(value_parser = location_of_version())]
    pub(crate) second: FileLocation,
    /// Compare block ids only, and list every range that differs: offset, length, first and second state
    #[arg(long)]
    pub(crate) blocks: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Heal {
    /// Where to look for lost blocks: the directory of another store, unix:PATH or https://HOST:PORT of an origin, the
    /// directory of a stopped node, or a disk or raw file; can be repeated. Without it, damaged places are only read again
    #[arg(long, value_name = "WHERE")]
    pub(crate) from: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Also read every frame and verify every block against its hash. Damaged frames go into quarantine; frames that read
    /// correctly again leave it
    #[arg(long)]
    pub(crate) read_data: bool,
    /// With --read-data: skip packs that were read back within this time, such as 30d, so that an interrupted check continues
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "read_data")]
    pub(crate) unless_read_within: Option<Duration>,
    /// First remove other users' permissions from the store's files (chmod go-rwx)
    #[arg(long)]
    pub(crate) fix_modes: bool,
}
