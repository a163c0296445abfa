//! What `platter hoard` takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use platter_jobs::{Accelerator, ImageName, Machine, Marker};

use super::version::{NamedVersion, OneOrAll};
use crate::sizes::{duration, mebibytes};

#[derive(Debug, Subcommand)]
pub(crate) enum Hoard {
    /// Boot a version in QEMU until a marker, and register what it read as its boot set
    ///
    /// The machine has no screen, and what it writes is thrown away. Needs qemu-system-x86_64.
    Record {
        /// NAME (its latest version), or NAME@NUMBER
        version: NamedVersion,
        #[command(flatten)]
        machine: MachineOptions,
    },
    /// Register the boot that a trace of `platter attach --record` has
    Import {
        /// The trace
        trace: PathBuf,
        /// NAME (the newest of its versions that the trace is of), or NAME@NUMBER
        version: NamedVersion,
        /// What ended the recording, in words
        #[arg(long, default_value = "imported")]
        marker: String,
        /// What booted, in words
        #[arg(long, default_value = "", hide_default_value = true)]
        command: String,
        /// What ran it, such as kvm or tcg
        #[arg(long, default_value = "", hide_default_value = true)]
        accelerator: String,
    },
    /// List the boot sets
    List,
    /// Show a boot set; with --json its pages and blocks, in the order of first use
    Show {
        /// NAME (its latest version in the hoard), or NAME@NUMBER
        version: OneOrAll,
    },
    /// Take the boot set of a version out of the hoard, or those of all versions of an image
    Unregister {
        /// NAME@NUMBER for one version, NAME for all
        #[arg(value_name = "NAME[@NUMBER]")]
        what: OneOrAll,
    },
    /// Let `platter hoard daily` record new versions of an image
    Follow {
        /// The image; without one, those that are followed are listed
        name: Option<ImageName>,
        /// No longer
        #[arg(long, requires = "name")]
        stop: bool,
        #[command(flatten)]
        machine: MachineOptions,
    },
    /// Record new versions of followed images, and drop boot sets that are too old; to be run once a day
    ///
    /// Days are counted by runs of this command, at most one a date: a clock that jumps drops nothing.
    Daily {
        /// Drop boot sets that came so many days ago, but the latest of each image [default: keep all]
        #[arg(long, value_name = "DAYS")]
        keep_days: Option<u64>,
        /// Nodes that were away for so many days get changes; those that were away for longer, everything
        #[arg(long, value_name = "DAYS", default_value_t = 30)]
        window_days: u64,
        /// What the clock says, in seconds since 1970 UTC
        #[arg(long, value_name = "SECONDS", hide = true, allow_negative_numbers = true)]
        now: Option<i64>,
    },
    /// Bring this machine's hoard to the newest revision
    Sync {
        /// The node's directory
        #[arg(long, value_name = "DIR")]
        cache: PathBuf,
        /// Ask for everything instead of what changed: also for what this machine may read since not long ago
        #[arg(long)]
        whole: bool,
    },
    /// Tell what the hoard costs, and how it grows
    Status {
        /// A node's directory: tell what its hoard takes on the disk and in memory
        #[arg(long, value_name = "DIR")]
        cache: Option<PathBuf>,
        /// Draw the growth in that file
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct MachineOptions {
    /// Memory of the machine, such as 1G or 512M
    #[arg(long, default_value = "1G", value_parser = mebibytes)]
    pub(crate) memory: u32,
    /// What ends the recording: serial:TEXT (it prints that on its serial console), port:NUMBER (it takes connections there),
    /// or quiet:SECONDS (nothing is read for so long)
    #[arg(long, value_name = "MARKER", default_value = "quiet:10")]
    pub(crate) until: Marker,
    /// Give up after so long, such as 10m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// What runs it [default: kvm where that can be had, else tcg]
    #[arg(long, value_enum, default_value_t = Accelerate::Auto, hide_default_value = true)]
    pub(crate) accelerator: Accelerate,
    /// The QEMU to run
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-x86_64")]
    pub(crate) qemu: String,
    /// One more argument for it; may be repeated
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) qemu_arguments: Vec<String>,
}

/// What runs a machine's instructions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Accelerate {
    /// The processor where that can be had, else an emulation
    Auto,
    /// The processor
    Kvm,
    /// An emulation
    Tcg,
}

impl From<&MachineOptions> for Machine {
    fn from(options: &MachineOptions) -> Self {
        Self {
            memory_mib: options.memory,
            until: options.until.clone(),
            timeout_seconds: options.timeout.as_secs(),
            accelerator: match options.accelerator {
                Accelerate::Auto => Accelerator::Auto,
                Accelerate::Kvm => Accelerator::Kvm,
                Accelerate::Tcg => Accelerator::Tcg,
            },
            program: options.qemu.clone(),
            arguments: options.qemu_arguments.clone(),
        }
    }
}
