//! How a mount ends: on request, unmounted by somebody, with open files, killed; and over which mounts a new one may
//! go.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use platter_export::fuse::{FuseOptions, FuseServer};
use platter_export::tree::Tree;
use platter_image::ErrorKind;

use crate::memory::{MemoryFile, MemoryTree, UNIT, pattern};
use crate::mounted::{Mounted, force_away, is_mounted, is_possible, is_root};

fn tree() -> Arc<MemoryTree> {
    let tree = MemoryTree::new();
    tree.put("live", MemoryFile::of(pattern(UNIT)));
    Arc::new(tree)
}

#[test]
fn somebody_unmounts() {
    if !is_possible() || !is_root() {
        return;
    }
    let mut mounted = Mounted::of(&tree());
    let output = Command::new("umount").arg(mounted.path()).output().unwrap();
    assert!(output.status.success());
    mounted.join().unwrap();
    mounted.wait_for("Unmounted");
}

#[test]
fn a_foreign_mount_is_not_touched() {
    if !is_possible() || !is_root() {
        return;
    }
    let mut mounted = Mounted::of(&tree());
    let path = mounted.path();
    let script = "umount $0; mount -t tmpfs none $0; touch $0/mine";
    assert!(Command::new("bash").args(["-euc", script]).arg(&path).status().unwrap().success());
    mounted.join().unwrap();
    assert!(path.join("mine").exists());
}

#[test]
fn stopped_with_open_files() {
    if !is_possible() || !is_root() {
        return;
    }
    let options = FuseOptions { farewell_time: Duration::from_millis(200), ..FuseOptions::default() };
    let mut mounted = Mounted::start(tempfile::tempdir().unwrap(), tree() as Arc<dyn Tree>, options);
    let file = File::open(mounted.at("live")).unwrap();
    mounted.ask_to_stop();
    mounted.join().unwrap();
    mounted.wait_for("Busy");
    assert!(!is_mounted(&mounted.path()));
    assert!(file.read_at(&mut [0; 1], 0).is_err(), "an open file fails after the end");
}

#[test]
fn mount_points_that_are_refused() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (path, kind) in [
        (folder.path().to_owned(), ErrorKind::Refused),
        (folder.path().join("file"), ErrorKind::Refused),
        (folder.path().join("nothing"), ErrorKind::Missing),
    ] {
        let result = FuseServer::serve(&path, tree(), FuseOptions::default(), &AtomicBool::new(false));
        assert_eq!(result.unwrap_err().kind(), kind, "{}", path.display());
        assert!(!is_mounted(&path));
    }
}

/// A server in a process of its own.
struct Killed {
    child: Child,
    path: PathBuf,
}

impl Killed {
    fn start(path: &Path, file: &Path) -> Self {
        let program = std::env::current_exe().unwrap();
        let examples = program.parent().unwrap().parent().unwrap().join("examples");
        let mut command = Command::new(examples.join("serve_tree"));
        let mut child = command.arg(path).arg(file).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "mounted");
        Self { child, path: path.to_owned() }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        assert!(is_mounted(&self.path), "the dead mount is still there");
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_dead_mount_is_replaced() {
    if !is_possible() || !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("tree"), folder.path().join("file"));
    fs::create_dir(&path).unwrap();
    fs::write(&file, "contents").unwrap();
    let server = Killed::start(&path, &file);
    assert_eq!(fs::read(path.join("file")).unwrap(), b"contents");
    let opened = File::open(path.join("file")).unwrap();
    server.kill();
    assert!(opened.read_at(&mut [0; 1], 0).is_err());
    let mounted = Mounted::start(folder, tree() as Arc<dyn Tree>, FuseOptions::default());
    mounted.wait_for("StaleUnmounted");
    assert_eq!(fs::read(mounted.at("live")).unwrap(), pattern(UNIT));
    mounted.finish();
    assert!(!is_mounted(&path));
    force_away(&path);
}
