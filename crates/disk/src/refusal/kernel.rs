//! The kernel's reports about block devices: `/proc/self/mountinfo`, `/proc/swaps` and `/sys`, as parsed
//! tables.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use platter_image::{IoContext, Result, SECTOR};

/// The most layers of stacked devices that are followed.
pub(super) const LAYERS_MAX: usize = 64;

/// The number of a block device: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DeviceNumber(pub(super) u32, pub(super) u32);

impl DeviceNumber {
    /// From the form used by `stat`.
    pub(super) fn from_stat(device: u64) -> Self {
        Self(rustix::fs::major(device), rustix::fs::minor(device))
    }

    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// A line of `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The device number of the filesystem; some filesystems (btrfs, overlay) have their own numbers.
    pub(super) number: DeviceNumber,
    pub(super) mount_point: String,
    /// What was mounted: for filesystems on devices, the device's path.
    pub(super) source: String,
    /// Whether the filesystem itself is writable; single mounts of it may still be read-only.
    pub(super) is_writable: bool,
    /// Whether it contains the device nodes that the kernel creates.
    pub(super) is_devtmpfs: bool,
}

/// Parses `/proc/self/mountinfo`; lines that are not understood are skipped.
pub(super) fn parse_mounts(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (number, _root, mount_point) = (before.next()?, before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, source, options) = (after.next()?, after.next()?, after.next()?);
        Some(Mount {
            number: DeviceNumber::parse(number)?,
            mount_point: unescape(mount_point),
            source: unescape(source),
            is_writable: options.split(',').any(|option| option == "rw"),
            is_devtmpfs: kind == "devtmpfs",
        })
    };
    text.lines().filter_map(line).collect()
}

/// Parses `/proc/swaps` and returns the paths.
pub(super) fn parse_swaps(text: &str) -> Vec<String> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(unescape).collect()
}

/// Decodes blanks and backslashes in names, which the kernel writes as three octal digits.
fn unescape(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What `/sys/class/block` reports about a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) name: String,
    /// The disk of which it is a partition.
    pub(super) disk: Option<DeviceNumber>,
    /// Names of the devices stacked on it.
    pub(super) holders: Vec<String>,
    /// The devices on which it is stacked.
    pub(super) slaves: Vec<DeviceNumber>,
    /// The kernel does not allow writing to it.
    pub(super) is_read_only: bool,
    /// The file behind it, if it is an active loop device.
    pub(super) backing_file: Option<PathBuf>,
    /// Where it starts in bytes: in its disk if it is a partition, in the file behind it if it is a loop device.
    pub(super) start: u64,
    /// Its length in bytes.
    pub(super) length: u64,
}

/// The storage at the bottom of a stack of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Base {
    Device(DeviceNumber),
    File(FileIdentity),
    /// A file that was deleted, or whose path does not exist in this mount namespace.
    Nameless(PathBuf),
}

/// The identity of a file independent of its name: filesystem and inode.
pub(super) type FileIdentity = (u64, u64);

/// All the kernel's tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) mounts: Vec<Mount>,
    pub(super) swaps: Vec<String>,
    pub(super) blocks: HashMap<DeviceNumber, Block>,
}

