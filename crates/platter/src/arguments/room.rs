//! Arguments of casts and their receivers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use platter_jobs::{Result, Score, VersionQuery, Wanted};

use super::target::TargetOptions;
use super::version::VersionArgument;
use crate::sizes::bits_per_second;

#[derive(Args, Debug)]
pub(crate) struct Cast {
    /// NAME (its latest version), NAME@NUMBER, or a score
    #[arg(required_unless_present = "hoard")]
    pub(crate) version: Option<VersionArgument>,
    /// Instead of a version, cast the hoard that `platter hoard sync --cache DIR` keeps there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["version", "segment"])]
    pub(crate) hoard: Option<PathBuf>,
    /// Name or IPv4 address of the interface to send on [default: where the routes point]
    #[arg(long, short, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Most bits per second on the wire, such as 400M or 2.5G; slower receivers slow it down further
    #[arg(long, default_value = "900M", value_parser = bits_per_second)]
    pub(crate) rate: u64,
    /// Start as soon as so many receivers have joined
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) receivers: u32,
    /// Start after so many seconds, with those that have joined
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    pub(crate) wait: f64,
    /// After the last receiver is done, wait so long for late ones
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    pub(crate) linger: f64,
    /// Give up if nobody joins for so long [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) give_up: Option<f64>,
    /// Multicast group for the data [default: one of 239.255/16 derived from the session]
    #[arg(long, value_name = "A.B.C.D")]
    pub(crate) group: Option<Ipv4Addr>,
    /// MiB of data that receivers get and remember at a time [default: 65536]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 30), hide_short_help = true)]
    pub(crate) segment: Option<u64>,
    /// UDP port of data and announcements, and TCP port of joins
    #[arg(long, default_value_t = 7580)]
    pub(crate) port: u16,
}

#[derive(Args, Debug)]
pub(crate) struct Receive {
    /// [NAME] TARGET: the cast to wait for (a name, a version, or a score; the first one heard if none is given), and
    /// the block device or file to write. Only a score proves what is received; by name, the sender is trusted
    #[arg(required_unless_present = "hoard", num_args = 1..=2, value_names = ["NAME", "TARGET"])]
    pub(crate) what: Vec<String>,
    /// Instead of a disk, receive a hoard to this node's directory: what it lacks, and the revision
    #[arg(long, value_name = "DIR", conflicts_with = "what")]
    pub(crate) hoard: Option<PathBuf>,
    /// Name or IPv4 address of the interface to listen on [default: where the routes point]
    #[arg(long, short, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// The sender's address, where no announcement gets through
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) sender: Option<SocketAddr>,
    /// What this machine calls itself on the sender's screen [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) hello: Option<String>,
    /// UDP port of announcements
    #[arg(long, default_value_t = 7580)]
    pub(crate) port: u16,
    /// MiB of memory for chunks on their way
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(8..))]
    pub(crate) buffer: u16,
    /// Give up if no sender is heard for so long [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) give_up: Option<f64>,
    #[command(flatten)]
    pub(crate) target_options: TargetOptions,
}

impl Receive {
    /// The cast to wait for. A name without a number is met by every version of it.
    ///
    /// # Errors
    /// `Refused` for a name that is none.
    pub(crate) fn wanted(&self) -> Result<Wanted> {
        let [name, _] = &self.what[..] else { return Ok(Wanted::Any) };
        if let Some(score) = Score::from_hex(name) {
            return Ok(Wanted::Score(score));
        }
        name.parse::<VersionQuery>()?;
        Ok(Wanted::Name(name.clone()))
    }
}
