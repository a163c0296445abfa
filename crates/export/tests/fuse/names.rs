//! Names: long directories read while they change, flags of renaming, names that are not UTF-8.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use platter_export::tree::{ROOT, Tree};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::memory::MemoryTree;
use crate::mounted::{Mounted, is_possible};

#[test]
fn a_long_directory_that_changes_while_it_is_read() {
    if !is_possible() {
        return;
    }
    const NAMES: usize = 5000;
    let tree = Arc::new(MemoryTree::new());
    let folder = tree.folder("many", false);
    for number in 0..NAMES {
        tree.make_directory(folder, &format!("a-name-that-is-not-short-{number:05}")).unwrap();
    }
    let mounted = Mounted::of(&tree);
    let mut names = fs::read_dir(mounted.at("many")).unwrap();
    let mut seen = BTreeSet::from([names.next().unwrap().unwrap().file_name()]);
    // Each name that existed before and after is listed once.
    for number in (0..NAMES).step_by(2) {
        tree.remove_directory(folder, &format!("a-name-that-is-not-short-{number:05}")).unwrap();
    }
    for name in names {
        assert!(seen.insert(name.unwrap().file_name()));
    }
    assert_eq!(seen.len(), NAMES);
    assert_eq!(fs::read_dir(mounted.at("many")).unwrap().count(), NAMES / 2, "then the remaining names");
    mounted.finish();
}

#[test]
fn flags_of_renaming() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let mounted = Mounted::of(&tree);
    mounted.shell("touch a b");
    let rename = |flags, to| renameat_with(CWD, mounted.at("a"), CWD, mounted.at(to), flags);
    assert_eq!(rename(RenameFlags::EXCHANGE, "b"), Err(Errno::INVAL));
    assert_eq!(rename(RenameFlags::NOREPLACE, "b"), Err(Errno::EXIST));
    assert_eq!(rename(RenameFlags::empty(), "b"), Err(Errno::EXIST));
    rename(RenameFlags::NOREPLACE, "c").unwrap();
    assert_eq!(mounted.shell("ls"), "b\nc");
    mounted.finish();
}

#[test]
fn names_that_are_not_utf8() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let mounted = Mounted::of(&tree);
    let name = mounted.path().join(OsStr::from_bytes(b"\xff\xfe"));
    assert_eq!(fs::metadata(&name).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert_eq!(fs::write(&name, "").unwrap_err().raw_os_error(), Some(libc::EILSEQ));
    fs::write(mounted.at("smörgås – ☃"), "").unwrap();
    assert!(tree.lookup(ROOT, "smörgås – ☃").is_ok());
    mounted.finish();
}
