//! Every argument of the command line with its help text: the single source of usage, completions and documentation.

mod analyze;
mod collect;
mod copies;
mod encryption;
mod files;
mod hoard;
mod image;
mod live;
mod lock;
mod quota;
mod room;
mod serve;
mod signing;
mod target;
mod version;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use analyze::Analyze;
pub(crate) use collect::{Gc, Images};
pub(crate) use copies::{Copies, Follow, OtherArguments, Promote, Push};
pub(crate) use encryption::{Encryption, Init, NewSecret, UnlockArguments};
pub(crate) use files::{Cat, Cp, Find, Ls, Mount};
pub(crate) use hoard::Hoard;
pub(crate) use image::{Capture, Check, Clone, Diff, Forget, Heal, Image, Log, Protect, Rename, Which};
pub(crate) use live::{
    Attach, Detach, Discard, DiskArguments, Disks, Far, NbdArguments, Node, OfNode, Publish, Then, Trace,
    TreeArguments,
};
pub(crate) use lock::{Lock, LockOf};
pub(crate) use quota::Quota;
pub(crate) use room::{Cast, Casts, Receive};
pub(crate) use serve::{AccessToken, Serve, ServeCasts, ServeCommand};
pub(crate) use signing::{Key, Sign, TrustedKeysArgument, Verify};
pub(crate) use target::{CacheArguments, Export, Free, Install, TargetOptions};
pub(crate) use version::{Resurrected, VersionArgument};

use crate::sizes::duration;

/// Heading of the options that every command takes.
const GLOBAL: &str = "Global options";

