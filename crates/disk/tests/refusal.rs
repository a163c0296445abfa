//! Targets and sources that must be refused, on loop devices (as root; otherwise skipped) and files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use platter_disk::refusal::{Consent, ImageGeometry, Reason, TargetCheck, check_source, check_target};
use platter_disk::{Source, Target, TargetOptions};
use platter_image::{DiskRead, DiskWrite, ErrorKind};

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device on a file; detached when dropped.
struct Loop(String);

impl Loop {
    fn attach(file: &Path, options: &[&str]) -> Option<Self> {
        let mut arguments = vec!["--find", "--show"];
        arguments.extend(options);
        arguments.push(file.to_str().unwrap());
        let device = run("losetup", &arguments);
        if device.is_none() {
            eprintln!("skipped: no loop devices here (not root?)");
        }
        device.map(Self)
    }

    fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

/// A mounted filesystem; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn mount(device: &Path, directory: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(directory).unwrap();
        let mounted = run("mount", &["-o", options, device.to_str().unwrap(), directory.to_str().unwrap()]);
        if mounted.is_none() {
            eprintln!("skipped: cannot mount here");
        }
        mounted.map(|_| Self(directory.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

fn image(length: u64, sector_size: u32) -> Option<ImageGeometry> {
    Some(ImageGeometry { length, sector_size, is_partition: false })
}

fn refused(path: &Path, check: &TargetCheck<'_>, words: &[&str]) {
    let error = check_target(path, check).expect_err("it must be refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no {word:?} in: {error}");
    }
}

fn file(directory: &Path, name: &str, length: u64) -> PathBuf {
    let path = directory.join(name);
    fs::File::create(&path).unwrap().set_len(length).unwrap();
    path
}

#[test]
fn files_as_targets_and_sources() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    fs::create_dir(&store).unwrap();
    let forbidden = [store.clone(), directory.path().join("not there")];
    let check = TargetCheck {
        image: image(1 << 20, 4096),
        forbidden: &forbidden,
        force: Some(&Reason::ALL),
        ..TargetCheck::default()
    };
    let good = file(directory.path(), "disk", 10);
    check_target(&good, &check).unwrap();
    check_target(&directory.path().join("new"), &check).unwrap();
    refused(&store.join("new"), &check, &["the store"]);
    let inside = file(&store, "pack", 10);
    refused(&inside, &check, &["the store"]);
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    refused(&link, &check, &["the store"]);
    for path in ["/dev/null", "/tmp"] {
        refused(Path::new(path), &check, &["block device or a regular file"]);
        assert_eq!(check_source(Path::new(path), &Reason::ALL).unwrap_err().kind(), ErrorKind::Refused);
    }
    check_source(&good, &[]).unwrap();
    assert_eq!(check_source(&directory.path().join("gone"), &[]).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn devices_in_use_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let backing = file(directory.path(), "image", 32 << 20);
    let Some(device) = Loop::attach(&backing, &[]) else { return };
    let check = TargetCheck { image: image(32 << 20, 512), force: Some(&[]), ..TargetCheck::default() };
    check_target(device.path(), &check).unwrap();
    refused(
        device.path(),
        &TargetCheck { image: image((32 << 20) + 1, 512), ..check.clone() },
        &["33554433"],
    );
    let too_small = TargetCheck { image: image(1 << 40, 512), force: Some(&Reason::ALL), ..check.clone() };
    refused(device.path(), &too_small, &["choose a larger one"]);
    refused(
        device.path(),
        &TargetCheck { image: image(32 << 20, 4096), ..check.clone() },
        &["(override with --force sector-size)"],
    );
    let insisting =
        TargetCheck { image: image(32 << 20, 4096), force: Some(&[Reason::SectorSize]), ..check.clone() };
    check_target(device.path(), &insisting).unwrap();
    refused(&backing, &check, &["it is the file behind loop", "(override with --force loop-backing)"]);
    let without_option = TargetCheck { force: None, ..check.clone() };
    let error = check_target(&backing, &without_option).unwrap_err().to_string();
    assert!(error.contains("it is the file behind loop") && !error.contains("--force"), "{error}");
    check_source(&backing, &[]).unwrap();

    let exclusive = Target::open(device.path(), &TargetOptions::new(32 << 20)).unwrap();
    refused(device.path(), &check, &["exclusively"]);
    let twice = Target::open(device.path(), &TargetOptions::new(32 << 20)).unwrap_err();
    assert!(twice.kind() == ErrorKind::Refused && twice.to_string().contains("in use"), "{twice}");
    drop(exclusive);

    run("mke2fs", &["-q", "-F", "-t", "ext4", device.0.as_str()]).unwrap();
    let Some(mounted) = Mounted::mount(device.path(), &directory.path().join("mnt"), "rw") else { return };
    refused(device.path(), &check, &["is mounted on", "mnt", "(override with --force mounted)"]);
    refused(&backing, &check, &["is mounted on", "losetup -d"]);
    for path in [device.path(), &backing] {
        let error = check_source(path, &[]).unwrap_err();
        let words = "mount it read-only (override with --force)";
        assert!(
            error.to_string().contains("mounted for writing") && error.to_string().contains(words),
            "{error}"
        );
        check_source(path, &[Reason::Mounted]).unwrap();
    }
    // A device that holds the store is always refused, even if the store is on a loop device on a file on it.
    let store = mounted.0.join("store");
    fs::create_dir(&store).unwrap();
    let forbidden = [store];
    let insisting = TargetCheck { forbidden: &forbidden, force: Some(&Reason::ALL), ..check.clone() };
    refused(device.path(), &insisting, &["the store", "is on it"]);
    refused(&backing, &insisting, &["the store", "loop device"]);
    drop(mounted);
    let Some(_mounted) = Mounted::mount(device.path(), &directory.path().join("mnt"), "ro") else { return };
    refused(device.path(), &check, &["is mounted on"]);
    check_source(device.path(), &[]).unwrap();
}

#[test]
fn partitions_in_use_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let backing = file(directory.path(), "image", 64 << 20);
    let Some(device) = Loop::attach(&backing, &["--partscan"]) else { return };
    // Partitions are added by number, because not every kernel reads partition tables.
    for (number, start) in [("1", "2048"), ("2", "43008")] {
        if run("addpart", &[&device.0, number, start, "40960"]).is_none() {
            eprintln!("skipped: no partitions on loop devices here");
            return;
        }
    }
    // Nodes are created here, because not every machine creates those of partitions.
    let part = |number: u32| directory.path().join(format!("p{number}"));
    for number in [1, 2] {
        let name = format!("{}p{number}", device.0.rsplit('/').next().unwrap());
        let numbers = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
        let (major, minor) = numbers.trim().split_once(':').unwrap();
        run("mknod", &[part(number).to_str().unwrap(), "b", major, minor]).unwrap();
    }
    run("mke2fs", &["-q", "-F", "-t", "ext4", part(1).to_str().unwrap()]).unwrap();
    let Some(mounted) = Mounted::mount(&part(1), &directory.path().join("mnt"), "rw") else { return };
    let check = TargetCheck { image: image(1 << 20, 512), ..TargetCheck::default() };
    refused(device.path(), &check, &["p1 is mounted on"]);
    refused(&part(1), &check, &["p1 is mounted on"]);
    check_target(&part(2), &check).unwrap();
    let forbidden = [mounted.0.clone()];
    let insisting = TargetCheck { forbidden: &forbidden, force: Some(&Reason::ALL), ..check };
    refused(device.path(), &insisting, &["is on it"]);
    check_target(&part(2), &insisting).unwrap();
    assert!(check_source(device.path(), &[]).is_err());
    check_source(&part(2), &[]).unwrap();
}

/// An image is refused even if there are marks of a filesystem in it.
#[test]
fn images_of_virtual_machines_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let mut bytes = vec![0; 1 << 20];
    bytes[..4].copy_from_slice(b"QFI\xfb");
    bytes[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
    fs::write(&path, &bytes).unwrap();
    let check = TargetCheck { force: Some(&[]), ..TargetCheck::default() };
    check_target(&path, &check).unwrap();
    let name: platter_disk::refusal::NameImage =
        |first, last| (first.starts_with(b"QFI\xfb") && last == [0; 512]).then_some("a qcow2 image");
    let check = TargetCheck { image_name: Some(name), ..check };
    refused(&path, &check, &["it is a qcow2 image", "--force not-a-disk"]);
    check_target(&path, &TargetCheck { force: Some(&[Reason::NotADisk]), ..check }).unwrap();
}

/// Two loop devices on one file have the same bytes.
#[test]
fn a_mount_of_the_same_bytes_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let backing = file(directory.path(), "image", 64 << 20);
    let Some(whole) = Loop::attach(&backing, &[]) else { return };
    let part =
        |offset: &str| Loop::attach(&backing, &["--offset", offset, "--sizelimit", "16777216"]).unwrap();
    let (first, beside) = (part("1048576"), part("33554432"));
    run("mke2fs", &["-q", "-F", "-t", "ext4", &first.0]).unwrap();
    let check = TargetCheck { force: Some(&[]), ..TargetCheck::default() };
    check_target(whole.path(), &check).unwrap();
    let Some(_mounted) = Mounted::mount(first.path(), &directory.path().join("mnt"), "rw") else { return };
    refused(whole.path(), &check, &["with the same contents, is mounted on", "--force mounted"]);
    check_target(beside.path(), &check).unwrap();
    let error = check_source(whole.path(), &[]).unwrap_err();
    assert!(error.to_string().contains("mounted for writing"), "{error}");
    check_source(beside.path(), &[]).unwrap();
}

