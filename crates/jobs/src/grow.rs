//! Grows the file system of a partition that was grown, with the file system's own tool.
//!
//! Runs only when the target is complete and no longer open. The tool sees exactly the partition, through a loop
//! device. If that is not possible, the partition stays as it is, and the report says which command to run. A failure
//! here is no failure of the install: the disk is complete, and its file system merely has the old size.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use platter_disk::device::{LoopDevice, end_with_us};
use platter_disk::partition::{Grown, first_used};
use platter_filesystem::{Found, filesystem_length, probe};
use platter_image::{DiskRead, Extent, Extents};

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
    /// Why its file system must not grow, if there is data behind it.
    overgrown: Option<String>,
    /// UUID and label of a swap area, which is made again.
    swap_names: (Option<String>, Option<String>),
}

impl GrownPlace {
    /// Looks at the contents of a grown partition of a written disk. Contents that cannot be read count as unknown.
    /// `data`: what the disk fills.
    pub(crate) fn of(disk: &dyn DiskRead, grown: Grown, data: &Extents) -> Self {
        let mut swap_names = (None, None);
        let filesystem = match probe(disk, grown.before) {
            Ok(Found::Filesystem(name)) => name.to_owned(),
            Ok(Found::Swap(header)) => {
                let owned = |name: Option<&str>| name.map(str::to_owned);
                swap_names = (owned(header.uuid()), owned(header.label()));
                "swap".to_owned()
            }
            Ok(Found::Ambiguous(_) | Found::Nothing) | Err(_) => "unknown".to_owned(),
        };
        let overgrown = overgrown(disk, &grown, &filesystem, data);
        Self { grown, sector_size: disk.sector_size(), filesystem, swap_names, overgrown }
    }

    /// Grows the file system on the target, which must be closed.
    pub(crate) fn grow_filesystem(&self, target: &Path) -> GrownReport {
        let Grown { number, before, after } = self.grown;
        let grown = match (self.filesystem.as_str(), &self.overgrown) {
            (_, Some(reason)) => Err(reason.clone()),
            ("ext", _) => grow_ext(target, after, self.sector_size),
            ("xfs" | "btrfs", _) => Err("its tool needs it mounted".to_owned()),
            ("ntfs", _) => Err("it is grown by ntfsresize, which then wants Windows to check it".to_owned()),
            ("swap", _) => Err("a swap area is made again".to_owned()),
            ("vfat" | "exfat", _) => {
                Err("no usual tool grows it: use the rest of the partition after formatting it again"
                    .to_owned())
            }
            ("LVM2_member", _) => Err("its physical volume is grown by pvresize".to_owned()),
            _ => Err("Platter knows no tool for it".to_owned()),
        };
        GrownReport {
            partition: number,
            bytes_before: before.length,
            bytes: after.length,
            filesystem: self.filesystem.clone(),
            filesystem_grown: grown.is_ok(),
            reason: grown.err(),
            command: if self.overgrown.is_some() { String::new() } else { self.command(target) },
        }
    }

    /// The command that grows the file system later.
    fn command(&self, target: &Path) -> String {
        let is_device = target.starts_with("/dev");
        // The partitions of a file have no device until a loop device is made.
        let disk = if is_device { target } else { Path::new("/dev/loopX") };
        let device = match self.grown.number {
            Some(number) => quoted(&partition_path(disk, number).display().to_string()),
            None => quoted(&disk.display().to_string()),
        };
        let command = self.command_for(&device);
        match is_device || !command.contains(&device) {
            true => command,
            false => format!(
                "losetup --find --show --partscan {}, then {command}",
                quoted(&target.display().to_string())
            ),
        }
    }

    fn command_for(&self, device: &str) -> String {
        let option = |option: &str, name: &Option<String>| {
            name.as_ref().map(|name| format!(" {option} {}", quoted(name))).unwrap_or_default()
        };
        match self.filesystem.as_str() {
            "ext" => format!("e2fsck -f {device} && resize2fs {device}"),
            "xfs" => "xfs_growfs MOUNTPOINT".to_owned(),
            "btrfs" => "btrfs filesystem resize max MOUNTPOINT".to_owned(),
            "ntfs" => format!("ntfsresize {device}"),
            "swap" => {
                let (uuid, label) = &self.swap_names;
                format!("mkswap{}{} {device}", option("--uuid", uuid), option("--label", label))
            }
            "vfat" | "exfat" => String::new(),
            "LVM2_member" => format!("pvresize {device}"),
            _ => format!("the tool for the contents of {device}"),
        }
    }
}

/// Why a file system must not grow to the end of its place: the image has data between it and the end of its place before.
fn overgrown(disk: &dyn DiskRead, grown: &Grown, filesystem: &str, data: &Extents) -> Option<String> {
    let length = filesystem_length(disk, grown.before, filesystem)?;
    let behind = Extent::new(grown.before.offset, grown.before.length);
    let behind = Extent::between(behind.offset + length.min(behind.length), behind.end());
    match first_used(disk, &data.clip(behind).collect()) {
        Ok(None) => None,
        Ok(Some(offset)) => Some(format!("the image has data behind it, at offset {offset} of the disk")),
        Err(error) => Some(format!("what is behind it cannot be read: {error}")),
    }
}

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,=".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
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
    let device = LoopDevice::attach(target, place, sector_size);
    let device = device.map_err(|error| format!("making a loop device for {}: {error}", target.display()))?;
    let path = device.path().display().to_string();
    let checked = run("e2fsck", &["-f", "-p", &path])?;
    match checked.status.code() {
        Some(0..=CHECKED_MAX) => {}
        _ => return Err(said("e2fsck", &checked)),
    }
    let resized = run("resize2fs", &[&path])?;
    if !resized.status.success() {
        return Err(said("resize2fs", &resized));
    }
    // The end of the device syncs it only if nobody else has it open.
    let synced = std::fs::File::open(device.path()).and_then(|file| file.sync_all());
    synced.map_err(|error| format!("syncing {path}: {error}"))?;
    drop(device);
    // The loop device has written to the page cache of the target.
    let file = std::fs::OpenOptions::new().write(true).open(target);
    file.and_then(|file| file.sync_all()).map_err(|error| format!("syncing {}: {error}", target.display()))
}

/// Runs a program that ends with this process, so that it does not write to a target that somebody else has meanwhile.
fn run(program: &str, arguments: &[&str]) -> Result<Output, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", format!("{path}:{SYSTEM_PATHS}")).env("LC_ALL", "C");
    end_with_us(&mut command);
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
            ("swap", "mkswap --uuid 12-34 --label 'a b' /dev/sda3"),
            ("LVM2_member", "pvresize /dev/sda3"),
            ("unknown", "the tool for the contents of /dev/sda3"),
        ] {
            let swap_names = (Some("12-34".to_owned()), Some("a b".to_owned()));
            let place = GrownPlace {
                grown,
                sector_size: 512,
                filesystem: filesystem.to_owned(),
                overgrown: None,
                swap_names,
            };
            let file = place.command(Path::new("/srv/disk.raw"));
            assert!(!file.contains("/dev/") || file.contains("/srv/disk.raw, then"), "{file}");
            let said = place.command(Path::new("/dev/sda"));
            assert!(said.contains(command), "{filesystem}: {said}");
        }
    }
}
