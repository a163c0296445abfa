//! Arguments of live disks: served by this process or by a node, written, published.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use platter_jobs::{ImageName, ServeAddress};

use super::target::CacheArguments;
use super::version::VersionArgument;
use crate::sizes::{bits_per_second, byte_size, duration, label, on_or_off, serve_address};

#[derive(Args, Debug)]
pub(crate) struct Attach {
    /// NAME (its latest version), NAME@NUMBER, or a score; as many as wanted
    pub(crate) versions: Vec<VersionArgument>,
    /// Let them be written; and in the tree of --fuse and --9p let versions be removed, images be renamed, and disks be
    /// copied into import/
    #[arg(long)]
    pub(crate) write: bool,
    #[command(flatten)]
    pub(crate) nbd: NbdArguments,
    #[command(flatten)]
    pub(crate) tree: TreeArguments,
    /// Take the edit token from whoever has it; what they wrote is kept, but they cannot publish it
    #[arg(long, requires = "write")]
    pub(crate) steal: bool,
    /// Who edits, for the others [default: user@host]
    #[arg(long, value_name = "NAME")]
    pub(crate) holder: Option<String>,
    /// MiB of memory for decoded blocks, shared by all disks; a disk of an origin takes up to 64 more for what came, and with
    /// `--cache-dir` 8
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) cache: u32,
    /// Read first from the hoard that `platter hoard sync --cache DIR` keeps there; without its store, what is hoarded is
    /// served all the same
    #[arg(long, value_name = "DIR")]
    pub(crate) hoard: Option<PathBuf>,
    /// Record what is asked of the disk, in a new file: the source of boot sets; see `platter trace`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// What to do with what was written when the disk is detached, or this is told to end
    #[arg(long, value_enum, default_value_t = Then::Keep, requires = "write")]
    pub(crate) on_detach: Then,
    /// Publish what was written that often, such as 30s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "write")]
    pub(crate) publish_every: Option<Duration>,
    /// A sentence for versions that are published
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    #[command(flatten)]
    pub(crate) far: Far,
    #[command(flatten)]
    pub(crate) cache_of_origin: CacheArguments,
    /// Fetch every block in the background, until the disk needs nobody; what was filled stays until it is detached
    #[arg(long)]
    pub(crate) fill: bool,
    /// Have the node serve it whose cache is in that directory, and return
    #[arg(long, value_name = "DIR", conflicts_with_all = ["write", "nbd", "fuse", "ninep", "record", "cache_dir"])]
    pub(crate) node: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Node {
    /// What to serve from the start: NAME (its latest version), NAME@NUMBER, or a score; as many as wanted
    pub(crate) versions: Vec<VersionArgument>,
    /// The origin: unix:PATH or https://HOST:PORT [default: --server, else $PLATTER_SERVER]
    #[arg(long, value_name = "URL")]
    pub(crate) origin: Option<String>,
    /// The directory of its cache, which is made when missing
    #[arg(long = "cache", visible_alias = "cache-dir", value_name = "DIR")]
    pub(crate) cache_dir: PathBuf,
    /// Most bytes of the cache, such as 500M, 20G or 1T
    #[arg(long, value_name = "SIZE", default_value = "20G", value_parser = byte_size)]
    pub(crate) cache_size: u64,
    #[command(flatten)]
    pub(crate) nbd: NbdArguments,
    #[command(flatten)]
    pub(crate) tree: TreeArguments,
    /// MiB of memory for decoded blocks, shared by all disks; and as many, at most 128, for frames between nodes
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) memory: u32,
    /// Fetch every block of the disks that are named here, until they need nobody
    #[arg(long)]
    pub(crate) fill: bool,
    /// What people call this node [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Share with other nodes, which reach this one at that ADDRESS:PORT; needs an access token for all images
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peers: Option<SocketAddr>,
    /// Send at most so much to other nodes, such as 100M or 1G bits per second
    #[arg(long, value_name = "RATE", default_value = "1G", requires = "peers", value_parser = bits_per_second)]
    pub(crate) share_rate: u64,
    /// Do not keep the origin's hoard, the boot sets of all images, in the cache's directory
    #[arg(long)]
    pub(crate) no_hoard: bool,
}

