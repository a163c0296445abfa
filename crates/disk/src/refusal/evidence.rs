//! Gathers what is known about one device from the kernel's tables.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use platter_image::{Error, IoContext, Result};
use rustix::fs::{Access, OFlags};
use rustix::io::Errno;

use super::TargetCheck;
use super::decide::{Evidence, MountedFrom};
use super::kernel::{DeviceNumber, FileIdentity, LAYERS_MAX, Machine, identity, number_of};
use super::locks::{self, Holder};
use crate::device::{Identity, block_geometry, describe};

/// What is known about a path to be overwritten. `held` is the existing device or file, if it could be opened;
/// `metadata` is its metadata.
pub(super) fn of_target(
    path: &Path,
    held: Option<&fs::File>,
    metadata: Option<&fs::Metadata>,
    check: &TargetCheck<'_>,
    machine: &Machine,
) -> Result<Evidence> {
    let mut evidence = Evidence { below_dev: below_dev(path, metadata, machine), ..Evidence::default() };
    let (mut devices, mut files) = (Vec::new(), Vec::new());
    match metadata {
        Some(metadata) if metadata.file_type().is_block_device() => {
            let number = DeviceNumber::from_stat(metadata.rdev());
            add_uses(&mut evidence, machine, number);
            let (length, sector_size, is_busy) = geometry(path)?;
            evidence.lengths = check.image.map(|image| (length, image.length));
            evidence.sector_sizes = check.image.map(|image| (sector_size, image.sector_size));
            evidence.is_partition = check.image.is_some_and(|image| image.is_partition);
            evidence.is_busy = is_busy;
            evidence.is_read_only = machine.blocks.get(&number).is_some_and(|block| block.is_read_only);
            devices.push(number);
            // The file behind this loop device may also be behind another loop device. (It may be behind
            // several partitions of one device: they do not overlap.)
            let backing = machine.blocks.get(&number).and_then(|block| block.backing_file.as_deref());
            files.extend(backing.and_then(identity));
        }
        Some(metadata) if metadata.is_file() => {
            evidence.wrong_kind = is_of_kernel(path).then_some(OF_KERNEL);
            let file = (metadata.dev(), metadata.ino());
            add_loops(&mut evidence, machine, file, true);
            evidence
                .swaps
                .extend(machine.swaps.iter().filter(|swap| identity(Path::new(swap)) == Some(file)).cloned());
            evidence.is_read_only = !may_write(path)?;
            evidence.is_busy = held.is_some_and(is_locked);
            files.push(file);
        }
        Some(metadata) => evidence.wrong_kind = Some(describe(metadata.file_type())),
        None => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            evidence.is_read_only =
                evidence.below_dev.is_none() && !may_write(directory.unwrap_or(Path::new(".")))?;
        }
    }
    if let Some(file) = held {
        evidence.locks = found_locks(machine, path, file, locks::user);
    }
    evidence.store = check.forbidden.iter().find_map(|store| {
        let how = store_on(path, store, machine, &devices, &files)?;
        Some((store.display().to_string(), how))
    });
    Ok(evidence)
}

/// The description of files such as /proc/self/mem.
const OF_KERNEL: &str = "a kernel interface";
/// Filesystems whose files look regular but are interfaces of the kernel (statfs(2)): proc, sysfs, debugfs,
/// tracefs, securityfs, cgroup, cgroup2, configfs, efivarfs, bpf, pstore, binfmt_misc, selinuxfs, nsfs.
const KERNEL_FILESYSTEMS: [u32; 14] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x0027_e0eb,
    0x6367_7270,
    0x6265_6570,
    0xde5e_81e4,
    0xcafe_4a11,
    0x6165_676c,
    0x4249_4e4d,
    0xf97c_ff8c,
    0x6e73_6673,
];

/// Whether a file is on such a filesystem of the kernel.
fn is_of_kernel(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| KERNEL_FILESYSTEMS.contains(&(found.f_type as u32)))
}

/// The directory of device nodes.
const DEVICES: &str = "/dev";

