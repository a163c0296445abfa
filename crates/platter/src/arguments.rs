//! Every argument of the command line, with its help: the one source of usage, completions and documentation.

mod hoard;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use platter_daemon::{ListenAddress, NamePattern, Role};
use platter_jobs::{ImageName, Reason, ServeAddress, TokenChoice};

pub(crate) use hoard::Hoard;

use crate::sizes::{bits_per_second, byte_size, duration, label, on_or_off, serve_address};

/// Keeps disk images, deduplicated and compressed, and installs them on one machine or on a whole room at once.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 damaged data, 5 refused, 6 they differ (diff).\n\n\
Start with:\n  platter init\n  platter capture disk.raw lab/debian12\n  platter install lab/debian12 /dev/sdX"
)]
pub(crate) struct Arguments {
    /// The store [default: $PLATTER_STORE, else /var/lib/platter as root, else ~/.local/share/platter]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Print facts as JSON: one object, or one a line where there are many
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print neither progress nor notes
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// An origin, in whose store a command works instead.
#[derive(Args, Debug)]
pub(crate) struct ServerArguments {
    /// Work on the store of an origin: unix:PATH or https://HOST:PORT [default: $PLATTER_SERVER]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "store")]
    pub(crate) server: Option<String>,
    /// A file that holds the access token for the origin [default: the token in $PLATTER_TOKEN]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// SHA-256 of the origin's certificate, which is then believed whoever made it [default: $PLATTER_FINGERPRINT]
    #[arg(long, global = true, value_name = "SHA256", hide_short_help = true, conflicts_with = "ca")]
    pub(crate) fingerprint: Option<String>,
    /// Believe an origin's certificate that an authority of this file made (PEM) [default: those of this machine]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) ca: Option<PathBuf>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a store
    Init,
    /// Capture a disk as the next version of an image
    ///
    /// Reads the partition table and the filesystems, takes only what somebody can still read (free blocks, swap, the
    /// body of a clean journal are left out), cuts it along files, and stores what the store does not have yet.
    /// Understood: ext2, ext3, ext4 and swap. Everything else is taken whole, without its zeros.
    Capture(Capture),
    /// List the images
    Images,
    /// Show all that is known of a version
    Show(Which),
    /// List the versions of an image
    History(Image),
    /// Tell what differs between two versions
    ///
    /// Of ext2, ext3 and ext4, files: A is only in the second, D only in the first, M in both and different, ! not
    /// readable. Contents are compared by the names of blocks, and where these differ by the bytes; a file that only lies
    /// elsewhere is equal. Other file systems, and those that need recovery, are compared by their blocks. Ends with 0
    /// if nothing differs, 6 if something does, 4 if something could not be read.
    Diff(Diff),
    /// Make a version the next one of another image; copies no data
    Clone(Clone),
    /// Give an image, and all images below it, another name
    ///
    /// `platter rename lab attic` makes lab/debian12 attic/debian12. Scores, version numbers and times stay. Refused: a name that
    /// is taken or was another image's before, and an image that somebody edits. A later `rebuild` brings the old names
    /// back beside the new ones, and says so.
    Rename(Rename),
    /// Forget a version, or all versions of an image
    ///
    /// The number is never used again. Whoever reads the version goes on, and its blocks stay in the store until they are
    /// collected: until then a `rebuild` brings it back, and says so. Refused while somebody edits the image.
    Forget(Forget),
    /// See and change who may publish the next version of an image
    ///
    /// Whoever holds an image's edit token publishes its next version, and nobody else. A token has a number that is never
    /// used again: once it was taken over, what its holder still has cannot be published any more.
    #[command(subcommand)]
    Token(Token),
    /// Install a version on a device or file
    ///
    /// Every block is verified by its hash before it is written. If the target is larger than the disk, the backup GPT
    /// is moved to its end. Refused: a target that is mounted, in use, too small, holds the store, or is neither a
    /// block device nor a regular file.
    Install(Install),
    /// Write a version to a new raw file
    Export(Export),
    /// Check that the store is good; changes nothing
    Check(Check),
    /// Make the catalog anew from the packs alone
    ///
    /// For a store whose catalog is lost or damaged. Packs are the truth: every version whose record stands in one
    /// reappears, those that were forgotten but not yet collected among them.
    Rebuild,
    /// Cast a version to a room: to every machine that runs `platter receive`, at once, by multicast
    Cast(Cast),
    /// Receive a cast on a device or file
    Receive(Receive),
    /// Serve versions as disks that virtual machines boot and write, until they are detached or Ctrl-C
    ///
    /// Without --write a disk is read only, and any number of machines may use it. With --write this takes the edit
    /// token of the image: what is written goes to an overlay in the store, survives the death of this process, and
    /// becomes a version when it is published. With --server the overlay lies on this machine; while the origin is away, what was
    /// written or is in memory goes on, and nothing is published.
    Attach(Attach),
    /// List the disks that are attached, and those that were written and wait
    Disks(Disks),
    /// Serve versions of an origin on this machine, through a cache, until SIGTERM or Ctrl-C
    ///
    /// What was read stays in the cache, under a limit; what was not used for long goes. When the origin is away, everything
    /// held goes on. `platter attach IMAGE --node DIR` has the node serve another disk, with --fill one that needs nobody in
    /// the end; `platter disks --node DIR` tells what it serves. Killed and started again it serves the same disks, each of the
    /// version that it was.
    Node(Node),
    /// Stop serving a disk
    Detach(Detach),
    /// Make what was written to an image's disk its next version, or the first one of a new image
    ///
    /// An attached disk goes on above the new version. Published to a new name, the edit ends: the disk is detached and
    /// the edit token given back. No token is needed for that, so that what was written under one that somebody took
    /// over is not lost; `platter disks` lists it.
    Publish(Publish),
    /// Serve the store to other machines over HTTP, until SIGTERM or Ctrl-C
    ///
    /// Whoever may open the unix socket may do everything. Over TCP there is always TLS, with a certificate that is made at the
    /// first start unless one is named, and clients show an access token: `platter serve token add` makes one.
    Serve(Serve),
    /// Tell what a trace holds that `attach --record` made
    Trace(Trace),
    /// Keep what boots on every node: boot sets, recorded once, and hoarded everywhere
    ///
    /// A boot set is what a boot of a version reads, in order. The hoard is the boot sets of all versions, with numbered
    /// revisions; a node keeps all of it, and boots from it without asking anybody.
    #[command(subcommand)]
    Hoard(Hoard),
    /// Throw away what was written to an image's disk, and give its edit token back
    Discard(Discard),
    /// Print a completion script for a shell
    Completions(Completions),
}

#[derive(Args, Debug)]
pub(crate) struct Image {
    /// The image, such as lab/debian12
    pub(crate) name: ImageName,
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
    #[arg(value_name = "NAME[@NUMBER]")]
    pub(crate) what: String,
}

#[derive(Args, Debug)]
pub(crate) struct Which {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) version: String,
}

