//! Common NBD clients. A test whose program is not installed reports that and passes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use platter_image::Extent;

use crate::memory::Memory;
use crate::running_server::RunningServer;

const LENGTH: usize = 8 << 20;

fn disk() -> Arc<Memory> {
    Arc::new(Memory::new(LENGTH, &[Extent::new(1 << 20, 2 << 20), Extent::new(7 << 20, 1 << 20)]))
}

fn is_installed(program: &str) -> bool {
    let is = Command::new(program).arg("--version").output().is_ok();
    if !is {
        println!("skipped: no {program}");
    }
    is
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn success(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}{errors}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn nbdinfo() {
    if !is_installed("nbdinfo") {
        return;
    }
    let server = RunningServer::of(&disk());
    let info = success("nbdinfo", &["--json", &server.uri()]);
    for fact in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-name\": \"disk\"",
        "\"description\": \"the disk disk\"",
        "\"base:allocation\"",
        "\"can_multi_conn\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"is_read_only\": false",
        "\"block_size_minimum\": 1",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
        "\"export-size\": 8388608",
    ] {
        assert!(info.contains(fact), "{fact} is not in {info}");
    }
    let map = success("nbdinfo", &["--map", &server.uri()]);
    let rows: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(
        rows,
        [
            ["0", "1048576", "0"],
            ["1048576", "2097152", "3"],
            ["3145728", "4194304", "0"],
            ["7340032", "1048576", "3"]
        ]
    );
    let list = success("nbdinfo", &["--list", &server.uri().replace("/disk?", "/?")]);
    assert!(list.contains("export=\"disk\""), "{list}");
}

#[test]
fn nbdcopy() {
    if !is_installed("nbdcopy") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (disk, copy) = (disk(), folder.path().join("copy"));
    let server = RunningServer::of(&disk);
    success("nbdcopy", &[&server.uri(), text(&copy)]);
    assert!(fs::read(&copy).unwrap() == disk.contents());
    let target = Arc::new(Memory::new(LENGTH, &[]));
    let other = RunningServer::of(&target);
    success("nbdcopy", &["--flush", text(&copy), &other.uri()]);
    assert!(target.contents() == disk.contents());
}

#[test]
fn qemu_img() {
    if !is_installed("qemu-img") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (disk, raw, qcow2) = (disk(), folder.path().join("raw"), folder.path().join("qcow2"));
    let server = RunningServer::of(&disk);
    success("qemu-img", &["convert", "-O", "raw", &server.uri(), text(&raw)]);
    assert!(fs::read(&raw).unwrap() == disk.contents());
    success("qemu-img", &["compare", &server.uri(), text(&raw)]);
    success("qemu-img", &["convert", "-O", "qcow2", &server.uri(), text(&qcow2)]);
    success("qemu-img", &["compare", &server.uri(), text(&qcow2)]);
    let map = success("qemu-img", &["map", "--output=json", &server.uri()]);
    assert_eq!(map.matches("\"zero\": true").count(), 2, "{map}");
    let target = Arc::new(Memory::new(LENGTH, &[]));
    let other = RunningServer::of(&target);
    success("qemu-img", &["convert", "-n", "-O", "raw", text(&qcow2), &other.uri()]);
    assert!(target.contents() == disk.contents());
}

#[test]
fn qemu_io() {
    if !is_installed("qemu-io") {
        return;
    }
    let disk = disk();
    let server = RunningServer::of(&disk);
    let commands = [
        "write -P 0x11 4096 65536",
        "write -f -P 0x12 100000 1000",
        "write -z 8192 4096",
        "write -z -u 16384 4096",
        "discard 32768 4096",
        "aio_write -P 0x33 1M 512k",
        "aio_write -P 0x44 2M 512k",
        "aio_flush",
        "flush",
        "read -P 0x11 4096 4096",
        "read -P 0 8192 4096",
        "read -P 0x33 1M 512k",
        "read -P 0x44 2M 512k",
    ];
    let uri = server.uri();
    let mut arguments = vec!["-f", "raw", &uri];
    commands.iter().for_each(|command| arguments.extend(["-c", *command]));
    let said = success("qemu-io", &arguments);
    assert!(!said.contains("failed"), "{said}");
    let contents = disk.contents();
    assert!(contents[100_000..101_000].iter().all(|byte| *byte == 0x12));
    assert!(contents[16_384..20_480].iter().all(|byte| *byte == 0));
    assert!(contents[32_768..36_864].iter().all(|byte| *byte == 0));
    // A read past the end, and a read of a bad place.
    let bad = std::iter::once(Extent::new(0, 512)).collect();
    let server = RunningServer::of(&Arc::new(Memory { bad, ..Memory::new(LENGTH, &[]) }));
    let failed = run("qemu-io", &["-r", "-f", "raw", &server.uri(), "-c", "read 0 4096"]);
    let said =
        String::from_utf8_lossy(&failed.stdout).into_owned() + &String::from_utf8_lossy(&failed.stderr);
    assert!(said.contains("Input/output error"), "{said}");
}
