//! Arguments of the commands for live disks: attach, node, disks, detach, publish, discard, trace.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use platter_jobs::ImageName;
use platter_live::ServeAddress;

use super::signing::SignatureArguments;
use super::target::CacheArguments;
use super::version::VersionArgument;
use crate::sizes::{bits_per_second, byte_size, duration, label, on_or_off, serve_address};

#[derive(Args, Debug)]
pub(crate) struct Attach {
    /// NAME (the latest version), NAME@NUMBER, or a score; can be repeated
    pub(crate) versions: Vec<VersionArgument>,
    #[command(flatten)]
    pub(crate) disk: DiskArguments,
    #[command(flatten)]
    pub(crate) nbd: NbdArguments,
    #[command(flatten)]
    pub(crate) tree: TreeArguments,
    /// Memory for decoded blocks in MiB, shared by all disks. With --server, each disk also uses up to 64 MiB for received data,
    /// or 8 MiB with --cache-dir
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) cache: u32,
    /// Read first from the hoard that `platter hoard sync --cache DIR` keeps in this directory. Hoarded blocks are served even if
    /// the origin is unreachable
    #[arg(long, value_name = "DIR")]
    pub(crate) hoard: Option<PathBuf>,
    /// Record all requests to the disk in a new trace file; see `platter trace` and `platter hoard import`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) far: Far,
    #[command(flatten)]
    pub(crate) cache_of_origin: CacheArguments,
    /// Let the running node with this cache directory serve the disks, and return. With --nbd, at that address instead of the
    /// node's. Without --node, --nbd, --fuse and --9p, a running node of the same store is found automatically
    #[arg(long, value_name = "DIR", conflicts_with_all = ["fuse", "ninep", "cache_dir", "hoard", "overlays"])]
    pub(crate) node: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) signatures: SignatureArguments,
    /// Refused, with the reason: an option of `node` and `serve`
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,
}

/// How each of the named disks is served.
#[derive(Args, Debug)]
pub(crate) struct DiskArguments {
    /// Make the disks writable. In the trees of --fuse and --9p, also allow removing versions, renaming images, and copying
    /// disks into import/
    #[arg(long)]
    pub(crate) write: bool,
    /// Take over the edit lock from its holder; the holder's changes are kept, but cannot become the next version
    #[arg(long, requires = "write")]
    pub(crate) steal: bool,
    /// Holder name shown for the edit lock [default: user@host]
    #[arg(long, value_name = "NAME")]
    pub(crate) holder: Option<String>,
    /// What to do with unpublished changes when the disk is detached, or when `attach` is told to end. A node that is told to end
    /// keeps its disks, and serves them again after a restart
    #[arg(long, value_enum, default_value_t = Then::Keep, requires = "write")]
    pub(crate) on_detach: Then,
    /// Publish changes at this interval, such as 30s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "write")]
    pub(crate) publish_every: Option<Duration>,
    /// Note for published versions
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    /// Fetch every block in the background until the disk is fully local; the cache keeps it until the disk is detached
    #[arg(long)]
    pub(crate) fill: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Node {
    /// Disks to serve from the start: NAME (the latest version), NAME@NUMBER, or a score; can be repeated
    pub(crate) versions: Vec<VersionArgument>,
    /// Origin: unix:PATH or https://HOST:PORT [default: --server, else $PLATTER_SERVER]
    #[arg(long, value_name = "URL")]
    pub(crate) origin: Option<String>,
    /// Cache directory, which also holds the overlays of writable disks; created if missing
    #[arg(long = "cache", visible_alias = "cache-dir", value_name = "DIR")]
    pub(crate) cache_dir: PathBuf,
    #[command(flatten)]
    pub(crate) signatures: SignatureArguments,
    /// Size limit of the cache, such as 500M, 20G or 1T; overlays do not count
    #[arg(long, value_name = "SIZE", default_value = "20G", value_parser = byte_size)]
    pub(crate) cache_size: u64,
    #[command(flatten)]
    pub(crate) disk: DiskArguments,
    #[command(flatten)]
    pub(crate) nbd: NbdArguments,
    #[command(flatten)]
    pub(crate) tree: TreeArguments,
    /// Memory for decoded blocks in MiB, shared by all disks. With --peers, the same amount again, at most 128, for frames
    /// exchanged with other nodes
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) memory: u32,
    /// Name of this node [default: host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Exchange blocks with other nodes whose access tokens read the same images; they connect to this ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peers: Option<SocketAddr>,
    /// Limit for data sent to other nodes, in bits per second, such as 100M or 1G
    #[arg(long, value_name = "RATE", default_value = "1G", requires = "peers", value_parser = bits_per_second)]
    pub(crate) share_rate: u64,
    /// Do not keep a copy of the origin's hoard (the boot sets of all images) in the cache directory
    #[arg(long)]
    pub(crate) no_hoard: bool,
    /// Do not receive the hoard by cast: always fetch it from the origin and other nodes
    #[arg(long, conflicts_with = "no_hoard")]
    pub(crate) no_casts: bool,
    /// Network interface (name or address) on which the origin casts the hoard [default: the one towards the origin, if it is another
    /// machine]
    #[arg(long, value_name = "IF", conflicts_with_all = ["no_casts", "no_hoard"])]
    pub(crate) interface: Option<String>,
    /// Do not register the first boots of each version as its boot set, for the hoards of all nodes
    #[arg(long)]
    pub(crate) no_record_boots: bool,
    /// Take over from the node that runs with the same cache directory, if there is one: its clients stay connected
    #[arg(long)]
    pub(crate) take_over: bool,
}