/// Before the image is known, a device is refused for its own state, not for the image's requirements.
#[test]
fn without_an_image_sector_size_and_length_are_not_checked() {
    let directory = tempfile::tempdir().unwrap();
    let backing = file(directory.path(), "image", 32 << 20);
    let unknown = TargetCheck::default();
    for options in [["--sector-size", "512"], ["--sector-size", "4096"]] {
        let Some(device) = Loop::attach(&backing, &options) else { return };
        check_target(device.path(), &unknown).unwrap();
        let _exclusive = Target::open(device.path(), &TargetOptions::new(32 << 20)).unwrap();
        refused(device.path(), &unknown, &["exclusively"]);
    }
    let Some(device) = Loop::attach(&backing, &["--read-only"]) else { return };
    refused(device.path(), &TargetCheck { force: Some(&Reason::ALL), ..unknown.clone() }, &["read-only"]);
    let gone = directory.path().join("gone/disk");
    assert_eq!(check_target(&gone, &unknown).unwrap_err().kind(), ErrorKind::Io);
}

/// Direct I/O on a block device with writes of any alignment, for both sector sizes.
#[test]
fn unaligned_direct_writes_to_devices_are_correct() {
    let directory = tempfile::tempdir().unwrap();
    for sector in ["512", "4096"] {
        let image = file(directory.path(), "image", 8 << 20);
        let Some(device) = Loop::attach(&image, &["--sector-size", sector]) else { return };
        let target = Target::open(device.path(), &TargetOptions::new(8 << 20)).unwrap();
        assert_eq!(target.alignment(), sector.parse::<usize>().unwrap());
        assert!(target.is_block_device());
        let mut expected = vec![0; 8 << 20];
        for (offset, length) in [(0, 100), (4096, 4096), (5000, 3_000_000), (511, 2), ((8 << 20) - 1, 1)] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 255) as u8 + 1).collect();
            target.write_all_at(&bytes, offset).unwrap();
            expected[offset as usize..offset as usize + length].copy_from_slice(&bytes);
        }
        target.write_zeroes(6000, 1_000_000).unwrap();
        expected[6000..1_006_000].fill(0);
        target.flush().unwrap();
        let mut found = vec![1; 8 << 20];
        target.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected, "sectors of {sector}, read directly");
        drop(target);
        let source = Source::open(device.path(), None).unwrap();
        assert_eq!((source.sector_size().to_string().as_str(), source.length()), (sector, 8 << 20));
        source.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected, "sectors of {sector}, read through the cache");
    }
}

