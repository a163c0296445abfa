//! Arguments of `platter hoard`.

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
    /// The virtual machine has no screen, and its writes are discarded. Needs qemu-system-x86_64.
    Record {
        /// NAME (the latest version) or NAME@NUMBER
        version: NamedVersion,
        #[command(flatten)]
        machine: MachineOptions,
    },
    /// Register a boot set from a trace recorded by `platter attach --record`
    Import {
        /// Trace file
        trace: PathBuf,
        /// NAME (the newest version with the score in the trace) or NAME@NUMBER
        version: NamedVersion,
        /// Description of what ended the recording
        #[arg(long, default_value = "imported")]
        marker: String,
        /// Description of what was booted
        #[arg(long, default_value = "", hide_default_value = true)]
        command: String,
        /// Accelerator of the virtual machine, such as kvm or tcg
        #[arg(long, default_value = "", hide_default_value = true)]
        accelerator: String,
    },
    /// List the boot sets
    List,
    /// Show a boot set; with --json, its pages and blocks in order of first use
    Show {
        /// NAME (its latest version in the hoard) or NAME@NUMBER
        version: OneOrAll,
    },
    /// Remove the boot set of a version, or of all versions of an image, from the hoard
    Unregister {
        /// NAME@NUMBER for one version, NAME for all versions
        #[arg(value_name = "NAME[@NUMBER]")]
        what: OneOrAll,
    },
    /// Have `platter hoard daily` record new versions of an image
    Follow {
        /// Image to follow; without it, followed images are listed
        name: Option<ImageName>,
        /// Stop following the image
        #[arg(long, requires = "name")]
        stop: bool,
        #[command(flatten)]
        machine: MachineOptions,
    },
    /// Record new versions of followed images and drop old boot sets; run it once a day
    ///
    /// Ages are counted in runs of this command, at most one per date, so a clock that jumps drops nothing.
    Daily {
        /// Drop boot sets registered this many days ago or earlier, except the latest of each image [default: keep all]
        #[arg(long, value_name = "DAYS")]
        keep_days: Option<u64>,
        /// How many days of changes to keep; a node that was away for longer downloads the full list
        #[arg(long, value_name = "DAYS", default_value_t = 30)]
        window_days: u64,
        /// Current time in seconds since 1970 UTC
        #[arg(long, value_name = "SECONDS", hide = true, allow_negative_numbers = true)]
        now: Option<i64>,
    },
    /// Update this machine's copy of the hoard to the newest revision
    Sync {
        /// Cache directory of the node
        #[arg(long, value_name = "DIR")]
        cache: PathBuf,
        /// Request the full list instead of changes; needed after this machine got access to more images
        #[arg(long)]
        whole: bool,
    },
    /// Show the size of the hoard and how it grows
    Status {
        /// Cache directory of a node: also show the disk space and memory used by its copy
        #[arg(long, value_name = "DIR")]
        cache: Option<PathBuf>,
        /// Draw the growth as an SVG file
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct MachineOptions {
    /// Memory of the virtual machine, such as 1G or 512M
    #[arg(long, default_value = "1G", value_parser = mebibytes)]
    pub(crate) memory: u32,
    /// Event that ends the recording: serial:TEXT (TEXT appears on the serial console), port:NUMBER (the guest accepts TCP
    /// connections on the port), or quiet:SECONDS (no reads for that long)
    #[arg(long, value_name = "MARKER", default_value = "quiet:10")]
    pub(crate) until: Marker,
    /// Give up after this time, such as 10m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Accelerator [default: kvm if available, else tcg]
    #[arg(long, value_enum, default_value_t = Accelerate::Auto, hide_default_value = true)]
    pub(crate) accelerator: Accelerate,
    /// QEMU program to run
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-x86_64")]
    pub(crate) qemu: String,
    /// Additional argument for QEMU; can be repeated
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) qemu_arguments: Vec<String>,
}

/// Accelerator of a virtual machine.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Accelerate {
    /// Hardware virtualization if available, else emulation
    Auto,
    /// Hardware virtualization
    Kvm,
    /// Emulation
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
