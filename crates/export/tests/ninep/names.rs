//! Walking, listing, creating, renaming and removing names.

use platter_export::tree::{ROOT, Tree};

use crate::memory_tree::{Fault, MemoryTree};
use crate::raw_client::*;
use crate::running_server::{RunningServer, options};

/// Node numbers in a walk's reply.
fn paths(reply: &Reply) -> Vec<u64> {
    assert_eq!(reply.kind, WALK + 1, "{reply:?}");
    let qids: Vec<&[u8]> = reply.body[2..].chunks(13).collect();
    assert_eq!(usize::from(u16::from_le_bytes([reply.body[0], reply.body[1]])), qids.len());
    qids.iter().map(|qid| u64::from_le_bytes(qid[5..].try_into().unwrap())).collect()
}

fn id(tree: &MemoryTree, path: &str) -> u64 {
    path.split('/').fold(ROOT, |directory, name| tree.lookup(directory, name).unwrap().id)
}

#[test]
fn walks_return_every_node_on_the_way() {
    let server = RunningServer::new();
    let (lab, disk) = (id(&server.tree, "lab"), id(&server.tree, "lab/disk"));
    let mut client = server.attach();
    assert_eq!(paths(&client.walk(0, 1, &["lab", "disk"])), [lab, disk]);
    assert_eq!(paths(&client.walk(1, 2, &[])), [] as [u64; 0], "a copy");
    assert_eq!(client.read_attributes(2).path, disk);
    // In place.
    assert_eq!(paths(&client.walk(0, 3, &["lab"])), [lab]);
    assert_eq!(paths(&client.walk(3, 3, &["disk"])), [disk]);
    assert_eq!(client.read_attributes(3).path, disk);
    // Sixteen names.
    let names = ["lab", ".."].repeat(8);
    assert_eq!(paths(&client.walk(0, 4, &names)), [lab, ROOT].repeat(8));
}

#[test]
fn a_partial_walk_creates_no_fid() {
    let server = RunningServer::new();
    let mut client = server.attach();
    assert_eq!(client.walk(0, 1, &["nothing", "disk"]).error(), Some(ENOENT));
    assert_eq!(paths(&client.walk(0, 1, &["lab", "nothing", "disk"])), [id(&server.tree, "lab")]);
    assert_eq!(client.error(CLUNK, &[Int(1)]), EBADF);
    // Through a file.
    assert_eq!(paths(&client.walk(0, 1, &["fixed", "more"])).len(), 1);
    assert_eq!(client.error(CLUNK, &[Int(1)]), EBADF);
    assert_eq!(paths(&client.walk(0, 2, &["fixed"])).len(), 1);
    assert_eq!(client.walk(2, 3, &["more"]).error(), Some(ENOTDIR));
    assert_eq!(client.walk(2, 3, &[".."]).error(), Some(ENOTDIR));
    // A partial walk in place leaves the fid unchanged.
    assert_eq!(paths(&client.walk(0, 4, &["lab"])).len(), 1);
    assert_eq!(paths(&client.walk(4, 4, &["empty", "nothing"])).len(), 1);
    assert_eq!(client.read_attributes(4).path, id(&server.tree, "lab"));
}

#[test]
fn no_walk_leads_above_the_root() {
    let server = RunningServer::new();
    let mut client = server.attach();
    assert_eq!(
        paths(&client.walk(0, 1, &["..", "..", "lab", "..", ".."])),
        [ROOT, ROOT, id(&server.tree, "lab"), ROOT, ROOT]
    );
    // Nor above the attached directory.
    let lab = id(&server.tree, "lab");
    client.done(ATTACH, &[Int(5), Int(NO_FID), Text("root"), Text("/lab"), Int(0)]);
    assert_eq!(
        paths(&client.walk(5, 6, &["..", "empty", "..", ".."])),
        [lab, id(&server.tree, "lab/empty"), lab, lab]
    );
    client.done(LOPEN, &[Int(6), Int(DIRECTORY)]);
    let names: Vec<String> = client.list(6, 0, 1000).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [".", "..", "disk", "empty"]);
    assert_eq!(client.error(ATTACH, &[Int(7), Int(NO_FID), Text(""), Text("none"), Int(0)]), ENOENT);
    assert_eq!(client.error(ATTACH, &[Int(7), Int(NO_FID), Text(""), Text("fixed"), Int(0)]), ENOTDIR);
    assert_eq!(client.error(ATTACH, &[Int(7), Int(3), Text(""), Text(""), Int(0)]), EBADF);
}

