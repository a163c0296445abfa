//! Common programs for files.

use std::sync::Arc;

use crate::memory::{Done, MemoryFile, MemoryTree, UNIT, pattern};
use crate::mounted::{Mounted, is_possible};

const LENGTH: usize = 3 * (1 << 20) + 4321;

fn tree() -> Arc<MemoryTree> {
    let tree = MemoryTree::new();
    tree.put("fixed.raw", MemoryFile::fixed(pattern(LENGTH), 1));
    tree.put("live.raw", MemoryFile { is_fixed_length: true, ..MemoryFile::of(pattern(LENGTH)) });
    tree.folder("versions", true);
    Arc::new(tree)
}

#[test]
fn listing() {
    if !is_possible() {
        return;
    }
    let tree = tree();
    let mounted = Mounted::of(&tree);
    assert_eq!(mounted.shell("ls"), "fixed.raw\nlive.raw\nversions");
    assert_eq!(
        mounted.shell("stat -c '%n %s %A %h' *"),
        format!("fixed.raw {LENGTH} -r--r--r-- 1\nlive.raw {LENGTH} -rw-r--r-- 1\nversions 0 dr-xr-xr-x 1")
    );
    mounted.shell("mkdir -p a/b/c; for i in $(seq 300); do : > a/b/c/file-number-$i; done");
    assert_eq!(mounted.shell("find . -type f | wc -l"), "302");
    assert_eq!(mounted.shell("find a/.. -maxdepth 1 -samefile . | wc -l"), "1");
    assert_eq!(mounted.shell("ls -lR a | grep -c file-number"), "300");
    assert_eq!(mounted.shell("ls -fa a/b/c | sort | uniq -d"), "");
    assert_eq!(mounted.shell("cd a/b/c && stat -c %i .. && cd .. && stat -c %i .").lines().count(), 2);
    assert_eq!(mounted.shell("stat -f -c '%S %b %f %l' ."), format!("4096 {} {} 255", 100 << 8, 40 << 8));
    assert!(mounted.failure("cat nothing").contains("No such file"));
    assert!(mounted.failure("ln -s a b").contains("not permitted"));
    assert!(mounted.failure("ln live.raw b").contains("not permitted"));
    assert!(mounted.failure("touch $(printf 'x%.0s' $(seq 256))").contains("File name too long"));
    mounted.finish();
}

#[test]
fn copying() {
    if !is_possible() {
        return;
    }
    let tree = tree();
    let mounted = Mounted::of(&tree);
    mounted.shell("cmp fixed.raw live.raw; cp fixed.raw live.raw $T; cmp fixed.raw $T/fixed.raw; cmp live.raw $T/live.raw");
    mounted.shell("cp -p $T/fixed.raw copy; cmp copy fixed.raw; touch -d 2001-01-01 copy; chmod 600 copy");
    assert_eq!(tree.file("copy").contents(), pattern(LENGTH));
    mounted.shell("dd if=fixed.raw of=dd bs=1M conv=fsync status=none; cmp dd fixed.raw");
    let is_read = |done: &Done| matches!(done, Done::Read(..));
    let log: Vec<_> = tree.file("dd").log().into_iter().filter(|done| !is_read(done)).collect();
    assert_eq!(&log[log.len() - 2..], [Done::Sync, Done::Close]);
    assert!(log.contains(&Done::Write(0, 1 << 20)), "written in large requests: {log:?}");
    mounted.shell("printf abc > append; printf def >> append; test $(cat append) = abcdef");
    mounted.shell("printf x > append; test $(cat append) = x");
    mounted.shell("dd if=/dev/zero of=dsync bs=4k count=2 oflag=dsync status=none");
    let log = tree.file("dsync").log();
    assert_eq!(log.iter().filter(|done| **done == Done::Sync).count(), 2, "each write is synced: {log:?}");
    mounted.finish();
}

