//! Opening, reading, writing, truncating and closing files.

use std::os::unix::fs::MetadataExt;

use platter_export::tree::ROOT;

use crate::memory_tree::pattern;
use crate::raw_client::*;
use crate::running_server::RunningServer;

/// Attributes as in `stat`.
pub(crate) struct Attributes {
    pub(crate) version: u32,
    pub(crate) path: u64,
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) length: u64,
    pub(crate) sectors: u64,
    pub(crate) modified: (u64, u64),
}

impl RawClient {
    pub(crate) fn read_attributes(&mut self, fid: u32) -> Attributes {
        let body = self.done(GETATTR, &[Int(fid), Long(0x7ff)]);
        assert_eq!(body.len(), 153);
        let int = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
        assert_eq!(long(0), 0x7ff);
        Attributes {
            version: int(9),
            path: long(13),
            mode: int(21),
            user: int(25),
            length: long(49),
            sectors: long(65),
            modified: (long(89), long(97)),
        }
    }
}

#[test]
fn attributes_show_permissions() {
    let server = RunningServer::new();
    let mut client = server.attach();
    let root = client.read_attributes(0);
    assert_eq!((root.mode, root.length, root.path, root.version), (0o040_755, 0, ROOT, 0));
    let owner = std::fs::metadata(server.path()).unwrap().uid();
    assert_eq!((root.user, root.modified), (owner, (1_700_000_000, 123_000_000)));
    client.walk(0, 1, &["fixed"]);
    let fixed = client.read_attributes(1);
    assert_eq!((fixed.mode, fixed.length, fixed.sectors), (0o100_444, 100_000, 196));
    assert_ne!(fixed.version, 0, "clients may cache it");
    client.walk(0, 2, &["lab", "disk"]);
    let disk = client.read_attributes(2);
    assert_eq!((disk.mode, disk.length), (0o100_644, 3 << 20));
    assert_eq!(disk.version, 0, "clients may not cache it");
}

#[test]
fn reads_return_existing_bytes_up_to_the_message_size() {
    let server = RunningServer::new();
    let mut client = server.attach();
    let opened = client.open(1, &["lab", "disk"], RDONLY);
    assert_eq!(opened[13..], (65_536u32 - 24).to_le_bytes());
    assert_eq!(client.read(1, 12_345, 1000), pattern(12_345, 1000));
    assert_eq!(client.read(1, 0, 0), b"");
    let most = 65_536 - 11;
    assert_eq!(client.read(1, 5, 65_536), pattern(5, most), "as much as fits, whatever was requested");
    assert_eq!(client.read(1, 5, u32::MAX), pattern(5, most));
    assert_eq!(client.read(1, (3 << 20) - 10, 1000), pattern((3 << 20) - 10, 10));
    for offset in [3 << 20, (3 << 20) + 1, u64::MAX] {
        assert_eq!(client.read(1, offset, 1000), b"");
    }
}

#[test]
fn a_small_message_is_never_exceeded() {
    let server = RunningServer::new();
    let mut client = server.connect();
    assert_eq!(client.version(4096), 4096);
    client.attach(0);
    client.open(1, &["lab", "disk"], RDONLY);
    assert_eq!(client.read(1, 0, 8192), pattern(0, 4096 - 11));
    client.open(2, &["lab"], DIRECTORY);
    assert_eq!(client.list(2, 0, 1 << 20).len(), 4);
    assert_eq!(client.version(u32::MAX), 1 << 20, "a large size is reduced to the server's limit");
    client.attach(0);
    client.open(1, &["lab", "disk"], RDONLY);
    assert_eq!(client.read(1, 0, 2 << 20), pattern(0, (1 << 20) - 11));
}