/// Whether a file is among device nodes, or would be created there: on a devtmpfs, or below /dev on the
/// filesystem of /dev. Other filesystems mounted below it, such as /dev/shm, contain ordinary files.
fn below_dev(path: &Path, metadata: Option<&fs::Metadata>, machine: &Machine) -> Option<bool> {
    let (place, directory) = match metadata {
        Some(metadata) if metadata.is_file() => (fs::canonicalize(path).ok()?, metadata.dev()),
        Some(_) => return None,
        None => {
            let place = nearest_existing(path)?;
            let directory = fs::metadata(&place).ok()?.dev();
            (place, directory)
        }
    };
    let number = DeviceNumber::from_stat(directory);
    let is_devtmpfs = machine.mounts.iter().any(|mount| mount.number == number && mount.is_devtmpfs);
    let is_of_dev = || fs::metadata(DEVICES).is_ok_and(|devices| devices.dev() == directory);
    let is_below = place.starts_with(DEVICES) && is_of_dev();
    (is_below || is_devtmpfs).then_some(metadata.is_some())
}

/// What is known about a path to be read.
pub(super) fn of_source(path: &Path, machine: &Machine) -> Result<Evidence> {
    let metadata = fs::metadata(path).context(|| format!("examining {}", path.display()))?;
    let mut evidence = Evidence::default();
    if metadata.file_type().is_block_device() {
        add_uses(&mut evidence, machine, DeviceNumber::from_stat(metadata.rdev()));
        (_, _, evidence.is_busy) = geometry(path)?;
    } else if metadata.is_file() {
        evidence.wrong_kind = is_of_kernel(path).then_some(OF_KERNEL);
        add_loops(&mut evidence, machine, (metadata.dev(), metadata.ino()), false);
    } else {
        evidence.wrong_kind = Some(describe(metadata.file_type()));
    }
    if evidence.wrong_kind.is_none() {
        let file = fs::File::open(path).context(|| format!("opening {}", path.display()))?;
        evidence.locks = found_locks(machine, path, &file, locks::writer);
    }
    Ok(evidence)
}

/// The locks on an open device or file, and on what has the same bytes: the disk of a partition, its other partitions, loop
/// devices and the files behind them.
fn found_locks(
    machine: &Machine,
    path: &Path,
    file: &fs::File,
    holder: impl Fn(&fs::File) -> Option<Holder>,
) -> Vec<(Holder, String)> {
    let Ok(metadata) = file.metadata() else { return Vec::new() };
    let own = Identity::of(Some(&metadata));
    let numbers = match own {
        Identity::Block { number } => vec![DeviceNumber::from_stat(number)],
        Identity::Regular { filesystem, inode } => machine.loops_on((filesystem, inode)),
        Identity::Nothing => return Vec::new(),
    };
    let family = |number: DeviceNumber| [machine.family(number), machine.aliases(number)].concat();
    let mut places = Vec::new();
    for block in numbers.into_iter().flat_map(family).filter_map(|number| machine.blocks.get(&number)) {
        places.push(Path::new(DEVICES).join(block.name.replace('!', "/")));
        places.extend(block.backing_file.clone());
    }
    let mut found: Vec<(Holder, String)> = holder(file).map(|it| (it, "it".to_owned())).into_iter().collect();
    let mut seen = vec![own];
    for place in places.into_iter().filter(|place| place != path) {
        // A name can be missing here, or be that of something that must not be opened.
        let Ok(metadata) = fs::metadata(&place) else { continue };
        let identity = Identity::of(Some(&metadata));
        if identity == Identity::Nothing || seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        let other = fs::File::open(&place).ok();
        found.extend(other.as_ref().and_then(&holder).map(|it| (it, place.display().to_string())));
    }
    found
}