#[test]
fn copying_reuses_contents() {
    if !is_possible() {
        return;
    }
    let tree = tree();
    let mounted = Mounted::of(&tree);
    mounted.shell("cp --reflink=auto --sparse=never fixed.raw over; cmp over fixed.raw");
    let over = tree.file("over");
    assert!(over.did(|done| *done == Done::TakeOver(0, LENGTH as u64, 0)), "{:?}", over.log());
    assert!(!over.did(|done| matches!(done, Done::Write(..))), "nothing was copied: {:?}", over.log());
    // What cannot be reused is copied by the server.
    mounted.shell("xfs_io -f -c 'copy_range -s 4096 -d 512 -l 2100000 live.raw' part");
    let part = tree.file("part");
    assert_eq!(part.contents()[512..], pattern(LENGTH)[4096..4096 + 2_100_000]);
    assert!(part.did(|done| *done == Done::Write(512, 1 << 20)), "{:?}", part.log());
    mounted.finish();
}

#[test]
fn sparse_copies() {
    if !is_possible() {
        return;
    }
    let tree = tree();
    let mut bytes = pattern(64 * UNIT);
    bytes[8 * UNIT..40 * UNIT].fill(0);
    tree.put("holes", MemoryFile { score: None, ..MemoryFile::of(bytes.clone()) });
    let mounted = Mounted::of(&tree);
    assert_eq!(mounted.shell("stat -c '%s %b' holes"), format!("{} {}", 64 * UNIT, 32 * UNIT / 512));
    mounted.shell("cp --sparse=always holes $T/holes; cmp holes $T/holes; cp --sparse=auto holes $T/auto; cmp holes $T/auto");
    assert_eq!(mounted.shell("stat -c %b $T/auto"), (32 * UNIT / 512).to_string(), "the hole is kept");
    mounted.shell("cp --sparse=always $T/holes back; cmp back holes");
    let back = tree.file("back");
    assert_eq!(back.contents(), bytes);
    let hole = (8 * UNIT) as u64..(40 * UNIT) as u64;
    let is_in_hole = |done: &Done| matches!(done, Done::Write(offset, _) if hole.contains(offset));
    assert!(!back.did(is_in_hole), "nothing was written there: {:?}", back.log());
    mounted.finish();
}

#[test]
fn moving_and_removing() {
    if !is_possible() {
        return;
    }
    let tree = tree();
    let mounted = Mounted::of(&tree);
    mounted.shell("mkdir d e; printf 1 > d/a; mv d/a e/b; test $(cat e/b) = 1; test ! -e d/a");
    mounted.shell("mv e d/e; test $(cat d/e/b) = 1; mv d/e/b d/e/c; test $(cat d/e/c) = 1");
    mounted.shell("printf 2 > d/other");
    assert!(mounted.failure("mv -f d/other d/e/c").contains("File exists"));
    assert!(mounted.failure("rmdir d").contains("not empty"));
    assert!(mounted.failure("mkdir d").contains("File exists"));
    assert!(mounted.failure("mv live.raw versions/x").contains("Read-only"));
    assert!(mounted.failure("touch versions/x").contains("Read-only"));
    assert!(mounted.failure("echo x > fixed.raw").contains("Read-only"));
    assert!(mounted.failure("truncate -s 1 fixed.raw").contains("Read-only"));
    mounted.shell("rm d/other d/e/c; rmdir d/e d");
    assert_eq!(mounted.shell("ls"), "fixed.raw\nlive.raw\nversions");
    mounted.shell("mv live.raw away.raw; cmp away.raw fixed.raw");
    // Truncation by name and at opening.
    mounted.shell("printf 12345678 > t; truncate -s 3 t; test $(cat t) = 123; truncate -s 5000 t; test $(stat -c %s t) = 5000");
    assert_eq!(tree.file("t").contents().len(), 5000);
    assert!(mounted.failure("truncate -s 3 away.raw").contains("not permitted"));
    assert!(
        mounted
            .failure("dd if=/dev/zero of=away.raw bs=1M seek=3 count=1 conv=notrunc status=none")
            .contains("No space")
    );
    mounted.finish();
}