/// The tree of all images, as files.
#[derive(Args, Debug)]
pub(crate) struct TreeArguments {
    /// Mount the tree of all images there, an empty directory: DIR/NAME/latest.raw, DIR/NAME/live.raw, DIR/by-date/...
    #[arg(long, value_name = "DIR")]
    pub(crate) fuse: Option<PathBuf>,
    /// Let users other than this one into the mounted tree
    #[arg(long, requires = "fuse")]
    pub(crate) allow_other: bool,
    /// Serve the same tree over 9P2000.L there: a path for a unix socket, or ADDRESS:PORT of this machine
    #[arg(long = "9p", value_name = "SOCKET", value_parser = serve_address)]
    pub(crate) ninep: Option<ServeAddress>,
}

/// Disks over NBD, and who may reach them.
#[derive(Args, Debug)]
pub(crate) struct NbdArguments {
    /// Serve the disks over NBD there: a path for a unix socket, or ADDRESS:PORT
    #[arg(long, value_name = "SOCKET", value_parser = serve_address)]
    pub(crate) nbd: Option<ServeAddress>,
    /// Speak TLS, and only TLS, with server-cert.pem and server-key.pem of that folder, and let in only clients with a
    /// certificate of its ca-cert.pem (less those in ca-crl.pem, if it is there); needed where other machines reach the
    /// address. There are no pre-shared keys
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// With off, clients need no certificate: whoever reaches the address has the disks
    #[arg(long, value_name = "on|off", default_value = "on", requires = "tls_certificates", value_parser = on_or_off,
          action = clap::ArgAction::Set)]
    pub(crate) tls_verify_peer: bool,
    /// At a TCP port without TLS, let in every user of this machine. Otherwise a client's process has to be of the user
    /// who serves, or root's
    #[arg(long)]
    pub(crate) insecure_loopback: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Disks {
    #[command(flatten)]
    pub(crate) far: Far,
    /// List those of the node whose cache is in that directory
    #[arg(long, value_name = "DIR")]
    pub(crate) node: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Detach {
    /// The disk, as `platter disks` calls it
    pub(crate) disk: VersionArgument,
    /// It is one of the node whose cache is in that directory; what was filled for it may then go
    #[arg(long, value_name = "DIR", conflicts_with = "then")]
    pub(crate) node: Option<PathBuf>,
    /// What to do with what was written
    #[arg(long, value_enum, default_value_t = Then::Keep)]
    pub(crate) then: Then,
    /// A sentence for the version, if it is published
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    #[command(flatten)]
    pub(crate) far: Far,
}

#[derive(Args, Debug)]
pub(crate) struct Publish {
    /// The image whose disk was written, such as lab/debian12
    pub(crate) disk: ImageName,
    /// A new image, whose first version this becomes
    pub(crate) name: Option<ImageName>,
    /// The disk that was written under the edit token of that number, when more than one lies there
    #[arg(long, value_name = "NUMBER")]
    pub(crate) token: Option<u64>,
    /// A word about this version; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// A sentence about this version
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    #[command(flatten)]
    pub(crate) far: Far,
}

#[derive(Args, Debug)]
pub(crate) struct Discard {
    /// The image whose disk was written, such as lab/debian12
    pub(crate) disk: ImageName,
    /// The disk that was written under the edit token of that number, when more than one lies there
    #[arg(long, value_name = "NUMBER")]
    pub(crate) token: Option<u64>,
    #[command(flatten)]
    pub(crate) far: Far,
}

/// What becomes of what was written when a disk is detached.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Then {
    /// Keep it, and the edit token: attach, publish or discard it later
    Keep,
    /// Make it the next version
    Publish,
    /// Throw it away
    Discard,
}

/// Where what is written to the disks of an origin lies.
#[derive(Args, Debug)]
pub(crate) struct Far {
    /// With --server: the directory of this machine where what is written lies, for one origin's store alone [default:
    /// platter/far/ID in $XDG_STATE_HOME, else /var/lib/platter/far/ID as root, else ~/.local/state/platter/far/ID]
    #[arg(long, value_name = "DIR")]
    pub(crate) overlays: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Trace {
    /// The trace
    pub(crate) file: PathBuf,
}
