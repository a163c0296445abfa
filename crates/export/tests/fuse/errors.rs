//! Errors: the calling process gets an error number, and the server's operator gets the details.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_image::Extent;

use crate::memory::{MemoryFile, MemoryTree, UNIT, pattern};
use crate::mounted::{Mounted, is_possible};

#[test]
fn a_damaged_place() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let bad = || [Extent::new(1 << 20, 512)].into_iter().collect();
    tree.put("live", MemoryFile { bad: bad(), ..MemoryFile::of(pattern(3 << 20)) });
    tree.put("fixed", MemoryFile { bad: bad(), ..MemoryFile::fixed(pattern(3 << 20), 6) });
    let mounted = Mounted::of(&tree);
    for name in ["live", "fixed"] {
        let file = File::open(mounted.at(name)).unwrap();
        let mut buffer = vec![0; UNIT];
        let error = file.read_exact_at(&mut buffer, 1 << 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}");
        file.read_exact_at(&mut buffer, 2 << 20).unwrap();
        assert_eq!(buffer, pattern(3 << 20)[2 << 20..][..UNIT], "{name}: other places are readable");
    }
    let event = mounted.wait_for("RequestFailed");
    assert!(event.contains("range: Some(Extent { offset: 1048576, length: 4096 })"), "{event}");
    assert!(event.contains("node: 2") && event.contains("bad at 1048576"), "{event}");
    let file = OpenOptions::new().write(true).open(mounted.at("live")).unwrap();
    let error = file.write_all_at(&[1; UNIT], 1 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    file.write_all_at(&[1; UNIT], 0).unwrap();
    drop(file);
    mounted.finish();
}

#[test]
fn closing_reports_a_failed_import() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    let mounted = Mounted::of(&tree);
    mounted.shell("printf x > good");
    tree.file("good").is_spoilt.store(true, Ordering::Relaxed);
    // A program that only read gets no error.
    mounted.shell("cat good");
    let said = mounted.failure("dd if=/dev/zero of=good count=1 status=none");
    assert!(said.contains("Input/output error"), "{said}");
    assert!(mounted.wait_for("RequestFailed").contains("what was written is no image"));
    mounted.finish();
}

#[test]
fn a_read_only_file_cannot_be_written() {
    if !is_possible() {
        return;
    }
    let tree = Arc::new(MemoryTree::new());
    tree.put("live", MemoryFile::of(pattern(UNIT)));
    let mounted = Mounted::of(&tree);
    let file = File::open(mounted.at("live")).unwrap();
    assert_eq!(file.write_at(&[1], 0).unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert_eq!(tree.file("live").contents(), pattern(UNIT));
    drop(file);
    mounted.finish();
}