#[test]
fn files_obey_their_access_mode() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.open(1, &["lab", "disk"], RDONLY);
    assert_eq!(client.write(1, 0, b"x").error(), Some(EBADF));
    client.open(2, &["lab", "disk"], WRONLY);
    assert_eq!(client.error(READ, &[Int(2), Long(0), Int(10)]), EBADF);
    assert_eq!(client.write(2, 7, b"written").body, 7u32.to_le_bytes());
    assert_eq!(client.read(1, 7, 7), b"written");
    client.walk(0, 3, &["fixed"]);
    assert_eq!(client.error(LOPEN, &[Int(3), Int(RDWR)]), EPERM);
    assert_eq!(client.error(LOPEN, &[Int(3), Int(3)]), EINVAL);
    assert_eq!(client.error(LOPEN, &[Int(3), Int(DIRECTORY)]), ENOTDIR);
    assert_eq!(client.error(LOPEN, &[Int(0), Int(RDWR)]), EISDIR);
    assert_eq!(client.error(READ, &[Int(3), Long(0), Int(10)]), EBADF, "not open");
    assert_eq!(client.error(FSYNC, &[Int(3), Int(0)]), EBADF, "not open");
    assert_eq!(client.error(LOPEN, &[Int(77), Int(RDONLY)]), EBADF);
    assert_eq!(client.write(2, u64::MAX, b"x").error(), Some(EFBIG));
    assert_eq!(client.write(2, i64::MAX as u64, b"x").error(), Some(EFBIG));
}

#[test]
fn lengths_are_set_with_and_without_opening() {
    let server = RunningServer::new();
    let mut client = server.attach();
    let lab = platter_export::tree::Tree::lookup(&*server.tree, ROOT, "lab").unwrap().id;
    let set = |fid: u32, valid: u32, mode: u32, length: u64| {
        [Int(fid), Int(valid), Int(mode), Int(0), Int(0), Long(length), Raw(&[0; 32])]
    };
    client.walk(0, 1, &["lab", "disk"]);
    client.done(SETATTR, &set(1, 8, 0, 1000));
    assert_eq!(server.tree.contents(lab, "disk").len(), 1000);
    assert_eq!(server.tree.logged(), ["close disk"], "the file opened for this was closed");
    client.open(2, &["lab", "disk"], RDWR);
    client.done(SETATTR, &set(2, 8, 0, 2000));
    assert_eq!(client.read_attributes(2).length, 2000);
    client.open(3, &["lab", "disk"], RDWR | TRUNC);
    assert_eq!(server.tree.contents(lab, "disk").len(), 0);
    // Times are accepted and ignored; permissions and owners cannot change.
    client.done(SETATTR, &set(1, 0x1f0, 0, 0));
    client.done(SETATTR, &set(1, 1, 0o100_644, 0));
    assert_eq!(client.error(SETATTR, &set(1, 1, 0o100_600, 0)), EPERM);
    let other = [Int(1), Int(2), Int(0), Int(12_345), Int(0), Long(0), Raw(&[0; 32])];
    assert_eq!(client.error(SETATTR, &other), EPERM);
    client.walk(0, 4, &["fixed"]);
    assert_eq!(client.error(SETATTR, &set(4, 8, 0, 0)), EPERM);
    assert_eq!(client.error(SETATTR, &set(0, 8, 0, 0)), EISDIR);
    assert_eq!(client.error(SETATTR, &set(1, 8, 0, u64::MAX)), EFBIG);
}

#[test]
fn the_client_learns_whether_its_bytes_were_stored() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.open(1, &["damaged"], RDONLY);
    assert_eq!(client.error(READ, &[Int(1), Long(0), Int(10)]), EIO);
    assert!(server.wait_for("RequestFailed").contains("is damaged"));
    client.open(2, &["full"], RDWR);
    assert_eq!(client.write(2, 0, b"x").error(), Some(ENOSPC));
    client.open(3, &["unclosable"], RDWR);
    assert_eq!(client.write(3, 0, b"x").error(), None);
    assert_eq!(client.error(FSYNC, &[Int(3), Int(1)]), EIO);
    assert_eq!(client.error(CLUNK, &[Int(3)]), EIO);
    assert_eq!(client.error(CLUNK, &[Int(3)]), EBADF, "the fid is removed anyway");
    client.open(4, &["lab", "disk"], RDWR);
    client.write(4, 0, b"x");
    client.done(FSYNC, &[Int(4), Int(0)]);
    client.done(FSYNC, &[Int(4)]);
    client.clunk(4);
    let disk: Vec<String> = server.tree.logged().into_iter().filter(|line| line.ends_with("disk")).collect();
    assert_eq!(disk, ["write disk", "sync disk", "sync disk", "close disk"]);
}

#[test]
fn a_missing_name_causes_no_event() {
    let server = RunningServer::new();
    let mut client = server.attach();
    assert_eq!(client.walk(0, 1, &["nothing"]).error(), Some(ENOENT));
    assert!(!server.events().iter().any(|event| event.contains("RequestFailed")));
}