impl Machine {
    /// Reads all tables once.
    pub(super) fn read() -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).context(|| format!("reading {path}"));
        Ok(Self {
            mounts: parse_mounts(&read("/proc/self/mountinfo")?),
            // A kernel without swap support does not have this table.
            swaps: fs::read_to_string("/proc/swaps").map(|text| parse_swaps(&text)).unwrap_or_default(),
            blocks: read_blocks(Path::new("/sys/class/block"))?,
        })
    }

    /// The device itself, its partitions, and the disk of which it is a partition.
    pub(super) fn family(&self, number: DeviceNumber) -> Vec<DeviceNumber> {
        let mut family = vec![number];
        family.extend(self.partitions(number));
        family.extend(self.blocks.get(&number).and_then(|block| block.disk));
        family
    }

    fn partitions(&self, number: DeviceNumber) -> impl Iterator<Item = DeviceNumber> + '_ {
        let is_part = move |(_, block): &(&DeviceNumber, &Block)| block.disk == Some(number);
        self.blocks.iter().filter(is_part).map(|(number, _)| *number)
    }

    pub(super) fn name(&self, number: DeviceNumber) -> String {
        let unnamed = || format!("device {}:{}", number.0, number.1);
        self.blocks.get(&number).map_or_else(unnamed, |block| block.name.clone())
    }

    /// Mounts of the filesystems on a device.
    pub(super) fn mounts_of(&self, number: DeviceNumber) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(move |mount| {
            mount.number == number
                || (mount.number.0 == 0 && number_of(Path::new(&mount.source)) == Some(number))
        })
    }

    /// Active loop devices on a file.
    pub(super) fn loops_on(&self, file: FileIdentity) -> Vec<DeviceNumber> {
        let is_on = |block: &Block| block.backing_file.as_deref().and_then(identity) == Some(file);
        self.blocks.iter().filter(|(_, block)| is_on(block)).map(|(number, _)| *number).collect()
    }

    /// Other devices that have some of its bytes, besides its own partitions and disk: a loop device on the same
    /// file or on the device itself, and partitions of that.
    pub(super) fn aliases(&self, number: DeviceNumber) -> Vec<DeviceNumber> {
        let (family, Some((base, own))) = (self.family(number), self.bytes_of(number)) else {
            return Vec::new();
        };
        let has_some = |other: DeviceNumber| {
            self.bytes_of(other).is_some_and(|(other_base, range)| {
                other_base == base && range.start.max(own.start) < range.end.min(own.end)
            })
        };
        self.blocks.keys().copied().filter(|other| !family.contains(other) && has_some(*other)).collect()
    }

    /// Where the bytes of a device are, below partitions and loop devices.
    fn bytes_of(&self, number: DeviceNumber) -> Option<(Base, Range<u64>)> {
        let (mut at, mut start) = (number, 0_u64);
        let length = self.blocks.get(&number)?.length;
        for _ in 0..LAYERS_MAX {
            let block = self.blocks.get(&at)?;
            let below = match (block.disk, &block.backing_file) {
                (Some(disk), _) => Base::Device(disk),
                (None, Some(file)) => match (number_of(file), identity(file)) {
                    (Some(device), _) => Base::Device(device),
                    (None, Some(file)) => Base::File(file),
                    (None, None) => Base::Nameless(file.clone()),
                },
                (None, None) => return Some((Base::Device(at), start..start.checked_add(length)?)),
            };
            start = start.checked_add(block.start)?;
            match below {
                Base::Device(device) => at = device,
                file => return Some((file, start..start.checked_add(length)?)),
            }
        }
        None
    }

    /// The device itself and everything below it: disks of partitions, members of RAID sets, files behind
    /// loop devices, and the devices that these are on.
    pub(super) fn below(&self, start: DeviceNumber) -> (Vec<DeviceNumber>, Vec<FileIdentity>) {
        let (mut devices, mut files) = (vec![start], Vec::new());
        let mut next = 0;
        while next < devices.len().min(LAYERS_MAX) {
            let number = devices[next];
            next += 1;
            let mut found = Vec::new();
            if let Some(block) = self.blocks.get(&number) {
                found.extend(block.disk);
                found.extend(&block.slaves);
                if let Some(file) = block.backing_file.as_deref().and_then(identity) {
                    files.push(file);
                    found.push(DeviceNumber::from_stat(file.0));
                }
            }
            // Filesystems with their own device numbers name their device by its path.
            let own = self.mounts.iter().filter(|mount| mount.number == number && number.0 == 0);
            found.extend(own.filter_map(|mount| number_of(Path::new(&mount.source))));
            for number in found {
                if !devices.contains(&number) {
                    devices.push(number);
                }
            }
        }
        (devices, files)
    }
}

/// The number of the block device at an absolute path; mount sources such as `tmpfs` are not paths.
pub(super) fn number_of(path: &Path) -> Option<DeviceNumber> {
    if !path.is_absolute() {
        return None;
    }
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| DeviceNumber::from_stat(metadata.rdev()))
}