/// All images as a file tree.
#[derive(Args, Debug)]
pub(crate) struct TreeArguments {
    /// Mount all images as a file tree at this empty directory: DIR/NAME/latest.raw, DIR/NAME/live.raw, DIR/by-date/...
    #[arg(long, value_name = "DIR")]
    pub(crate) fuse: Option<PathBuf>,
    /// Allow other users to access the mounted tree
    #[arg(long, requires = "fuse")]
    pub(crate) allow_other: bool,
    /// Serve the same tree over 9P2000.L: path of a unix socket, or a loopback ADDRESS:PORT
    #[arg(long = "9p", value_name = "SOCKET", value_parser = serve_address)]
    pub(crate) ninep: Option<ServeAddress>,
}

/// NBD address and access control.
#[derive(Args, Debug)]
pub(crate) struct NbdArguments {
    /// Serve the disks over NBD: path of a unix socket, or ADDRESS:PORT
    #[arg(long, value_name = "SOCKET", value_parser = serve_address)]
    pub(crate) nbd: Option<ServeAddress>,
    /// Require TLS, using server-cert.pem and server-key.pem from this directory. Clients need a certificate issued by
    /// ca-cert.pem and not revoked by ca-crl.pem (optional). Required for addresses that other machines can reach. Pre-shared
    /// keys are not supported
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// off: accept clients without a certificate; everybody who can reach the address can use the disks
    #[arg(long, value_name = "on|off", default_value = "on", requires = "tls_certificates", value_parser = on_or_off,
          action = clap::ArgAction::Set)]
    pub(crate) tls_verify_peer: bool,
    /// On a TCP port without TLS, accept clients of every local user. By default, only processes of the serving user and of
    /// root are accepted
    #[arg(long)]
    pub(crate) insecure_loopback: bool,
}

/// Which node does it.
#[derive(Args, Debug)]
pub(crate) struct OfNode {
    /// Let the node with this cache directory do it. While that node does not run, the command itself does it, and needs --server.
    /// The disks of all nodes of the same store are found without this option, too
    #[arg(long, value_name = "DIR")]
    pub(crate) node: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Disks {
    #[command(flatten)]
    pub(crate) far: Far,
    /// List the disks of the node with this cache directory; while it runs, the origin is not asked
    #[arg(long, value_name = "DIR", conflicts_with = "overlays")]
    pub(crate) node: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Detach {
    /// Disk, as listed by `platter disks`
    pub(crate) disk: VersionArgument,
    /// Detach a disk of the node with this cache directory; the cache may then evict its blocks
    #[arg(long, value_name = "DIR", conflicts_with = "overlays")]
    pub(crate) node: Option<PathBuf>,
    /// What to do with unpublished changes [default: what --on-detach said when the disk was attached, else keep]
    #[arg(long, value_enum)]
    pub(crate) then: Option<Then>,
    /// Note for the version, if one is published
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    #[command(flatten)]
    pub(crate) far: Far,
}

#[derive(Args, Debug)]
pub(crate) struct Publish {
    /// Image of the live disk, such as lab/debian12
    pub(crate) disk: ImageName,
    /// New image to create from the changes, instead of the next version
    pub(crate) name: Option<ImageName>,
    /// Number of the edit lock under which the changes were written; needed if there is more than one overlay of the image
    #[arg(long, value_name = "NUMBER")]
    pub(crate) lock: Option<u64>,
    /// Label for this version; can be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Note for this version
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    #[command(flatten)]
    pub(crate) of: OfNode,
    #[command(flatten)]
    pub(crate) far: Far,
}

#[derive(Args, Debug)]
pub(crate) struct Discard {
    /// Image of the live disk, such as lab/debian12
    pub(crate) disk: ImageName,
    /// Number of the edit lock under which the changes were written; needed if there is more than one overlay of the image
    #[arg(long, value_name = "NUMBER")]
    pub(crate) lock: Option<u64>,
    #[command(flatten)]
    pub(crate) of: OfNode,
    #[command(flatten)]
    pub(crate) far: Far,
}

/// What happens to unpublished changes when a disk is detached.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Then {
    /// Keep the changes and the edit lock: attach, publish or discard later
    Keep,
    /// Publish the next version
    Publish,
    /// Discard the changes
    Discard,
}

/// Local directory for the overlays of an origin's disks.
#[derive(Args, Debug)]
pub(crate) struct Far {
    /// With --server: local directory for overlays (unpublished changes); one directory per origin store [default:
    /// platter/far/ID in $XDG_STATE_HOME, else /var/lib/platter/far/ID for root, else ~/.local/state/platter/far/ID]
    #[arg(long, value_name = "DIR")]
    pub(crate) overlays: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Trace {
    /// Trace file
    pub(crate) file: PathBuf,
}
