//! Arguments of commands over images and versions in the store.

use std::path::PathBuf;

use clap::Args;
use platter_jobs::{ForgetRequest, ImageName};

use super::token::TokenOptions;
use super::version::VersionArgument;
use crate::sizes::label;

#[derive(Args, Debug)]
pub(crate) struct Image {
    /// The image, such as lab/debian12
    pub(crate) name: ImageName,
}

#[derive(Args, Debug)]
pub(crate) struct Which {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) version: VersionArgument,
}

#[derive(Args, Debug)]
pub(crate) struct Rename {
    /// The image, or what the names of images begin with, such as lab/debian12 or lab
    pub(crate) from: ImageName,
    /// What it is called from now on
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
}

#[derive(Args, Debug)]
pub(crate) struct Capture {
    /// A block device, or a raw file
    pub(crate) source: PathBuf,
    /// The image: parts of a-z 0-9 . _ - separated by /, such as lab/debian12
    pub(crate) name: ImageName,
    /// Capture a disk that is in use or is written meanwhile (then `show` calls it torn), and take a filesystem that needs
    /// recovery whole
    #[arg(long)]
    pub(crate) force: bool,
    /// Look for neither partitions nor filesystems: take every byte that is not zero, also of a compressed file or an image of
    /// another program
    #[arg(long)]
    pub(crate) raw: bool,
    /// Leave out what lies in no partition, but for the partition tables, the space before the first partition, the last
    /// MiB of the disk and gaps of at most 1 MiB. What RAID controllers, boot loaders and deleted partitions left
    /// there is lost
    #[arg(long, conflicts_with = "raw")]
    pub(crate) skip_gaps: bool,
    /// Read back all that the store has already of this disk, not only a sample; what is damaged is stored anew
    #[arg(long)]
    pub(crate) verify_known: bool,
    /// Zeros stand for sectors that cannot be read: they are listed, and recorded in the version
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Afterwards, compare what was kept with what partx, blkid, e2fsck, dumpe2fs and debugfs call used; ends with 6 if
    /// something that others use was dropped
    #[arg(long)]
    pub(crate) audit: bool,
    /// The raw file is the image of a disk with sectors of so many bytes
    #[arg(long, value_name = "BYTES", value_parser = ["512", "4096"])]
    pub(crate) sector_size: Option<String>,
    /// A word about this version; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// A sentence about this version
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    #[command(flatten)]
    pub(crate) token: TokenOptions,
    /// zstd level: 1 is fast, 19 small
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(crate) level: i32,
    /// KiB of blocks compressed together
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(4..=256), hide = true)]
    pub(crate) frame_size: u16,
    /// KiB at whose multiples files are cut
    #[arg(long, default_value = "64", value_parser = ["32", "64"], hide = true)]
    pub(crate) block_size: String,
    /// Threads that hash, and as many that compress [default: the number of cores]
    #[arg(long)]
    pub(crate) threads: Option<usize>,
}

#[derive(Args, Debug)]
pub(crate) struct Clone {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) version: VersionArgument,
    /// The new image
    pub(crate) name: ImageName,
    /// The image may exist: make its next version
    #[arg(long)]
    pub(crate) next: bool,
    #[command(flatten)]
    pub(crate) token: TokenOptions,
}

#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) first: VersionArgument,
    /// What to compare it with, named in the same way
    pub(crate) second: VersionArgument,
    /// Compare blocks only, by their names, and tell every range that differs: offset, length, what stood and stands there
    #[arg(long)]
    pub(crate) blocks: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Also read every frame and compare every block with its hash: what is damaged goes into quarantine, what was repaired on
    /// the disk leaves it
    #[arg(long)]
    pub(crate) read_data: bool,
    /// First take from other users whatever they may open of the store (chmod go-rwx)
    #[arg(long)]
    pub(crate) fix_modes: bool,
}
