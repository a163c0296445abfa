//! Every argument of the command line, with its help: the one source of usage, completions and documentation.

mod hoard;
mod image;
mod live;
mod room;
mod serve;
mod target;
mod token;
mod version;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use hoard::Hoard;
pub(crate) use image::{Capture, Check, Clone, Diff, Forget, Image, Rename, Which};
pub(crate) use live::{
    Attach, Detach, Discard, Disks, Far, NbdArguments, Node, Publish, Then, Trace, TreeArguments,
};
pub(crate) use room::{Cast, Receive};
pub(crate) use serve::{AccessToken, Serve, ServeCommand};
pub(crate) use target::{CacheArguments, Export, Free, Install, TargetOptions};
pub(crate) use token::{Token, TokenOf};
pub(crate) use version::Resurrected;

/// Keeps disk images, deduplicated and compressed, and installs them on one machine or on a whole room at once.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 damaged data, 5 refused, 6 they differ (diff, capture --audit).\n\n\
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
    /// Print results and errors only: neither progress nor notes (with --json, notes are part of a result)
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
    /// is taken or was another image's before, and an image that somebody edits.
    Rename(Rename),
    /// Forget a version, or all versions of an image
    ///
    /// A name without a number means all versions of the image: then this asks on a terminal, and needs --all elsewhere.
    /// The number is never used again. Whoever reads the version goes on, and its blocks stay in the store until they are
    /// collected: until then `rebuild --resurrect` brings it back. Refused while somebody edits the image.
    Forget(Forget),
    /// See and change who may publish the next version of an image
    ///
    /// Whoever holds an image's edit token publishes its next version, and nobody else. A token has a number that is never
    /// used again: once it was taken over, what its holder still has cannot be published any more.
    #[command(subcommand)]
    Token(Token),
    /// Install a version on a device or file
    ///
    /// Every block is verified by its hash before it is written. What the target holds is shown, and overwritten after a
    /// typed yes, or with --yes where nobody can be asked; a new or empty file needs neither. The first and the last MiB
    /// are emptied first and written last: whatever ends the install early, nothing boots from half of a disk. If the
    /// target is larger than the disk, the backup GPT is moved to its end. Refused: a target that is mounted, in use, too
    /// small, read-only, holds the store, is a file in which there is no disk, or would be a new file among the devices in /dev.
    Install(Install),
    /// Write a version to a new raw file
    Export(Export),
    /// Check that the store is good; changes nothing unless told to
    Check(Check),
    /// Make the catalog anew, or bring back what was forgotten
    ///
    /// For a store whose catalog or log of changes is lost or damaged. Names, numbers, edit tokens and boot sets come from
    /// the log of changes, or from the catalog if the log is damaged: of a healthy store nothing changes. Where both are
    /// lost, every version whose record stands in a pack reappears, forgotten ones among them, and edit tokens are dropped.
    Rebuild(Rebuild),
    /// Remove what interrupted captures left in the store
    ///
    /// A capture that was killed, or whose machine lost power, leaves what it had stored. The next capture of the same disk
    /// finds that and goes on; until then no version needs it. This removes it instead, and needs no free space: a way
    /// out when the store's file system is full.
    DiscardInterrupted,
    /// Cast a version to a room: to every machine that runs `platter receive`, at once, by multicast
    Cast(Cast),
    /// Receive a cast on a device or file
    ///
    /// Targets are checked, shown and written as by `install`; what a target holds is asked about before the cast is
    /// joined.
    Receive(Receive),
    /// Serve versions as disks that virtual machines boot and write, until they are detached or Ctrl-C
    ///
    /// Without --write a disk is read only, and any number of machines may use it; nothing in the tree of --fuse and --9p
    /// can be changed either. With --write this takes the edit
    /// token of the image: what is written goes to an overlay in the store, survives the death of this process, and
    /// becomes a version when it is published. With --server the overlay lies on this machine; while the origin is away, what was
    /// written or is in memory goes on, and nothing is published.
    Attach(Attach),
    /// List the disks that are attached, and those that were written and wait
    Disks(Disks),
    /// Serve versions of an origin on this machine, through a cache, until SIGTERM or Ctrl-C
    ///
    /// The disks are served over NBD, without --nbd at nbd.sock in the cache's directory. What was read stays in the cache, under a limit; what was not used for long goes. When the origin is away, everything
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
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// Arguments of `rebuild`.
#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    /// List what was forgotten and is still in the store; with NAME@N, bring that version back under its name and number
    ///
    /// May be given more than once; `all` brings back all that is listed. Nothing is made anew then.
    #[arg(long, value_name = "NAME@N", num_args = 0..=1, default_missing_value = "")]
    pub(crate) resurrect: Vec<Resurrected>,
}