#[test]
fn names_that_no_node_can_have_are_refused() {
    let server = RunningServer::new();
    let mut client = server.attach();
    let long = "x".repeat(256);
    for (name, error) in
        [("", EINVAL), (".", EINVAL), ("a/b", EINVAL), ("a\0b", EINVAL), (long.as_str(), ENAMETOOLONG)]
    {
        assert_eq!(client.walk(0, 1, &[name]).error(), Some(error), "{name:?}");
        assert_eq!(client.error(MKDIR, &[Int(0), Text(name), Int(0o755), Int(0)]), error);
        assert_eq!(client.error(UNLINKAT, &[Int(0), Text(name), Int(0)]), error);
    }
    assert_eq!(client.error(MKDIR, &[Int(0), Text(".."), Int(0o755), Int(0)]), EINVAL);
    assert_eq!(client.error(WALK, &[Int(0), Int(1), Short(1), Short(2), Raw(&[0xff, 0xfe])]), EILSEQ);
}

#[test]
fn a_fid_is_created_once_and_removed_once() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.walk(0, 1, &["lab"]);
    assert_eq!(client.walk(0, 1, &["fixed"]).error(), Some(EBADF), "taken");
    assert_eq!(client.walk(0, NO_FID, &["fixed"]).error(), Some(EBADF));
    assert_eq!(client.error(ATTACH, &[Int(1), Int(NO_FID), Text(""), Text(""), Int(0)]), EBADF);
    client.clunk(1);
    assert_eq!(client.error(CLUNK, &[Int(1)]), EBADF);
    assert_eq!(client.walk(1, 2, &[]).error(), Some(EBADF));
    assert_eq!(client.walk(0, 1, &["fixed"]).error(), None);
    client.done(LOPEN, &[Int(1), Int(RDONLY)]);
    assert_eq!(client.error(LOPEN, &[Int(1), Int(RDONLY)]), EBADF, "open already");
    assert_eq!(client.walk(1, 1, &[]).error(), Some(EBADF), "open already");
}

#[test]
fn a_client_can_have_ten_thousand_fids_up_to_the_limit() {
    let server = RunningServer::with(platter_export::ninep::NinepOptions { fids_max: 10_000, ..options() });
    let mut client = server.attach();
    for fid in 1..10_000 {
        assert_eq!(client.walk(0, fid, &["lab"]).error(), None, "{fid}");
    }
    assert_eq!(client.walk(0, 10_000, &["lab"]).error(), Some(EMFILE));
    client.clunk(77);
    assert_eq!(client.walk(0, 10_000, &["lab"]).error(), None);
    // Another client has its own limit.
    assert_eq!(server.attach().walk(0, 1, &["lab"]).error(), None);
}

#[test]
fn the_number_of_open_directories_is_limited() {
    let server = RunningServer::new();
    let mut client = server.attach();
    for fid in 1..=256 {
        client.open(fid, &["lab"], DIRECTORY);
    }
    client.walk(0, 257, &["lab"]);
    assert_eq!(client.error(LOPEN, &[Int(257), Int(DIRECTORY)]), EMFILE);
    client.clunk(3);
    client.done(LOPEN, &[Int(257), Int(DIRECTORY)]);
}

