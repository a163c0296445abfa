//! Grows the file system of a partition that was grown, with the file system's own tool.
//!
//! Runs only when the target is complete and no longer open. The tool sees exactly the partition, through a loop
//! device. If that is not possible, the partition stays as it is, and the report says which command to run. A failure
//! here is no failure of the install: the disk is complete, and its file system merely has the old size.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use platter_disk::partition::Grown;
use platter_filesystem::{Found, probe};
use platter_image::{DiskRead, Extent};

use crate::report::GrownReport;

/// Where the tools are, in addition to `PATH`: users have these directories rarely in theirs.
const SYSTEM_PATHS: &str = "/usr/local/sbin:/usr/sbin:/sbin";
/// Most bytes of a tool's message that are shown.
const MESSAGE_MAX: usize = 400;
/// `e2fsck` ends with these codes if the file system is right now: nothing to mend, or mended.
const CHECKED_MAX: i32 = 3;

/// What is known about a grown partition while the target is still open.
#[derive(Clone, Debug)]
pub(crate) struct GrownPlace {
    grown: Grown,
    sector_size: u32,
    filesystem: String,
}

impl GrownPlace {
    /// Looks at the contents of a grown partition of a written disk. Contents that cannot be read count as unknown.
    pub(crate) fn of(disk: &dyn DiskRead, grown: Grown) -> Self {
        let filesystem = match probe(disk, grown.before) {
            Ok(Found::Filesystem(name)) => name.to_owned(),
            Ok(Found::Swap(_)) => "swap".to_owned(),
            Ok(Found::Ambiguous(_) | Found::Nothing) | Err(_) => "unknown".to_owned(),
        };
        Self { grown, sector_size: disk.sector_size(), filesystem }
    }

    /// Grows the file system on the target, which must be closed.
    pub(crate) fn grow_filesystem(&self, target: &Path) -> GrownReport {
        let Grown { number, before, after } = self.grown;
        let grown = match self.filesystem.as_str() {
            "ext" => grow_ext(target, after, self.sector_size),
            _ => Err("its tool needs it mounted, or there is none".to_owned()),
        };
        GrownReport {
            partition: number,
            bytes_before: before.length,
            bytes: after.length,
            filesystem: self.filesystem.clone(),
            filesystem_grown: grown.is_ok(),
            reason: grown.err(),
            command: self.command(target),
        }
    }

    /// The command that grows the file system later.
    fn command(&self, target: &Path) -> String {
        let device = match self.grown.number {
            Some(number) => partition_path(target, number).display().to_string(),
            None => target.display().to_string(),
        };
        match self.filesystem.as_str() {
            "ext" => format!("e2fsck -f {device} && resize2fs {device}"),
            "xfs" => "xfs_growfs MOUNTPOINT".to_owned(),
            "btrfs" => "btrfs filesystem resize max MOUNTPOINT".to_owned(),
            "ntfs" => format!("ntfsresize {device}"),
            "swap" => format!("mkswap {device}"),
            _ => format!("the tool for the contents of {device}, such as pvresize for LVM"),
        }
    }
}

/// The device of a partition, as the system names it.
fn partition_path(target: &Path, number: u32) -> PathBuf {
    let name = target.display().to_string();
    let separator = if name.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    PathBuf::from(format!("{name}{separator}{number}"))
}

fn grow_ext(target: &Path, place: Extent, sector_size: u32) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can make the loop device that its tool needs".to_owned());
    }
    let device = Loop::attach(target, place, sector_size)?;
    let checked = run("e2fsck", &["-f", "-p", &device.0])?;
    match checked.status.code() {
        Some(0..=CHECKED_MAX) => {}
        _ => return Err(said("e2fsck", &checked)),
    }
    let resized = run("resize2fs", &[&device.0])?;
    if !resized.status.success() {
        return Err(said("resize2fs", &resized));
    }
    device.detach()?;
    // The loop device has written to the page cache of the target.
    let file = std::fs::OpenOptions::new().write(true).open(target);
    file.and_then(|file| file.sync_all()).map_err(|error| format!("syncing {}: {error}", target.display()))
}

/// A loop device for a range of the target; detached when dropped.
struct Loop(String);

impl Loop {
    fn attach(target: &Path, place: Extent, sector_size: u32) -> Result<Self, String> {
        let (offset, length) = (place.offset.to_string(), place.length.to_string());
        let sector_size = sector_size.to_string();
        let path = target.display().to_string();
        let arguments = [
            "--find",
            "--show",
            "--offset",
            &offset,
            "--sizelimit",
            &length,
            "--sector-size",
            &sector_size,
            "--",
            &path,
        ];
        let made = run("losetup", &arguments)?;
        if !made.status.success() {
            return Err(said("losetup", &made));
        }
        Ok(Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }

    fn detach(self) -> Result<(), String> {
        let detached = run("losetup", &["--detach", &self.0])?;
        // Dropping it would detach the device of somebody else.
        std::mem::forget(self);
        detached.status.success().then_some(()).ok_or_else(|| said("losetup", &detached))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The tool has failed, and its message is reported.
        let _ = run("losetup", &["--detach", &self.0]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<Output, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", format!("{path}:{SYSTEM_PATHS}")).env("LC_ALL", "C");
    command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("running {program}: {error}"),
    })
}

fn said(program: &str, output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&all);
    let message: String = text.trim().replace('\n', "; ").chars().take(MESSAGE_MAX).collect();
    format!("{program} failed ({}): {message}", output.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_as_the_system_does() {
        for (disk, partition) in
            [("/dev/sda", "/dev/sda2"), ("/dev/nvme0n1", "/dev/nvme0n1p2"), ("/dev/loop3", "/dev/loop3p2")]
        {
            assert_eq!(partition_path(Path::new(disk), 2), Path::new(partition));
        }
    }

    #[test]
    fn each_filesystem_has_a_command() {
        let grown = Grown { number: Some(3), before: Extent::new(0, 512), after: Extent::new(0, 1024) };
        for (filesystem, command) in [
            ("ext", "resize2fs /dev/sda3"),
            ("xfs", "xfs_growfs"),
            ("swap", "mkswap /dev/sda3"),
            ("unknown", "pvresize"),
        ] {
            let place = GrownPlace { grown, sector_size: 512, filesystem: filesystem.to_owned() };
            let said = place.command(Path::new("/dev/sda"));
            assert!(said.contains(command), "{filesystem}: {said}");
        }
    }
}