/// Stores disk images deduplicated and compressed, installs them on one machine or a room of machines, and serves them as live disks.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 damaged data, 5 refused, 6 difference found (diff, capture --audit), \
130 or 143 ended by Ctrl-C or SIGTERM.\n\n\
Start with:\n  platter init\n  platter capture disk.raw lab/debian12\n  platter install lab/debian12 /dev/sdX"
)]
pub(crate) struct Arguments {
    /// Directory of the store [default: $PLATTER_STORE, else /var/lib/platter for root, else ~/.local/share/platter]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Memory in MiB for filters of the block index of a local store
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "MIB", hide_short_help = true, default_value_t = 128)]
    pub(crate) index_memory: u32,
    /// Wait up to this long, such as 1h, for another process that writes the local store [default: 10s; while `platter serve` writes it, captures and changes of the catalog go through the server]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "TIME", hide_short_help = true, value_parser = duration, conflicts_with = "server")]
    pub(crate) retry_lock: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[command(flatten)]
    pub(crate) unlock: UnlockArguments,
    /// Print results as JSON: one object, or one object per line for lists
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Print only results and errors, no progress and no notes (with --json, notes are part of the result)
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The origin whose store a command uses instead of a local one.
#[derive(Args, Debug)]
pub(crate) struct ServerArguments {
    /// Use the store of an origin: unix:PATH or https://HOST:PORT [default: $PLATTER_SERVER]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "URL", conflicts_with = "store")]
    pub(crate) server: Option<String>,
    /// File with the access token for the origin [default: the token in $PLATTER_TOKEN]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE", hide_short_help = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust only the origin certificate with this SHA-256 fingerprint, whoever issued it [default: $PLATTER_FINGERPRINT]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "SHA256", hide_short_help = true, conflicts_with = "ca")]
    pub(crate) fingerprint: Option<String>,
    /// Trust origin certificates issued by the authorities in this PEM file [default: the system's authorities]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE", hide_short_help = true)]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a store
    ///
    /// With --encrypt, all data of disks is encrypted with a random key, and blocks are named by keyed hashes. The key is kept in
    /// keys.json in the store, wrapped by a passphrase that is asked for, or by the secret that --unlock-file or --unlock-command
    /// names; `platter encryption` adds others. Without keys.json and one of these secrets nothing can be read: keep copies of
    /// both. Names, dates, labels and sizes of versions are not encrypted.
    Init(Init),
    /// Manage the secrets that open an encrypted store
    ///
    /// Each key slot has the same key, wrapped by one secret: a passphrase, a key file, or what an external command prints. Adding,
    /// changing and removing slots rewrites no data. A removed secret still opens an older copy of keys.json.
    #[command(subcommand)]
    Encryption(Encryption),
    /// Capture a disk as the next version of an image
    ///
    /// Reads the partition table and the filesystems, and stores only blocks that are in use: free space, swap contents and
    /// the body of a clean journal are left out. Blocks are cut along files; blocks that the store already has are not stored
    /// again. Platter understands ext2, ext3, ext4, XFS, btrfs, FAT, exFAT, NTFS, UFS and swap, also on logical volumes of LVM and in
    /// members of RAID 1. Everything else is stored in full, minus zero sectors.
    Capture(Capture),
    /// List the images with their newest versions
    Images(Images),
    /// Show the record of a version
    Show(Which),
    /// List the versions of an image
    History(Image),
    /// List the changes of the store, or of one image: who did what, when and from where
    ///
    /// Lists publications, clones, names that changed or were forgotten, edit locks, boot sets, and states of packs, oldest
    /// first. WHO is a user and host, or the name of an access token; FROM is `local` or the address of a client. An origin
    /// shows this log to access tokens with the role `admin` only.
    Log(Log),
    /// Compare two versions
    ///
    /// Lists files: A exists only in the second version, D only in the first, M in both with different
    /// contents, ! could not be read. Files are compared by block ids first, and by their bytes where the ids differ; a file
    /// that only moved on the disk is equal. `NAME:PARTITION/PATH` names a partition, directory or file in both versions. Filesystems that Platter does not understand, or that need recovery, and logical volumes are compared
    /// block by block.
    ///
    /// Of each file, diff compares type, contents, mode, owner, time of the last change, links, device, extended attributes, flags
    /// (`lsattr`, `xfs_io`; read-only, hidden, system and archive in FAT, exFAT and NTFS) and project. Of whole partitions also label, UUID, default subvolume, and the
    /// boot code at the start of the filesystem. Everything else is not compared, so it is no difference: owners and permissions on NTFS, other times (of access,
    /// of creation), boot code elsewhere, and what filesystems note for themselves at every mount, but also settings in
    /// them, such as the default mount options or the journal of ext4. --blocks compares everything.
    ///
    /// Exit code: 0 no difference, 6 different, 4 something could not be read.
    Diff(Diff),
    /// Show what images share, and how well they deduplicate and compress
    ///
    /// Analyzes the named versions, or the newest version of each image, by the blocks that the store has for them. Reads only
    /// recipes, no data of disks, unless one of the options needs it. For each image: the disk, the space IN USE, its DISTINCT data
    /// (used sectors; a quota counts whole blocks, and pages), how much of that is SHARED with other images of the analysis, what it takes compressed (STORED), and what of that no other
    /// one needs (UNIQUE). Then the ratios for all images together, and a matrix: how much of the row's distinct data the
    /// column's image has, in percent.
    ///
    /// Predictions simulate adding the images, in this order, to an empty store. DISTINCT is without the zero sectors at the end of
    /// each block. STORED is what blocks take with their ids and headers; --json also has what each image adds, and the recipes of
    /// --cut files.
    ///
    /// With --files, FILES are all regular files that are not empty; one with several names counts once. CONTENTS and the other
    /// sizes leave out holes and pages of 4 KiB that are all zeros.
    ///
    /// With --json, one object with all figures in bytes. Exit code 4 if something is damaged; it is then not counted.
    Analyze(Analyze),
    /// List the partitions and logical volumes of an image, or the files in a directory of it
    ///
    /// `platter ls lab/debian12` lists partitions, `platter ls lab/debian12:1/etc` the directory /etc on partition 1. A logical volume of
    /// LVM has its name in /dev/mapper instead of a number: `lab/debian12:group-root/etc`, with hyphens inside of names doubled. A disk
    /// without a partition table has `disk`. The partition or volume may be left out (`lab/debian12:/etc`) if only one has a filesystem
    /// that can be read: ext2, ext3, ext4, XFS, btrfs, NTFS, FAT or exFAT. Nothing is mounted. Symbolic links are followed inside the
    /// filesystem. A damaged partition or volume is listed as such, with exit code 4.
    ///
    /// Names are printed as they are; on a terminal, with the escapes of `ls -b`. With --json, a name that is not UTF-8 has its bytes
    /// in hexadecimal in `name_bytes`, and the target of a link in `target_bytes`.
    Ls(Ls),
    /// List everything below a directory of an image, one path in each line; names as `platter ls` prints them
    Find(Find),
    /// Print a file of an image
    Cat(Cat),
    /// Copy files out of an image, with modes, times and links
    ///
    /// Root also copies owners, devices and all attributes. Nothing is overwritten. Exit code 4 if a file could not be copied; for
    /// root, also if an owner, mode, time or attribute could not be set, as on a target whose file system has none.
    Cp(Cp),
    /// Mount all images, or one, as read-only trees of files, until Ctrl-C or `umount`
    ///
    /// `platter mount DIR` shows the files of all images: DIR/lab/debian12/3/1/etc is /etc on partition 1 of version 3, and
    /// DIR/lab/debian12/latest leads to the newest version. A disk without a partition table has its files in `disk` instead of a
    /// number, and a logical volume in its name, such as `group-root`. `platter mount lab/debian12@3 DIR` shows one version, and `platter mount lab/debian12:1/etc DIR` one filesystem or
    /// directory.
    ///
    /// Files have their modes, owners, times, links and attributes. Needs FUSE, and no other rights. Only the user who mounts can use
    /// the mount, and can read every file. With --allow-other, all users can do what the modes and owners in the image allow.
    /// Devices and setuid bits have no effect. A damaged file is an error for its readers, and a message here.
    Mount(Mount),
    /// Create a new image from a version; copies no data
    Clone(Clone),
    /// Rename an image, and all images below that name
    ///
    /// `platter rename lab attic` renames lab/debian12 to attic/debian12. Scores, version numbers and times stay the same. Refused
    /// if the new name is in use or belonged to another image before, or if somebody holds an edit lock on a renamed image.
    Rename(Rename),
    /// Remove a version, or all versions of an image, from the catalog
    ///
    /// NAME without a number means all versions of the image. That asks for confirmation on a terminal, and needs --all
    /// elsewhere. The version number is never used again. Running readers of the version are not disturbed. The blocks stay in
    /// the store until `platter gc` deletes them; until then, `platter rebuild --resurrect` brings the version back. Refused
    /// while somebody holds the edit lock of the image.
    ///
    /// With --keep-… options, forgets the versions that none of these rules keeps. The newest version always stays, and so
    /// do protected ones.
    Forget(Forget),
    /// Create signing keys, and choose which keys this machine trusts
    #[command(subcommand)]
    Key(Key),
    /// Sign versions: state with a secret key that a disk is this version of this image
    ///
    /// The signature becomes part of the version's record. Machines that trust the key install, receive and attach only versions
    /// that it signed, and no older version than one they used before. A version that is cloned or renamed must be signed again.
    Sign(Sign),
    /// Verify that versions are signed by a trusted key (exit code 5 if not)
    ///
    /// With --json, prints the signed text and the signature, which `minisign -V` can verify, too.
    Verify(Verify),
    /// Protect a version, or all present versions of an image, from being forgotten
    Protect(Protect),
    /// End the protection of a version, or of all versions of an image
    Unprotect(Protect),
    /// Limit what the images below a name may hold
    ///
    /// A quota counts each distinct block of the versions once, up to the last byte that one of them uses, and each distinct page of their
    /// recipes, uncompressed (`analyze` counts the used sectors as DISTINCT, without pages). So a clone costs nothing, a change its
    /// changed blocks, and it does not matter what other images have. A capture, publication, clone, import or rename that would exceed the quota is
    /// refused. Forgotten versions do not count.
    #[command(subcommand)]
    Quota(Quota),
    /// Manage edit locks: who may publish the next version of an image
    ///
    /// While somebody holds the edit lock of an image, nobody else can publish its next version. Each lock has a number that is
    /// never used again. After a lock was taken over, changes made under the old number can no longer become the next version.
    #[command(subcommand)]
    Lock(Lock),
    /// Install a version on a device or file
    ///
    /// Verifies the hash of every block before writing it. Shows what the target holds, and asks for a typed `yes` before
    /// overwriting it; scripts pass --yes. A new or empty file needs no confirmation. The first and the last MiB of the target,
    /// as far as the image reaches, and an old backup GPT are cleared first and written last, so an interrupted install never leaves a
    /// disk that half boots. On a target larger
    /// than the image, the backup GPT is moved to the end. Refused: a target that is mounted, in use, read-only or too small,
    /// one that holds the store, an existing file that holds no disk, and a new file in /dev.
    Install(Install),
    /// Export a version to a new file: raw, or in the format of another program
    ///
    /// Every block is verified before it is written. An incomplete file is removed. In raw files, free space becomes holes.
    Export(Export),
    /// Give up what no version needs, and delete it
    ///
    /// Packs that nothing needs are given up; packs of which little is needed are rewritten first. What versions, live disks,
    /// boot sets, captures and registered readers need stays. Files that were given up are deleted after --keep-trash; until
    /// then, running readers of forgotten versions can go on. If anything that is needed cannot be read, nothing is given up.
    /// Exit code 1 if a file could not be deleted; the next run tries again. Needs the store's lock, and no
    /// free space: a file `reserve` in the store sets it aside.
    Gc(Gc),
    /// Check the store for damage
    Check(Check),
    /// Repair lost blocks from other stores, node caches, or disks that still hold them
    ///
    /// Repairs what is in quarantine or missing: `platter check --read-data` and `serve --scrub` find damage. Every block is
    /// verified against its hash before it is stored, and reported once it is durable. A store or origin is asked for the
    /// versions that need the block; a disk is read where these versions have it. Exit code 4 if something stays lost. After a
    /// pack file was lost, `platter rebuild` removes it from the catalog.
    Heal(Heal),
    /// Copy versions to another store: only what it lacks travels
    ///
    /// Versions keep their numbers, authors, times, labels and signatures. Blocks are sent in the frames in which they are stored, and
    /// verified. After an interruption the same command sends only the rest. Exit code 5 if the other store has another disk
    /// under such a name, 4 if a block is damaged here.
    Push(Push),
    /// Copy versions from another store: only what this store lacks travels
    ///
    /// As `platter push`, in the other direction.
    Pull(Push),
    /// Keep this store up to date with an origin, as a read-only second store
    ///
    /// Copies everything at first, then each change within seconds, until the process is ended. The store refuses every other change;
    /// it can be served, and `gc`, `check` and `heal` work. It must be new. What is damaged at the origin is left out, named, and
    /// tried again. An origin that was restored from a backup is noticed, and nothing is changed here.
    Follow(Follow),
    /// Make a follower the origin, and tell the former origin to accept no more changes
    ///
    /// The former origin is told first, then its last changes are copied. If it is lost, --without-origin promotes all the same, and
    /// names what is known to have not arrived; `platter serve` tells the former origin when it returns. Each promotion has a
    /// higher epoch, and a store that knows a higher epoch never accepts changes again.
    Promote(Promote),
    /// Show whether this store is an origin, a follower or replaced, and who follows it
    Copies(Copies),
    /// Rebuild the index and the catalog from the packs, or bring back forgotten versions
    ///
    /// For a store whose catalog or change log is lost or damaged. Names, numbers, edit locks and boot sets are restored from
    /// the change log, or from the catalog if the log is damaged; in a healthy store nothing changes. If both are lost, every
    /// version whose record is in a pack reappears, including forgotten versions, and edit locks are dropped.
    Rebuild(Rebuild),
    /// Delete the leftovers of interrupted captures and uploads from the store
    ///
    /// A capture that was killed, and an upload that was not published or was refused, leave the blocks that were stored. The next
    /// capture of the same disk reuses them; no version needs them. This command deletes them, but none while a version in them
    /// lacks only its commit, which the next capture does. It needs no free space, so it works
    /// on a full filesystem. End the server of the store first.
    DiscardInterrupted,
    /// Send a version by multicast to all machines that run `platter receive`
    ///
    /// With --server, the version is first copied from the origin to a temporary store on this machine, compressed as it is stored there.
    /// If the origin asks for an access token, the cast needs --key-file.
    Cast(Cast),
    /// Receive a cast and write it to a device or file
    ///
    /// The target is checked, shown and written as by `platter install`. Confirmation is asked before the cast is joined.
    ///
    /// With --server URL NAME TARGET, asks that origin to cast the version, and accepts only the disk that the origin names. The origin
    /// casts while somebody receives; it must run with `platter serve --cast`. ($PLATTER_SERVER has no effect here.)
    Receive(Receive),
    /// List the casts that an origin makes or was told of, with their receivers
    Casts(Casts),
    /// Serve versions as live disks over NBD, FUSE or 9P, until they are detached or Ctrl-C
    ///
    /// Without --write, disks and file trees are read-only, and any number of clients may use them. With --write, the command
    /// takes the edit lock of the image. Writes go to an overlay in the store, survive the death of this process, and become
    /// the next version when the disk is published. With --server the overlay is stored on this machine. While the origin is
    /// unreachable, local writes and cached blocks stay available, but publishing has to wait.
    Attach(Attach),
    /// List attached disks and unpublished changes
    Disks(Disks),
    /// Run a node: serve versions of an origin on this machine through a cache, until SIGTERM or Ctrl-C
    ///
    /// Serves the disks over NBD, by default at nbd.sock in the cache directory. Blocks that were read stay in the cache; when it
    /// reaches its size limit, blocks that were not used recently are evicted. While the origin is unreachable, cached blocks stay available.
    /// `platter attach IMAGE --node DIR` adds a disk to a running node; with --fill the node fetches the whole disk. `platter disks
    /// --node DIR` lists its disks. After a restart the node serves the same disks at the same versions.
    Node(Node),
    /// Stop serving a disk
    ///
    /// With --then publish, the version is what a capture of the disk would be, without what was written to free space; `platter
    /// publish` keeps that, because the disk stays in use.
    Detach(Detach),
    /// Publish the changes of a live disk as the next version of its image, or as a new image
    ///
    /// An attached disk stays attached, on top of the new version. The version then also keeps what was written to free space,
    /// because the disk must read as before: a guest may swap there. Of a disk that nobody uses any more, and with `platter detach
    /// --then publish`, free space is dropped as in a capture. Publishing to a new image name detaches the disk and releases
    /// its edit lock. That also works for changes whose lock somebody took over; `platter disks` lists them.
    Publish(Publish),
    /// Serve the store to other machines over HTTP, until SIGTERM or Ctrl-C
    ///
    /// A client that can open the unix socket has full access. TCP always uses TLS: with the certificate given by --certificate,
    /// or with one created at the first start. TCP clients need an access token from `platter serve token add`.
    Serve(Serve),
    /// Summarize a trace recorded by `platter attach --record`
    Trace(Trace),
    /// Record boot sets, and keep them on every node
    ///
    /// A boot set is the blocks that a boot of a version reads, in order of first use. The hoard is the boot sets of all
    /// versions, with numbered revisions. A node keeps the whole hoard and boots from it without the origin.
    #[command(subcommand)]
    Hoard(Hoard),
    /// Discard the unpublished changes of a live disk, and release its edit lock
    Discard(Discard),
    /// Print a completion script for a shell
    Completions(Completions),
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Shell to complete for
    pub(crate) shell: Shell,
}

/// Arguments of `rebuild`.
#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    /// Without a value: list forgotten versions that are still in the store. With NAME@N: bring that version back under its
    /// name and number
    ///
    /// Can be repeated; `all` brings back every listed version. The catalog is not rebuilt.
    #[arg(long, value_name = "NAME@N", num_args = 0..=1, default_missing_value = "")]
    pub(crate) resurrect: Vec<Resurrected>,
}