#[test]
fn a_directory_read_in_pieces_shows_its_initial_contents() {
    let server = RunningServer::new();
    let lab = id(&server.tree, "lab");
    for n in 0..100 {
        server.tree.add(lab, &format!("file-{n:03}"), 10, Fault::None, false);
    }
    let mut client = server.attach();
    client.open(1, &["lab"], DIRECTORY);
    let (mut names, mut offset) = (Vec::new(), 0);
    loop {
        let entries = client.list(1, offset, 300);
        // A name that is added meanwhile neither shifts the others nor appears.
        server.tree.add(lab, &format!("aaa-{offset}"), 10, Fault::None, false);
        let Some((_, next)) = entries.last() else { break };
        offset = *next;
        names.extend(entries.into_iter().map(|(name, _)| name));
    }
    let mut expected = vec![".".to_owned(), "..".to_owned(), "disk".to_owned(), "empty".to_owned()];
    expected.extend((0..100).map(|n| format!("file-{n:03}")));
    assert_eq!(names, expected);
    // Reading from offset 0 reads the current names.
    assert_eq!(client.list(1, 0, 300)[2].0, "aaa-0");
    assert_eq!(client.error(READDIR, &[Int(1), Long(0), Int(20)]), EINVAL, "too short for any name");
    assert_eq!(client.list(1, u64::MAX, 300), []);
    assert_eq!(client.error(READ, &[Int(1), Long(0), Int(20)]), EISDIR);
    client.open(2, &["fixed"], RDONLY);
    assert_eq!(client.error(READDIR, &[Int(2), Long(0), Int(300)]), EBADF);
    assert_eq!(client.error(READDIR, &[Int(0), Long(0), Int(300)]), EBADF, "not open");
}

#[test]
fn names_are_created_renamed_and_removed() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.done(MKDIR, &[Int(0), Text("new"), Int(0o755), Int(0)]);
    assert_eq!(client.error(MKDIR, &[Int(0), Text("new"), Int(0o755), Int(0)]), EEXIST);
    client.walk(0, 1, &["new"]);
    client.walk(1, 2, &[]);
    client.done(LCREATE, &[Int(2), Text("file"), Int(RDWR | EXCL), Int(0o644), Int(0)]);
    assert_eq!(client.write(2, 0, b"hello").body, 5u32.to_le_bytes());
    client.walk(1, 3, &[]);
    let again = [Int(3), Text("file"), Int(RDWR | EXCL), Int(0o644), Int(0)];
    assert_eq!(client.error(LCREATE, &again), EEXIST);
    client.done(LCREATE, &[Int(3), Text("file"), Int(RDONLY), Int(0o644), Int(0)]);
    assert_eq!(client.read(3, 0, 100), b"hello");
    assert_eq!(client.error(LCREATE, &[Int(3), Text("x"), Int(0), Int(0), Int(0)]), ENOTDIR);
    assert_eq!(client.error(UNLINKAT, &[Int(0), Text("new"), Int(0)]), EISDIR);
    assert_eq!(client.error(UNLINKAT, &[Int(1), Text("file"), Int(0x200)]), ENOTDIR);
    assert_eq!(client.error(UNLINKAT, &[Int(0), Text("new"), Int(0x200)]), ENOTEMPTY);
    assert_eq!(client.error(UNLINKAT, &[Int(0), Text("none"), Int(0)]), ENOENT);
    client.done(RENAMEAT, &[Int(1), Text("file"), Int(0), Text("moved")]);
    assert_eq!(client.error(RENAMEAT, &[Int(0), Text("moved"), Int(0), Text("fixed")]), EEXIST);
    assert_eq!(client.error(RENAMEAT, &[Int(0), Text("none"), Int(0), Text("other")]), ENOENT);
    assert_eq!(client.read(2, 0, 100), b"hello", "it is still open");
    client.done(UNLINKAT, &[Int(0), Text("moved"), Int(0)]);
    client.done(UNLINKAT, &[Int(0), Text("new"), Int(0x200)]);
    assert_eq!(client.walk(0, 9, &["new"]).error(), Some(ENOENT));
}