/// No file is created among device nodes, whatever is overridden and whatever path is used; other filesystems
/// below /dev contain ordinary files.
#[test]
fn no_files_are_created_in_dev() {
    let everything = TargetCheck { force: Some(&Reason::ALL), ..TargetCheck::default() };
    let directory = tempfile::tempdir().unwrap();
    let devices = directory.path().join("devices");
    std::os::unix::fs::symlink("/dev", &devices).unwrap();
    let through_link = devices.join("nonexist").display().to_string();
    let mut paths =
        vec!["/dev/nonexist", "/dev/disk/by-id/no/such/disk", "/proc/../dev/nonexist", &through_link];
    let device = |path: &str| std::os::unix::fs::MetadataExt::dev(&fs::metadata(path).unwrap());
    if Path::new("/dev/shm").exists() && device("/dev/shm") != device("/dev") {
        check_target(Path::new("/dev/shm/platter-new"), &everything).unwrap();
        paths.push("/dev/shm/../nonexist");
    }
    for path in paths {
        refused(Path::new(path), &everything, &["no files are created in /dev"]);
    }
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("/dev/nonexist", &link).unwrap();
    // The link dangles, so it looks like a new file; creating that file does not follow the link.
    let checked = check_target(&link, &everything).unwrap();
    let options = TargetOptions { expected: Some(checked.identity()), ..TargetOptions::new(512) };
    assert_eq!(Target::open(&link, &options).unwrap_err().kind(), ErrorKind::Refused);
    assert!(!Path::new("/dev/nonexist").exists());
}

