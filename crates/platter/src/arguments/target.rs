//! Arguments of commands that write a version to a device or file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use platter_jobs::{DeltaChoice, Format, Reason};

use super::signing::SignatureArguments;
use super::version::{PartArgument, VersionArgument};
use crate::sizes::byte_size;

#[derive(Args, Debug)]
pub(crate) struct Install {
    /// NAME (the latest version), NAME@NUMBER, or a score; followed by :N, only partition N of it, written to the start of the
    /// target
    pub(crate) version: PartArgument,
    /// Block device or file; a file is created if missing, and extended if too short
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) target_options: TargetOptions,
    #[command(flatten)]
    pub(crate) delta: DeltaArguments,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    #[command(flatten)]
    pub(crate) signatures: SignatureArguments,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// NAME (the latest version), NAME@NUMBER, or a score
    pub(crate) version: VersionArgument,
    /// File to create; - is standard output
    pub(crate) file: PathBuf,
    /// Format of the file: raw, qcow2, vmdk, vdi, vhd, vhdx (these need qemu-img) or ndz (Frisbee) [default: by its suffix, else
    /// raw]
    #[arg(long, value_name = "FORMAT", conflicts_with = "holes", value_parser = written_format)]
    pub(crate) format: Option<Format>,
    /// Compress the data in the file (qcow2 and vmdk)
    #[arg(long, conflicts_with = "holes")]
    pub(crate) compress: bool,
    /// For a damaged version: write what is readable, fill the rest with zeros, and list the lost ranges and files (exit code 4)
    #[arg(long)]
    pub(crate) holes: bool,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    #[command(flatten)]
    pub(crate) signatures: SignatureArguments,
}

/// A format by its name; the error lists those that are written.
fn written_format(name: &str) -> Result<Format, String> {
    name.parse()
        .map_err(|_: String| "unknown format: use one of raw, qcow2, vmdk, vdi, vhd, vhdx, ndz".to_owned())
}

/// How free space of the disk is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Free {
    /// Do not write free space: it keeps what the target held
    Skip,
    /// Write zeros to free space
    Zero,
}

#[derive(Args, Debug)]
pub(crate) struct TargetOptions {
    /// Read back and compare everything that was written; skipped free space is not compared. With --grow, the table is
    /// compared as changed, and the file system before it is grown
    #[arg(long)]
    pub(crate) verify: bool,
    /// Grow the last partition to the end of a larger target, and its file system if its tool can do that unmounted (ext2, ext3
    /// and ext4, as root); otherwise the command to run later is printed. With :N, only the file system. With data of the image
    /// behind its last partition, `install` refuses, and `receive` writes the disk without growing anything
    #[arg(long)]
    pub(crate) grow: bool,
    /// Give the disk and its partitions new random ids (GUIDs, or the signature of an MBR). Systems that find their partitions
    /// by PARTUUID or by signature (fstab, kernel command line, Windows) must be told; ids of file systems stay the same
    #[arg(long)]
    pub(crate) new_ids: bool,
    /// How to treat the image's free space. `skip` does not write it: outside of the target's first and last MiB it keeps old
    /// contents, secrets included. `zero` overwrites it with zeros
    #[arg(long, value_enum, default_value_t = Free::Skip)]
    pub(crate) free: Free,
    /// Overwrite what the target holds without asking; required without a terminal
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Write to the target despite this reason for refusal: mounted, swap, held, loop-backing, busy, sector-size, or
    /// not-a-disk; can be repeated
    #[arg(long = "force", value_name = "REASON", value_parser = reason)]
    pub(crate) force: Vec<Reason>,
}

/// Whether to keep what the target already holds.
#[derive(Args, Debug)]
pub(crate) struct DeltaArguments {
    /// Fetch and write only what the target lacks: what it holds already is verified and kept, and moved blocks are copied.
    /// Default if samples show that the target has at least an eighth of the disk
    #[arg(long, conflicts_with = "no_delta")]
    pub(crate) delta: bool,
    /// Fetch and write everything
    #[arg(long, conflicts_with = "from")]
    pub(crate) no_delta: bool,
    /// Also copy blocks from this disk or raw file, which is only read; implies --delta; can be repeated
    #[arg(long, value_name = "DISK")]
    pub(crate) from: Vec<PathBuf>,
}

impl DeltaArguments {
    pub(crate) fn choice(&self) -> DeltaChoice {
        match (self.delta, self.no_delta) {
            (true, _) => DeltaChoice::Always,
            (_, true) => DeltaChoice::Never,
            _ => DeltaChoice::Alike,
        }
    }
}

fn reason(name: &str) -> Result<Reason, String> {
    match Reason::from_name(name) {
        Some(reason) if reason.can_be_forced() => Ok(reason),
        Some(_) => Err(format!("{name} cannot be forced")),
        None => {
            let forcible = Reason::ALL.into_iter().filter(|reason| reason.can_be_forced());
            Err(format!(
                "no such reason; there are {}",
                forcible.map(Reason::name).collect::<Vec<_>>().join(", ")
            ))
        }
    }
}

/// Local cache of an origin's store.
#[derive(Args, Debug)]
pub(crate) struct CacheArguments {
    /// Cache blocks read from the origin in this directory; only one process can use it at a time
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Size limit of the cache, such as 500M, 20G or 1T
    #[arg(long, value_name = "SIZE", default_value = "20G", requires = "cache_dir", value_parser = byte_size)]
    pub(crate) cache_size: u64,
}
