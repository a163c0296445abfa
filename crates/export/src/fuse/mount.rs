//! Mounts and unmounts the tree: directly if permitted, otherwise through `fusermount3`.
//!
//! The FUSE library can mount, but it unmounts by path, whatever is mounted there by then. This code identifies a mount
//! by its device and unmounts nothing else. The kernel reuses a device number as soon as the mount is gone, so the
//! number is valid only while the connection lives.

use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use platter_image::{Error, IoContext, Result};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{getgid, getuid};

use super::event::FuseEvent;
use super::mount_table::device_at;
use super::server::FuseOptions;

const DEVICE: &str = "/dev/fuse";
const NO_DEVICE: &str =
    "there is no /dev/fuse: load the kernel's module (modprobe fuse), or give the container the device";
/// The setuid helper for unprivileged users.
const HELPER: &str = "fusermount3";
/// Source and type shown in the mount table.
const NAME: &str = "platter";
/// Maximum number of stacked stale mounts that are removed.
const STALE_MAX: usize = 16;
/// Kernel read-ahead in KiB: one request.
const READAHEAD_KIB: usize = super::contents::REQUEST_BYTES_MAX >> 10;

/// A mounted tree.
pub(super) struct Mount {
    pub(super) mount_point: PathBuf,
    /// Its device, `major:minor`.
    pub(super) device: String,
}

/// Result of an attempt to unmount.
pub(super) enum Unmounted {
    /// Unmounted.
    Done,
    /// Still in use.
    Busy,
}

impl Mount {
    /// Mounts, and returns the descriptor of the kernel connection. Stale mounts of dead servers are unmounted first.
    ///
    /// # Errors
    /// `Missing` when the mount point does not exist, `Refused` when it is not an empty directory, `Io`.
    pub(super) fn new(mount_point: &Path, options: &FuseOptions, rules: Rules) -> Result<(Self, OwnedFd)> {
        let mount_point = prepare(mount_point, options)?;
        let wishes = Wishes { allow_other: options.allow_other, rules };
        let descriptor = match mount_directly(&mount_point, wishes) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                mount_by_helper(&mount_point, wishes)?
            }
            mounted => mounted.context(|| format!("{}: mounting", mount_point.display()))?,
        };
        match device_at(&mount_point) {
            Ok(Some(device)) => Ok((Self { mount_point, device }, descriptor)),
            Ok(None) => Err(Error::bug(format!("{}: mounted, and not there", mount_point.display()))),
            Err(error) => Err(error),
        }
    }

    /// Its root, to ask the kernel about.
    ///
    /// # Errors
    /// `Missing` when it is not seen at its place; `Io`.
    pub(super) fn root(&self) -> Result<OwnedFd> {
        let place = self.mount_point.display();
        if !self.is_there()? {
            return Err(Error::missing(format!("{place}: something else is mounted there")));
        }
        let root = open(&self.mount_point, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        root.map_err(io::Error::from).context(|| format!("{place}: opening it"))
    }

    /// Sets the kernel's read-ahead to one request. Needs root; others read in smaller pieces.
    pub(super) fn raise_readahead(&self) {
        let limit = format!("/sys/class/bdi/{}/read_ahead_kb", self.device);
        let _ = fs::write(limit, READAHEAD_KIB.to_string());
    }

    /// Unmounts, unless already unmounted or in use. The connection must be alive.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn unmount(&self) -> Result<Unmounted> {
        if !self.is_there()? {
            return Ok(Unmounted::Done);
        }
        match unmount(&self.mount_point, UnmountFlags::empty()) {
            Ok(()) => Ok(Unmounted::Done),
            Err(Errno::BUSY) => Ok(Unmounted::Busy),
            Err(Errno::PERM) if run_helper(["-u", "-q"], &self.mount_point).is_ok() => Ok(Unmounted::Done),
            Err(Errno::PERM) => Ok(Unmounted::Busy),
            Err(error) => Err(Error::io(format!("{}: unmounting", self.mount_point.display()), error.into())),
        }
    }

    /// Unmounts despite users, and aborts the connection if permitted. The connection must be alive.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn detach(&self) -> Result<()> {
        if !self.is_there()? {
            return Ok(());
        }
        detach(&self.mount_point, UnmountFlags::DETACH | UnmountFlags::FORCE)
    }

    /// Unmounts what an aborted connection left behind. If it was already unmounted, a newer mount at the path is not
    /// dead and is left alone.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn clear_if_dead(&self) -> Result<()> {
        match look(&self.mount_point) {
            Err(error) if is_dead(&error) => detach(&self.mount_point, UnmountFlags::DETACH),
            _ => Ok(()),
        }
    }

    fn is_there(&self) -> Result<bool> {
        Ok(device_at(&self.mount_point)?.is_some_and(|device| device == self.device))
    }
}

