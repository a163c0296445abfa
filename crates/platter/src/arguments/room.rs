//! Arguments of casts and their receivers.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use platter_jobs::{Group, Result, Score, SenderAddress, Wanted};

use super::signing::SignatureArguments;
use super::target::{DeltaArguments, TargetOptions};
use super::version::{PartArgument, VersionArgument};
use crate::sizes::{bits_per_second, seconds};

#[derive(Args, Debug)]
pub(crate) struct Cast {
    /// NAME (the latest version), NAME@NUMBER, or a score
    #[arg(required_unless_present_any = ["hoard", "probe"])]
    pub(crate) version: Option<VersionArgument>,
    /// Cast nothing: test what the network does to multicast on the way to the machines that run `platter receive --probe`, and say
    /// what to do about it. Takes ten seconds after the last of --receivers has joined, two of them at --rate
    #[arg(long, conflicts_with_all = ["version", "hoard", "node", "segment", "spool", "linger", "give_up"])]
    pub(crate) probe: bool,
    /// Instead of a version, cast the hoard that `platter hoard sync --cache DIR` keeps in this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["version", "segment"])]
    pub(crate) hoard: Option<PathBuf>,
    /// Cast what the running node with this cache directory holds. It first fetches what it lacks, from other nodes and the origin; while
    /// it lacks nothing, the origin may be down. The node has an origin of its own: --server is ignored
    #[arg(long, value_name = "DIR", conflicts_with_all = ["hoard", "spool"])]
    pub(crate) node: Option<PathBuf>,
    /// Encrypt the cast, and let only receivers join that have the same key file. It is created if it is missing: copy it to the
    /// receivers. Of an encrypted store, it is a secret: who recorded the cast can read the store with it
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// With --server or --node: cast without --key-file, although the origin gives the version only to access tokens. Every machine of the network
    /// can read it
    #[arg(long, conflicts_with_all = ["key_file", "hoard", "probe"])]
    pub(crate) readable: bool,
    /// Network interface to send on: name, or an address of it [default: from the routing table]
    #[arg(long, short, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Rate limit in bits per second, such as 400M or 2.5G; slow receivers reduce the rate further
    #[arg(long, default_value = "900M", value_parser = bits_per_second)]
    pub(crate) rate: u64,
    /// Start as soon as this many receivers have joined
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) receivers: u32,
    /// Start after this many seconds with the receivers that have joined
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) wait: Duration,
    /// Seconds to wait for late receivers after the last one has finished
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) linger: Duration,
    /// Give up if no receiver joins for this long [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) give_up: Option<Duration>,
    /// Multicast group for the data, which decides whether the cast uses IPv4 or IPv6 [default: a group in 239.255/16, derived from the
    /// session; without an IPv4 address, in ff12::efff:0/112]
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<Group>,
    /// Segment size in MiB: receivers track this much data at a time [default: 65536]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 30), hide_short_help = true)]
    pub(crate) segment: Option<u64>,
    /// With --server: directory for a copy of the version, which is removed at the end [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR", conflicts_with = "hoard")]
    pub(crate) spool: Option<PathBuf>,
    /// UDP port for data and announcements, and port of this machine for joins (TCP) and feedback (UDP). If another process of
    /// this machine casts at that one, the first free one of the next 99 is used
    #[arg(long, default_value_t = 7580)]
    pub(crate) port: u16,
}

#[derive(Args, Debug)]
pub(crate) struct Receive {
    /// [NAME] TARGET: the cast to wait for (image name, version or score; without NAME, the first cast heard), and the block
    /// device or file to write. A name alone is refused unless a trusted key signed the version. With :N after it, only
    /// partition N of the disk is written, to the start of the target
    #[arg(required_unless_present_any = ["hoard", "probe"], num_args = 1..=2, value_names = ["NAME", "TARGET"])]
    pub(crate) what: Vec<String>,
    /// Receive nothing: take part in the test of the network by `platter cast --probe`, and say what it shows about this machine. As
    /// root, also looks for an IGMP querier (an MLD querier, of IPv6, is not looked for)
    #[arg(long, conflicts_with_all = ["what", "hoard", "buffer", "trust_any", "TargetOptions", "DeltaArguments", "SignatureArguments"])]
    pub(crate) probe: bool,
    /// Instead of a disk, receive a hoard into this node cache directory; only missing blocks are stored
    #[arg(long, value_name = "DIR", conflicts_with = "what")]
    pub(crate) hoard: Option<PathBuf>,
    /// Join only senders with the same key file, as `cast --key-file` creates it
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Network interface to listen on: its name, to hear casts over IPv4 and IPv6 as far as it has addresses, or one of its addresses, to
    /// hear those of its family [default: the one to the sender, if it or an origin is named, else from the routing table]
    #[arg(long, short, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Address of the sender, for networks that do not pass announcements. A link-local one can name the interface: [fe80::1%eth0]:7580
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) sender: Option<SenderAddress>,
    /// Name of this machine in the sender's output [default: host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) hello: Option<String>,
    /// UDP port of announcements
    #[arg(long, default_value_t = 7580)]
    pub(crate) port: u16,
    /// Memory for incoming chunks in MiB
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(8..))]
    pub(crate) buffer: u16,
    /// Give up if no sender is heard, or the origin does not answer, for this long [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) give_up: Option<Duration>,
    #[command(flatten)]
    pub(crate) target_options: TargetOptions,
    /// Receive what the first sender of that name casts, although nothing proves that it is the right disk
    #[arg(long)]
    pub(crate) trust_any: bool,
    #[command(flatten)]
    pub(crate) delta: DeltaArguments,
    #[command(flatten)]
    pub(crate) signatures: SignatureArguments,
}

#[derive(Args, Debug)]
pub(crate) struct Casts {
    /// Also list casts that have ended, for ten minutes
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Print the list again and again, every second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
}

impl Receive {
    /// The cast to wait for, and the partition to write. A name without a number matches every version of the image.
    ///
    /// # Errors
    /// `Refused` for an invalid name.
    pub(crate) fn wanted(&self) -> Result<(Wanted, Option<u32>)> {
        let Some(PartArgument { version, part }) = self.named()? else { return Ok((Wanted::Any, None)) };
        let wanted = Score::from_hex(&version).map_or(Wanted::Name(version), Wanted::Score);
        Ok((wanted, part))
    }

    /// The version and the partition, if they are named.
    ///
    /// # Errors
    /// `Refused` for an invalid name.
    pub(crate) fn named(&self) -> Result<Option<PartArgument>> {
        let [name, _] = &self.what[..] else { return Ok(None) };
        name.parse().map(Some)
    }
}