#[test]
fn files_with_data_need_consent() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    let check = TargetCheck { image: image(512, 512), force: Some(&[]), ..TargetCheck::default() };
    refused(&hosts, &check, &["does not contain a disk", "(override with --force not-a-disk)"]);
    let insisting = TargetCheck { force: Some(&[Reason::NotADisk]), ..check.clone() };
    let checked = check_target(&hosts, &insisting).unwrap();
    // Overriding the kind of file is not consent to losing it.
    let error = checked.agree(&Consent::Absent).unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("--yes"), "{error}");
    let error = checked.agree(&Consent::NewFile).unwrap_err().to_string();
    assert!(error.contains("only a new file is written") && !error.contains("--"), "{error}");
    checked.agree(&Consent::Given).unwrap();
    let asked = |answer: bool| {
        Consent::Ask(std::sync::Arc::new(move |contents| {
            assert_eq!(contents.length, 20);
            Ok(answer)
        }))
    };
    checked.agree(&asked(true)).unwrap();
    assert_eq!(checked.agree(&asked(false)).unwrap_err().kind(), ErrorKind::Refused);
    let hole = file(directory.path(), "hole", 1 << 20);
    for nothing in [hole, directory.path().join("new"), file(directory.path(), "empty", 0)] {
        let checked = check_target(&nothing, &check).unwrap();
        assert_eq!(checked.contents(), None);
        checked.agree(&Consent::Absent).unwrap();
    }
}

/// An override drops only its own reason: a device that no one uses is still opened exclusively.
#[test]
fn overrides_still_open_exclusively() {
    let directory = tempfile::tempdir().unwrap();
    let backing = file(directory.path(), "image", 32 << 20);
    let Some(device) = Loop::attach(&backing, &[]) else { return };
    let insisting =
        TargetCheck { image: image(32 << 20, 4096), force: Some(&Reason::ALL), ..TargetCheck::default() };
    let checked = check_target(device.path(), &insisting).unwrap();
    assert!(checked.is_exclusive(), "no one uses it, whatever is overridden");
    let contents = checked.contents().expect("a device is always shown").to_string();
    assert!(contents.contains("33.5 MB") && contents.contains("image"), "{contents}");
    let taken = Target::open(device.path(), &TargetOptions::new(32 << 20)).unwrap();
    assert!(!check_target(device.path(), &insisting).unwrap().is_exclusive());
    drop(taken);
}

/// These look like regular files, but writing to them changes a process or the kernel.
#[test]
fn kernel_interfaces_are_refused() {
    for path in ["/proc/self/mem", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        let path = Path::new(path);
        if fs::metadata(path).is_ok() {
            refused(path, &TargetCheck::default(), &["a kernel interface"]);
            assert_eq!(check_source(path, &[]).unwrap_err().kind(), ErrorKind::Refused);
        }
    }
}