#[test]
fn rename_and_remove_by_fid() {
    let server = RunningServer::new();
    let mut client = server.attach();
    client.walk(0, 1, &["lab", "disk"]);
    client.done(RENAME, &[Int(1), Int(0), Text("moved")]);
    assert_eq!(client.walk(0, 2, &["moved"]).error(), None);
    client.done(RENAME, &[Int(1), Int(0), Text("again")]);
    assert_eq!(client.error(RENAME, &[Int(1), Int(0), Text("fixed")]), EEXIST);
    client.done(REMOVE, &[Int(1)]);
    assert_eq!(client.error(CLUNK, &[Int(1)]), EBADF, "removing ends the fid");
    assert_eq!(client.walk(0, 3, &["again"]).error(), Some(ENOENT));
    // Even when removing fails.
    client.walk(0, 4, &[]);
    assert_eq!(client.error(REMOVE, &[Int(4)]), EBUSY);
    assert_eq!(client.error(CLUNK, &[Int(4)]), EBADF);
    client.walk(0, 5, &["lab"]);
    assert_eq!(client.error(REMOVE, &[Int(5)]), ENOTEMPTY);
    client.walk(0, 6, &["lab", "empty"]);
    client.done(REMOVE, &[Int(6)]);
}

#[test]
fn unsupported_requests_get_an_error() {
    let server = RunningServer::new();
    let mut client = server.attach();
    assert_eq!(client.error(AUTH, &[Int(9), Text("root"), Text(""), Int(0)]), ENOENT);
    assert_eq!(client.error(READLINK, &[Int(0)]), EOPNOTSUPP);
    assert_eq!(client.error(SYMLINK, &[Int(0), Text("a"), Text("b"), Int(0)]), EOPNOTSUPP);
    assert_eq!(client.error(XATTRWALK, &[Int(0), Int(1), Text("security.capability")]), EOPNOTSUPP);
    assert_eq!(client.error(200, &[]), EOPNOTSUPP);
    let lock = [Int(0), Byte(1), Int(0), Long(0), Long(0), Int(1), Text("host")];
    assert_eq!(client.done(LOCK, &lock), [0]);
    let get = [Int(0), Byte(1), Long(5), Long(6), Int(7), Text("host")];
    let nobody = message(0, 0, &[Byte(2), Long(5), Long(6), Int(7), Text("host")]);
    assert_eq!(client.done(GETLOCK, &get), nobody[7..]);
    let room = client.done(STATFS, &[Int(0)]);
    let expected = message(
        0,
        0,
        &[
            Int(0x0102_1997),
            Int(4096),
            Long(1 << 18),
            Long(1 << 17),
            Long(1 << 17),
            Long(0),
            Long(0),
            Long(0),
            Int(255),
        ],
    );
    assert_eq!(room, expected[7..]);
    assert_eq!(client.error(STATFS, &[Int(9)]), EBADF);
}

/// A tree that is served read-only is never asked for a change, whatever the request.
#[test]
fn nothing_changes_in_a_tree_that_is_read_only() {
    const EROFS: u32 = 30;
    let server = RunningServer::read_only();
    let mut client = server.attach();
    for (fid, path) in [(1, "lab"), (2, "lab/disk"), (3, "lab/disk"), (4, "lab/empty")] {
        client.walk(0, fid, &path.split('/').collect::<Vec<_>>());
    }
    let set = |valid| vec![Int(2), Int(valid), Int(0), Int(0), Int(0), Long(0), Raw(&[0; 32])];
    let changes: Vec<(u8, Vec<Field<'_>>)> = vec![
        (LOPEN, vec![Int(2), Int(1)]),
        (LOPEN, vec![Int(2), Int(2)]),
        (LCREATE, vec![Int(1), Text("new"), Int(0o101), Int(0o644), Int(0)]),
        (SETATTR, set(1)),
        (SETATTR, set(8)),
        (MKDIR, vec![Int(1), Text("new"), Int(0o755), Int(0)]),
        (RENAME, vec![Int(2), Int(0), Text("moved")]),
        (RENAMEAT, vec![Int(1), Text("disk"), Int(0), Text("moved")]),
        (UNLINKAT, vec![Int(1), Text("disk"), Int(0)]),
        (UNLINKAT, vec![Int(1), Text("empty"), Int(0x200)]),
        (REMOVE, vec![Int(3)]),
    ];
    for (kind, fields) in changes {
        assert_eq!(client.error(kind, &fields), EROFS, "{kind}");
    }
    assert!(server.tree.lookup(id(&server.tree, "lab"), "disk").is_ok());
    assert_eq!(server.tree.logged(), [] as [String; 0], "no file was opened, written or closed");
}