/// The full path of the mount point, after stale mounts were removed and it is an empty directory.
fn prepare(mount_point: &Path, options: &FuseOptions) -> Result<PathBuf> {
    let shown = mount_point.display();
    for _ in 0..STALE_MAX {
        match look(mount_point) {
            Ok((path, true)) => return Ok(path),
            Ok((_, false)) => {
                return Err(Error::refused(format!(
                    "{shown}: the mount point is not empty: name an empty directory, whose files nothing would hide"
                )));
            }
            Err(error) if is_dead(&error) => {
                detach(mount_point, UnmountFlags::DETACH)?;
                (options.on_event)(&FuseEvent::StaleUnmounted { mount_point });
            }
            Err(error) => {
                return Err(match error.kind() {
                    io::ErrorKind::NotFound => Error::missing(format!(
                        "{shown}: the mount point does not exist: create it with mkdir"
                    )),
                    io::ErrorKind::NotADirectory => {
                        Error::refused(format!("{shown}: the mount point is not a directory"))
                    }
                    _ => Error::io(format!("{shown}: looking at the mount point"), error),
                });
            }
        }
    }
    Err(Error::refused(format!("{shown}: more than {STALE_MAX} stacked stale mounts")))
}

/// Whether a dead mount is there.
fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOTCONN)
}

/// The full path, and whether the directory is empty.
fn look(mount_point: &Path) -> io::Result<(PathBuf, bool)> {
    let path = mount_point.canonicalize()?;
    let first = fs::read_dir(&path)?.next().transpose()?;
    Ok((path, first.is_none()))
}

/// What the kernel does by itself.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// It refuses every change.
    pub(super) is_read_only: bool,
    /// It lets users do what modes and owners allow. Otherwise, whoever can use the mount can read everything.
    pub(super) checks_modes: bool,
}

/// Options of a mount.
#[derive(Clone, Copy)]
struct Wishes {
    allow_other: bool,
    rules: Rules,
}

fn mount_directly(mount_point: &Path, wishes: Wishes) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                io::Error::new(io::ErrorKind::NotFound, NO_DEVICE)
            }
            _ => error,
        }
    })?;
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={user},group_id={group}", File::as_raw_fd(&device));
    if wishes.rules.checks_modes {
        data.push_str(",default_permissions");
    }
    if wishes.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, wishes.rules.is_read_only);
    let data = CString::new(data)?;
    mount(NAME, mount_point, format!("fuse.{NAME}"), flags, data.as_c_str())?;
    Ok(device.into())
}

/// Mounts through the helper, which returns the descriptor through a socket.
fn mount_by_helper(mount_point: &Path, wishes: Wishes) -> Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair().context(|| "making a socket".into())?;
    let mut options = format!("fsname={NAME},subtype={NAME},nosuid,nodev,noatime");
    if wishes.rules.checks_modes {
        options.push_str(",default_permissions");
    }
    if wishes.allow_other {
        options.push_str(",allow_other");
    }
    if wishes.rules.is_read_only {
        options.push_str(",ro");
    }
    let mut command = Command::new(HELPER);
    command.args(["-o", &options, "--"]).arg(mount_point);
    // The socket is the helper's standard input, which is inherited.
    command
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = command.output().map_err(no_helper)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let shown = mount_point.display();
        let hint = match wishes.allow_other && said.contains("allow_other") {
            true => "; without --allow-other only you can use the mount",
            false => "",
        };
        return Err(Error::refused(format!("{shown}: {HELPER} refused to mount: {}{hint}", said.trim())));
    }
    // Otherwise this process keeps the helper's end open, and would wait for a helper that sent nothing.
    drop(command);
    receive_descriptor(&ours)
}

/// Without the helper, only root can mount.
fn no_helper(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::refused(format!(
            "only root can mount without {HELPER}, which is not installed: install the package fuse3"
        )),
        _ => Error::io(format!("running {HELPER}"), error),
    }
}

fn receive_descriptor(socket: &UnixStream) -> Result<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
    received.map_err(io::Error::from).context(|| format!("receiving from {HELPER}"))?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.ok_or_else(|| Error::bug(format!("{HELPER} mounted and gave no descriptor")))
}

fn detach(mount_point: &Path, flags: UnmountFlags) -> Result<()> {
    match unmount(mount_point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => run_helper(["-u", "-q", "-z"], mount_point),
        Err(error) => Err(Error::io(format!("{}: unmounting", mount_point.display()), error.into())),
    }
}

fn run_helper<const N: usize>(arguments: [&str; N], mount_point: &Path) -> Result<()> {
    let mut command = Command::new(HELPER);
    command.args(arguments).args([OsStr::new("--"), mount_point.as_os_str()]).stdin(Stdio::null());
    let output = command.output().context(|| format!("running {HELPER}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Error::refused(format!("{}: {HELPER} refused to unmount: {said}", mount_point.display())))
        }
    }
}