/// How a device, or anything on it, is used: mounts, swap, holders.
fn add_uses(evidence: &mut Evidence, machine: &Machine, number: DeviceNumber) {
    // Devices stacked on it (such as volumes on its partitions) may be mounted, too.
    let mut family = machine.family(number);
    let aliases = machine.aliases(number);
    family.extend(&aliases);
    let mut next = 0;
    while next < family.len().min(LAYERS_MAX) {
        let holders = machine.blocks.iter().filter(|(_, block)| block.slaves.contains(&family[next]));
        let above: Vec<DeviceNumber> = holders.map(|(number, _)| *number).collect();
        family.extend(above.into_iter().filter(|number| !family.contains(number)).collect::<Vec<_>>());
        next += 1;
    }
    for member in family {
        let device = match aliases.contains(&member) {
            true => format!("{}, with the same contents,", machine.name(member)),
            false => machine.name(member),
        };
        evidence.mounted.extend(machine.mounts_of(member).map(|mount| MountedFrom {
            device: device.clone(),
            mount_point: mount.mount_point.clone(),
            is_writable: mount.is_writable,
        }));
        let swaps = machine.swaps.iter().filter(|swap| number_of(Path::new(swap)) == Some(member));
        evidence.swaps.extend(swaps.cloned());
        let holders = machine.blocks.get(&member).map(|block| block.holders.as_slice()).unwrap_or_default();
        evidence.holders.extend(holders.iter().map(|holder| (device.clone(), holder.clone())));
    }
}

/// Loop devices on a file, and how they are used.
fn add_loops(evidence: &mut Evidence, machine: &Machine, file: FileIdentity, with_loops: bool) {
    for number in machine.loops_on(file) {
        if with_loops {
            evidence.loops.push(machine.name(number));
        }
        add_uses(evidence, machine, number);
    }
}

/// Length and sector size of a block device in bytes, and whether it is open exclusively elsewhere.
fn geometry(path: &Path) -> Result<(u64, u32, bool)> {
    let exclusively = OFlags::EXCL.bits().cast_signed();
    let (file, is_busy) = match OpenOptions::new().read(true).custom_flags(exclusively).open(path) {
        Ok(file) => (file, false),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            (fs::File::open(path).context(|| format!("opening {}", path.display()))?, true)
        }
        Err(error) => return Err(Error::io(format!("opening {}", path.display()), error)),
    };
    let (length, sector_size) = block_geometry(&file, path)?;
    Ok((length, sector_size, is_busy))
}

/// Whether another job that writes a file has it locked. No lock stays.
fn is_locked(file: &fs::File) -> bool {
    match file.try_lock_shared() {
        // Closing it also unlocks it.
        Ok(()) => file.unlock().is_err(),
        Err(error) => matches!(error, fs::TryLockError::WouldBlock),
    }
}

/// Whether a file is writable, or a file may be created in a directory.
fn may_write(path: &Path) -> Result<bool> {
    match rustix::fs::access(path, Access::WRITE_OK) {
        Ok(()) => Ok(true),
        Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => Ok(false),
        Err(error) => Err(Error::io(format!("examining {}", path.display()), error.into())),
    }
}

/// How the store is located on the target, if it is: `devices` is the target, `files` are the files behind
/// it.
fn store_on(
    target: &Path,
    store: &Path,
    machine: &Machine,
    devices: &[DeviceNumber],
    files: &[FileIdentity],
) -> Option<&'static str> {
    let place = nearest_existing(store)?;
    let metadata = fs::metadata(&place).ok()?;
    let (below, files_below) = machine.below(DeviceNumber::from_stat(metadata.dev()));
    if devices.iter().any(|device| below.contains(device)) {
        return Some("is on it");
    }
    if files.iter().any(|file| files_below.contains(file)) {
        return Some("is on a loop device on it");
    }
    // A store that does not exist yet contains nothing.
    let store = fs::canonicalize(store).ok()?;
    let target = nearest_existing(target)?;
    let behind = devices.iter().flat_map(|device| machine.below(*device).0);
    let behind = behind.filter_map(|number| machine.blocks.get(&number)?.backing_file.clone());
    let is_inside = |path: &Path| fs::canonicalize(path).is_ok_and(|path| path.starts_with(&store));
    (is_inside(&target) || behind.into_iter().any(|file| is_inside(&file))).then_some("contains it")
}

/// The path without symbolic links, or that of its nearest existing ancestor.
fn nearest_existing(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().find_map(|ancestor| fs::canonicalize(ancestor).ok())
}
