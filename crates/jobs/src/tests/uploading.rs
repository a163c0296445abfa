//! Tests of capturing: the version, the amount of sent data, and an origin that loses an upload.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{capture_to, install_from};
use platter_testbed::Origin;
use platter_testbed::{Lab, same};

const KIB: usize = 48 << 10;

#[test]
fn a_capture_sends_what_is_new_and_asks_for_many_blocks_at_once() {
    let lab = Lab::new();
    let (old, new) = (lab.disk("old", KIB, 0), lab.disk("new", KIB, 50));
    let origin = Origin::new(&lab).run(&lab);
    let first = capture_to(lab.afar(), &old, "lab/disk").unwrap();
    let seen = &origin.0.seen;
    let blocks = KIB / 64;
    let needs = seen.needs.swap(0, Ordering::SeqCst);
    assert!(needs < blocks / 4, "{needs} requests about {blocks} blocks");
    seen.upload_bytes.store(0, Ordering::SeqCst);
    let second = capture_to(lab.afar(), &new, "lab/disk").unwrap();
    let asked = seen.needs.load(Ordering::SeqCst) * 300 + blocks * 33;
    let sent = (seen.upload_bytes.load(Ordering::SeqCst) + asked) as u64;
    assert!(second.new_stored_bytes * 8 < first.new_stored_bytes, "most of it was known");
    assert!(sent * 100 < second.new_stored_bytes * 115, "{sent} bytes for {}", second.new_stored_bytes);
    drop(origin);
    for (version, disk) in [("lab/disk@1", &old), ("lab/disk@2", &new)] {
        install_from(lab.here(), version, &lab.path("target")).unwrap();
        assert!(same(disk, &lab.path("target")), "{version}");
        std::fs::remove_file(lab.path("target")).unwrap();
    }
    let other = Lab::new();
    let score = capture_to(other.here(), &old, "x").unwrap().score;
    assert_eq!(score, first.score, "a remote capture has the same score as a local one");
}

#[test]
fn a_lost_upload_starts_again_and_sends_only_the_rest() {
    let lab = Lab::new();
    let disk = lab.disk("disk", KIB, 0);
    let origin = Origin { lose_at: Some(15 << 20), ..Origin::new(&lab) }.run(&lab);
    let report = capture_to(lab.afar(), &disk, "lab/disk").unwrap();
    let seen = &origin.0.seen;
    assert_eq!(seen.uploads.load(Ordering::SeqCst), 2);
    assert!(report.number == 1);
    drop(origin);
    install_from(lab.here(), "lab/disk", &lab.path("target")).unwrap();
    assert!(same(&disk, &lab.path("target")));
}

/// Every second response is lost: before data is sent again, the origin is asked whether it has it.
#[test]
fn truncated_responses_cause_no_second_copy() {
    let lab = Lab::new();
    let disk = lab.disk("disk", KIB, 0);
    let count = AtomicUsize::new(0);
    let spoil = move |path: &str, mut answer: Vec<u8>| {
        if path.contains("/uploads/") && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            answer.truncate(3);
        }
        answer
    };
    let origin = Origin { spoil: Box::new(spoil), ..Origin::new(&lab) }.run(&lab);
    let report = capture_to(lab.afar(), &disk, "lab/disk").unwrap();
    assert_eq!(report.number, 1, "published once, although the response was lost");
    let sent = origin.0.seen.upload_bytes.load(Ordering::SeqCst) as u64;
    assert!(sent < report.new_stored_bytes * 11 / 10, "{sent} bytes for {}", report.new_stored_bytes);
    assert_eq!(origin.0.seen.uploads.load(Ordering::SeqCst), 1);
}
