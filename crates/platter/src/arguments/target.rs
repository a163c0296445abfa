//! Arguments of commands that write a version to a device or file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use platter_jobs::Reason;

use super::version::VersionArgument;
use crate::sizes::byte_size;

#[derive(Args, Debug)]
pub(crate) struct Install {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) version: VersionArgument,
    /// A block device, or a file, which is made if it is missing and grows if it is too short
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) target_options: TargetOptions,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) version: VersionArgument,
    /// The raw file to make
    pub(crate) file: PathBuf,
    /// Of a damaged version, write what can be read, with zeros for the rest, and list that: ranges and files (exit code 4)
    #[arg(long)]
    pub(crate) holes: bool,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
}

/// What happens to space that nobody can read.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Free {
    /// Leave it: it keeps what the target held
    Skip,
    /// Make it zeros
    Zero,
}

#[derive(Args, Debug)]
pub(crate) struct TargetOptions {
    /// Read back from the target what was written, and compare; free space that was skipped is not compared
    #[arg(long)]
    pub(crate) verify: bool,
    /// What to do with the disk's free space. `skip` leaves it: skipped space keeps what the target held before, old
    /// secrets included, except in the disk's first and last MiB; `zero` makes it zeros
    #[arg(long, value_enum, default_value_t = Free::Skip)]
    pub(crate) free: Free,
    /// Overwrite what the target holds without asking; needed where nobody can be asked
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Write to the target although it is refused for that reason: mounted, swap, held, loop-backing, busy,
    /// sector-size, or not-a-disk; may be repeated
    #[arg(long = "force", value_name = "REASON", value_parser = reason)]
    pub(crate) force: Vec<Reason>,
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

/// A cache of what an origin's store holds.
#[derive(Args, Debug)]
pub(crate) struct CacheArguments {
    /// Keep what is read from the origin in that directory, and read it from there the next time; one process at a time
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Most bytes of the cache, such as 500M, 20G or 1T
    #[arg(long, value_name = "SIZE", default_value = "20G", requires = "cache_dir", value_parser = byte_size)]
    pub(crate) cache_size: u64,
}