#[derive(Args, Debug)]
pub(crate) struct Capture {
    /// A block device, or a raw file
    pub(crate) source: PathBuf,
    /// The image: parts of a-z 0-9 . _ - separated by /, such as lab/debian12
    pub(crate) name: ImageName,
    /// Capture a disk that is mounted for writing, and take a filesystem that needs recovery whole
    #[arg(long)]
    pub(crate) force: bool,
    /// Look for neither partitions nor filesystems: take every byte that is not zero
    #[arg(long)]
    pub(crate) raw: bool,
    /// Also take what lies in large gaps between partitions
    #[arg(long)]
    pub(crate) keep_gaps: bool,
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
pub(crate) struct TokenOptions {
    /// Publish under the edit token of that number; refused once it has been taken over
    #[arg(long, value_name = "NUMBER")]
    pub(crate) token: Option<u64>,
    /// Publish although somebody holds the image's edit token: he loses it, and what he has cannot be published
    #[arg(long, conflicts_with = "token")]
    pub(crate) steal_token: bool,
}

impl From<&TokenOptions> for TokenChoice {
    fn from(options: &TokenOptions) -> Self {
        match options.token {
            Some(number) => Self::Number(number),
            None if options.steal_token => Self::Steal,
            None => Self::Free,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Clone {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) version: String,
    /// The new image
    pub(crate) name: ImageName,
    /// The image may exist: make its next version
    #[arg(long)]
    pub(crate) next: bool,
    #[command(flatten)]
    pub(crate) token: TokenOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// List the tokens that somebody holds
    List,
    /// Take the token of an image that nobody holds
    Take(TokenOf),
    /// Take the token of an image whoever holds it
    Steal(TokenOf),
    /// Give a token back
    Release(TokenOf),
}

#[derive(Args, Debug)]
pub(crate) struct TokenOf {
    /// The image, such as lab/debian12
    pub(crate) name: ImageName,
    /// Who holds it [default: USER@HOST]
    #[arg(long, value_name = "WHO")]
    pub(crate) holder: Option<String>,
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
    /// What to do with the disk's free space. `skip` leaves it: skipped space keeps what the target held before, old
    /// secrets included; `zero` makes it zeros
    #[arg(long, value_enum, default_value_t = Free::Skip)]
    pub(crate) free: Free,
    /// Write to the target although it is refused for that reason: mounted, swap, held, loop-backing, busy, or
    /// sector-size; may be repeated
    #[arg(long = "force", value_name = "REASON", value_parser = reason)]
    pub(crate) force: Vec<Reason>,
}

#[derive(Args, Debug)]
pub(crate) struct Install {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) version: String,
    /// A block device, or a file that is made if it is missing
    pub(crate) target: PathBuf,
    /// Read everything back from the target and compare
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) target_options: TargetOptions,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) version: String,
    /// The raw file to make
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Also read every frame and compare every block with its hash
    #[arg(long)]
    pub(crate) read_data: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Cast {
    /// NAME (its latest version), NAME@NUMBER, or a score
    #[arg(required_unless_present = "hoard")]
    pub(crate) version: Option<String>,
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
    /// the block device or file to write
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

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
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

#[derive(Args, Debug)]
pub(crate) struct Attach {
    /// NAME (its latest version), NAME@NUMBER, or a score; as many as wanted
    pub(crate) versions: Vec<String>,
    /// Let them be written
    #[arg(long)]
    pub(crate) write: bool,
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
    /// Mount the tree of all images there, an empty directory: DIR/NAME/latest.raw, DIR/NAME/live.raw, DIR/by-date/...
    #[arg(long, value_name = "DIR")]
    pub(crate) fuse: Option<PathBuf>,
    /// Let users other than this one into the mounted tree
    #[arg(long, requires = "fuse")]
    pub(crate) allow_other: bool,
    /// Serve the same tree over 9P2000.L there: a path for a unix socket, or ADDRESS:PORT
    #[arg(long = "9p", value_name = "SOCKET", value_parser = serve_address)]
    pub(crate) ninep: Option<ServeAddress>,
    /// Take the edit token from whoever has it; what they wrote is kept, but they cannot publish it
    #[arg(long, requires = "write")]
    pub(crate) steal: bool,
    /// Who edits, for the others [default: user@host]
    #[arg(long, value_name = "NAME")]
    pub(crate) holder: Option<String>,
    /// MiB of memory for decoded blocks, shared by all disks
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) cache: u32,
    /// Read first from the hoard that `platter hoard sync --cache DIR` keeps there; without its store, what is hoarded is
    /// served all the same
    #[arg(long, value_name = "DIR", conflicts_with = "write")]
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

/// Where what is written to the disks of an origin lies.
#[derive(Args, Debug)]
pub(crate) struct Far {
    /// With --server: the directory of this machine where what is written lies, for one origin's store alone [default:
    /// platter/far/ID in $XDG_STATE_HOME, else /var/lib/platter/far/ID as root, else ~/.local/state/platter/far/ID]
    #[arg(long, value_name = "DIR")]
    pub(crate) overlays: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Node {
    /// What to serve from the start: NAME (its latest version), NAME@NUMBER, or a score; as many as wanted
    pub(crate) versions: Vec<String>,
    /// The origin: unix:PATH or https://HOST:PORT [default: --server, else $PLATTER_SERVER]
    #[arg(long, value_name = "URL")]
    pub(crate) origin: Option<String>,
    /// The directory of its cache, which is made when missing
    #[arg(long = "cache", visible_alias = "cache-dir", value_name = "DIR")]
    pub(crate) cache_dir: PathBuf,
    /// Most bytes of the cache, such as 500M, 20G or 1T
    #[arg(long, value_name = "SIZE", default_value = "20G", value_parser = byte_size)]
    pub(crate) cache_size: u64,
    /// Serve the disks over NBD there: a path for a unix socket, or ADDRESS:PORT [default: nbd.sock in the cache's directory]
    #[arg(long, value_name = "SOCKET", value_parser = serve_address)]
    pub(crate) nbd: Option<ServeAddress>,
    /// Speak TLS, and only TLS, as `platter attach` does
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// With off, clients need no certificate: whoever reaches the address has the disks
    #[arg(long, value_name = "on|off", default_value = "on", requires = "tls_certificates", value_parser = on_or_off,
          action = clap::ArgAction::Set)]
    pub(crate) tls_verify_peer: bool,
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
    pub(crate) peers: Option<std::net::SocketAddr>,
    /// Send at most so much to other nodes, such as 100M or 1G bits per second
    #[arg(long, value_name = "RATE", default_value = "1G", requires = "peers", value_parser = bits_per_second)]
    pub(crate) share_rate: u64,
    /// Do not keep the origin's hoard, the boot sets of all images, in the cache's directory
    #[arg(long)]
    pub(crate) no_hoard: bool,
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
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Serve {
    /// Where: unix:PATH, or ADDRESS:PORT; may be repeated [default: serve.sock in the store's directory]
    #[arg(long, value_name = "WHERE")]
    pub(crate) listen: Vec<ListenAddress>,
    /// A certificate to show over TLS, and those between it and an authority's, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Access tokens: who may come in over TCP; changes count at once, also for an origin that runs
    #[command(subcommand)]
    Token(AccessToken),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessToken {
    /// Make a token; its secret is shown this once
    Add {
        /// What to call it
        name: String,
        /// read, write or admin
        #[arg(long)]
        role: Role,
        /// Images that it is for: '*', 'lab/*' or lab/debian12; may be repeated
        #[arg(long = "images", value_name = "PATTERN", required = true)]
        patterns: Vec<NamePattern>,
    },
    /// List all tokens
    List,
    /// Remove a token
    Remove {
        /// Its id, as `list` has it
        id: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Trace {
    /// The trace
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Detach {
    /// The disk, as `platter disks` calls it
    pub(crate) disk: String,
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

#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// NAME (its latest version), NAME@NUMBER, or a score
    pub(crate) first: String,
    /// What to compare it with, named in the same way
    pub(crate) second: String,
    /// Compare blocks only, by their names, and tell every range that differs: offset, length, what stood and stands there
    #[arg(long)]
    pub(crate) blocks: bool,
}