/// The identity of the file at a path.
pub(super) fn identity(path: &Path) -> Option<FileIdentity> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn read_blocks(directory: &Path) -> Result<HashMap<DeviceNumber, Block>> {
    let mut blocks = HashMap::new();
    let entries = fs::read_dir(directory).context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        let entry = entry.context(|| format!("reading {}", directory.display()))?;
        // Devices come and go; skip one that has just gone.
        let Ok(path) = fs::canonicalize(entry.path()) else { continue };
        let number = |path: &Path| DeviceNumber::parse(&fs::read_to_string(path.join("dev")).ok()?);
        let Some(own) = number(&path) else { continue };
        let names = |what: &str| -> Vec<PathBuf> {
            fs::read_dir(path.join(what)).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let file_name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let bytes = |what: &str, unit: u64| {
            let text = fs::read_to_string(path.join(what)).ok()?;
            text.trim().parse::<u64>().ok()?.checked_mul(unit)
        };
        let backing = fs::read_to_string(path.join("loop/backing_file")).ok();
        let block = Block {
            name: file_name(&path).unwrap_or_default(),
            disk: path.join("partition").exists().then(|| path.parent().and_then(number)).flatten(),
            holders: names("holders").iter().filter_map(|path| file_name(path)).collect(),
            slaves: names("slaves").iter().filter_map(|path| number(path)).collect(),
            is_read_only: fs::read_to_string(path.join("ro")).is_ok_and(|text| text.trim() == "1"),
            backing_file: backing.map(|path| PathBuf::from(path.trim_end_matches('\n'))),
            start: bytes("start", SECTOR).or_else(|| bytes("loop/offset", 1)).unwrap_or(0),
            length: bytes("size", SECTOR).unwrap_or(0),
        };
        blocks.insert(own, block);
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed() {
        let text = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/ro\\134ot rw,errors=continue\n\
                    40 28 0:35 / /var ro,relatime - btrfs /dev/sda2 ro,space_cache\n\
                    nonsense\n";
        let expected = [
            (DeviceNumber(98, 0), "/mnt 2", "/dev/ro\\ot", true),
            (DeviceNumber(0, 35), "/var", "/dev/sda2", false),
        ];
        let mounts = parse_mounts(text);
        let found: Vec<_> = mounts
            .iter()
            .map(|m| (m.number, m.mount_point.as_str(), m.source.as_str(), m.is_writable))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn swaps_are_parsed() {
        let text =
            "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1 0 -2\n/swap\\040file file 1 0 -3\n";
        assert_eq!(parse_swaps(text), ["/dev/sda2", "/swap file"]);
    }

    #[test]
    fn families_and_layers_of_devices() {
        let mut machine = Machine::default();
        let (disk, first, second, mapped) =
            (DeviceNumber(8, 0), DeviceNumber(8, 1), DeviceNumber(8, 2), DeviceNumber(253, 0));
        machine.blocks.insert(disk, Block { name: "sda".into(), ..Block::default() });
        machine.blocks.insert(first, Block { name: "sda1".into(), disk: Some(disk), ..Block::default() });
        machine.blocks.insert(second, Block { name: "sda2".into(), disk: Some(disk), ..Block::default() });
        machine
            .blocks
            .insert(mapped, Block { name: "dm-0".into(), slaves: vec![second], ..Block::default() });
        let mut family = machine.family(disk);
        family.sort_unstable();
        assert_eq!(family, [disk, first, second]);
        assert_eq!(machine.family(first), [first, disk], "not its sibling");
        assert_eq!(machine.below(mapped).0, [mapped, second, disk]);
        // A cycle of devices is not followed forever.
        machine.blocks.get_mut(&disk).unwrap().slaves.push(mapped);
        assert_eq!(machine.below(mapped).0, [mapped, second, disk]);
    }

    #[test]
    fn devices_with_the_same_bytes_are_found() {
        let mut machine = Machine::default();
        let file = Some(PathBuf::from("/nowhere/disk.raw (deleted)"));
        let on_file = |start, length| Block { backing_file: file.clone(), start, length, ..Block::default() };
        let (first, second, beside) = (DeviceNumber(7, 0), DeviceNumber(7, 1), DeviceNumber(7, 2));
        machine.blocks.insert(first, on_file(0, 1000));
        machine.blocks.insert(second, on_file(0, 1000));
        machine.blocks.insert(beside, on_file(1000, 500));
        let part = |disk, start, length| Block { disk: Some(disk), start, length, ..Block::default() };
        let (part_first, part_second, other_second) =
            (DeviceNumber(259, 0), DeviceNumber(259, 1), DeviceNumber(259, 2));
        machine.blocks.insert(part_first, part(first, 100, 200));
        machine.blocks.insert(part_second, part(second, 100, 200));
        machine.blocks.insert(other_second, part(second, 300, 200));
        machine.blocks.insert(DeviceNumber(8, 0), Block { length: 1000, ..Block::default() });
        let aliases = |number| {
            let mut aliases = machine.aliases(number);
            aliases.sort_unstable();
            aliases
        };
        assert_eq!(aliases(first), [second, part_second, other_second]);
        assert_eq!(aliases(part_first), [second, part_second], "not the partition beside it");
        assert_eq!(aliases(beside), []);
        assert_eq!(aliases(DeviceNumber(8, 0)), []);
    }
}
