//! Tests of files written to `import`.

use std::path::PathBuf;

use super::*;

#[test]
fn a_written_file_becomes_a_version() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "lab/old", &disk(1));
    lab.import("import/lab/new.raw", &disk(4)).unwrap();
    assert_eq!(lab.contents("lab/new/1.raw"), disk(4));
    assert_eq!(lab.newest("lab/new").record.source, "import/lab/new.raw");
    lab.import("import/lab/old", &disk(5)).unwrap();
    assert_eq!(lab.contents("lab/old/2.raw"), disk(5));
    lab.make("import/far").unwrap();
    lab.import("import/far/away.raw", &disk(6)).unwrap();
    assert_eq!(lab.contents("far/away/latest.raw"), disk(6));
    assert_eq!(lab.names("import/far"), [""; 0]);
    lab.remove_directory("import/far").unwrap();
    assert_eq!(kind(lab.remove_directory("import/lab")), ErrorKind::Refused);
    assert_eq!(std::fs::read_dir(lab.place.dir().join("spool")).unwrap().count(), 0);
}

#[test]
fn a_file_is_in_import_while_it_is_open() {
    let lab = Lab::new();
    let one = lab.create("import/a.raw").unwrap();
    let two = lab.open("import/a.raw", Access::ReadWrite).unwrap();
    for name in ["import/a.raw", "import/a"] {
        assert_eq!(kind(lab.create(name)), ErrorKind::Refused);
    }
    one.write(&disk(1), 0).unwrap();
    assert_eq!(contents(&*two), disk(1));
    one.close().unwrap();
    assert_eq!(lab.names("import"), ["a.raw"]);
    two.close().unwrap();
    assert_eq!(lab.newest("a").name.number, 1, "closed again, and nothing was written");
    two.write(&[9; 512], 0).unwrap();
    two.close().unwrap();
    assert_eq!(lab.newest("a").name.number, 2);
    drop(one);
    assert_eq!(lab.names("import"), ["a.raw"]);
    drop(two);
    assert_eq!(lab.names("import"), [""; 0]);
    assert_eq!(kind(lab.node("import/a.raw")), ErrorKind::Missing);
    drop(lab.create("import/b.raw").unwrap());
    assert_eq!(lab.names(""), ["a", "by-date", "import"], "an unwritten file becomes no version");
}

/// The kernel writes to the file directly.
#[test]
fn the_file_tells_whether_it_was_written() {
    let lab = Lab::new();
    let file = lab.create("import/a.raw").unwrap();
    let kernel = std::fs::File::from(
        file.backing().map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap()).unwrap(),
    );
    file.close().unwrap();
    assert_eq!(kind(lab.node("a")), ErrorKind::Missing, "nothing was written");
    kernel.write_all_at(&disk(1), 0).unwrap();
    file.close().unwrap();
    assert_eq!(lab.contents("a/1.raw"), disk(1));
    kernel.write_all_at(&[7; 512], 0).unwrap();
    file.close().unwrap();
    assert_eq!(lab.newest("a").name.number, 2);
}

#[test]
fn a_failed_capture_is_reported_at_closing() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    let store = Store::open_reader(&lab.place).unwrap();
    let file = lab.create("import/a.raw").unwrap();
    file.write(&disk(2), 0).unwrap();
    let edit_lock = store.take_edit_lock(&"a".parse().unwrap(), "somebody", 1).unwrap();
    let error = file.close().unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("import/a.raw"), "{error}");
    assert_eq!(lab.newest("a").name.number, 1);
    let error = lab.create("import/a").map(drop).unwrap_err();
    assert!(error.to_string().contains("imported already"), "{error}");
    store.release_edit_lock(&edit_lock).unwrap();
    file.close().unwrap();
    assert_eq!(lab.newest("a").name.number, 2, "the retry succeeds");
    drop(file);
    store.take_edit_lock(&"a".parse().unwrap(), "somebody", 1).unwrap();
    assert!(lab.create("import/a").map(drop).unwrap_err().to_string().contains("somebody"));
}

#[test]
fn invalid_image_names_are_refused() {
    let lab = Lab::new();
    for name in ["A", ".a.swp", "a b", "é", "x.score", "x.raw.raw", "import", "by-date.raw", &"a".repeat(64)]
    {
        assert_eq!(kind(lab.create(&format!("import/{name}"))), ErrorKind::Refused, "{name}");
    }
    for name in ["A", "x.raw", "x.score", "import", "a b"] {
        assert_eq!(kind(lab.make(name)), ErrorKind::Refused, "{name}");
        assert_eq!(kind(lab.make(&format!("import/{name}"))), ErrorKind::Refused, "{name}");
    }
    assert_eq!(kind(lab.create("x")), ErrorKind::Refused);
    lab.make("lab").unwrap();
    assert_eq!(kind(lab.create("lab/x.raw")), ErrorKind::Refused);
}

/// Copies like `cp`: each range of data at its position, then the length.
fn take_over(source: &dyn OpenFile, target: &dyn OpenFile) {
    let mut runs = Vec::new();
    let whole = Extent::new(0, source.length());
    source
        .extents(whole, &mut |run, allocation| {
            runs.extend((allocation == Allocation::Data).then_some(run));
            true
        })
        .unwrap();
    for run in runs {
        assert!(target.take_over(source, run, run.offset).unwrap());
    }
    target.set_length(source.length()).unwrap();
}

#[test]
fn a_copy_of_a_version_is_a_clone() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    let source = lab.open("a/1.raw", Access::Read).unwrap();
    for is_backing in [false, true] {
        let target = lab.create("import/b.raw").unwrap();
        assert!(!is_backing || target.backing().is_some());
        take_over(&*source, &*target);
        target.close().unwrap();
        target.close().unwrap();
    }
    let clone = lab.newest("b").record;
    assert_eq!((clone.number, Some(clone.score)), (2, source.score()));
    assert_eq!(clone.cloned_from.unwrap().to_string(), "a@1");
    assert_eq!(lab.contents("b/latest.raw"), disk(1));
}

/// A version to copy from, and another one.
struct Copies {
    lab: Lab,
    source: Arc<dyn OpenFile>,
    other: Arc<dyn OpenFile>,
}

/// The last data of [`disk`].
const LAST: Extent = Extent::new((1 << 20) - 8192, 8192);
/// The first data of [`disk`], and zeros after it.
const FIRST: Extent = Extent::new(0, 73_728);

impl Copies {
    fn new() -> Self {
        let lab = Lab::new();
        capture_bytes(&lab.place, "a", &disk(1));
        capture_bytes(&lab.place, "a", &disk(2));
        let [source, other] = ["a/1.raw", "a/2.raw"].map(|path| lab.open(path, Access::Read).unwrap());
        Self { lab, source, other }
    }

    /// Checks that the file written by `act` is imported with the expected bytes.
    fn check(&self, act: impl Fn(&dyn OpenFile), expected: &[u8]) {
        let file = self.lab.create("import/b.raw").unwrap();
        act(&*file);
        file.close().unwrap();
        assert!(self.lab.contents("b/latest.raw") == expected);
        assert_eq!(self.lab.newest("b").record.cloned_from, None);
    }

    fn take(&self, file: &dyn OpenFile, range: Extent) -> bool {
        file.take_over(&*self.source, range, range.offset).unwrap()
    }
}

fn changed(at: std::ops::Range<usize>, byte: u8) -> Vec<u8> {
    let mut bytes = disk(1);
    bytes[at].fill(byte);
    bytes
}

#[test]
fn a_modified_copy_is_not_a_clone() {
    let copies = Copies::new();
    let copy = |file: &dyn OpenFile| take_over(&*copies.source, file);
    let write_one = |file: &dyn OpenFile| {
        copy(file);
        file.write(&[8], 5).unwrap();
    };
    copies.check(write_one, &changed(5..6, 8));
    let write_zeroes = |file: &dyn OpenFile| {
        copy(file);
        file.write_zeroes(Extent::new(0, 512)).unwrap();
    };
    copies.check(write_zeroes, &changed(0..512, 0));
    let write_first = |file: &dyn OpenFile| {
        file.write(&[8], 5).unwrap();
        assert!(!copies.take(file, LAST));
        file.write(&[1; 8192], LAST.offset).unwrap();
    };
    let mut expected = changed(0..70_000, 0);
    expected[5] = 8;
    copies.check(write_first, &expected);
}

#[test]
fn a_partial_copy_is_not_a_clone() {
    let copies = Copies::new();
    let take_first = |file: &dyn OpenFile| {
        assert!(copies.take(file, FIRST));
        file.set_length(1 << 20).unwrap();
    };
    copies.check(take_first, &disk(0));
    for length in [(1 << 20) - 512, (1 << 20) + 512] {
        let resize = |file: &dyn OpenFile| {
            take_over(&*copies.source, file);
            file.set_length(length).unwrap();
        };
        let mut expected = disk(1);
        expected.resize(length as usize, 0);
        copies.check(resize, &expected);
    }
}

#[test]
fn a_copy_of_two_versions_or_to_another_offset_is_not_a_clone() {
    let copies = Copies::new();
    let mix = |file: &dyn OpenFile| {
        assert!(copies.take(file, FIRST));
        assert!(!file.take_over(&*copies.other, LAST, LAST.offset).unwrap());
        file.write(&[2; 8192], LAST.offset).unwrap();
    };
    copies.check(mix, &disk(2));
    let misplace = |file: &dyn OpenFile| {
        assert!(!file.take_over(&*copies.source, LAST, 0).unwrap());
        take_over(&*copies.source, file);
        file.write(&[8], 6).unwrap();
    };
    copies.check(misplace, &changed(6..7, 8));
}

#[test]
fn a_copy_can_be_read() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    let source = lab.open("a/1.raw", Access::Read).unwrap();
    let target = lab.create("import/b.raw").unwrap();
    take_over(&*source, &*target);
    assert_eq!(lab.contents("import/b.raw"), disk(1));
    target.close().unwrap();
    assert_eq!(lab.newest("b").record.cloned_from, None);
    assert_eq!(lab.newest("b").record.score, source.score().unwrap(), "still the same disk");
}

/// The kernel wrote into a copied range: the intended bytes are unknown, so nothing is published.
#[test]
fn writes_of_the_kernel_over_a_copy_are_not_guessed() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    let source = lab.open("a/1.raw", Access::Read).unwrap();
    let write = |image: &str, offset| {
        let target = lab.create(&format!("import/{image}.raw")).unwrap();
        let kernel = std::fs::File::from(target.backing().unwrap().try_clone_to_owned().unwrap());
        take_over(&*source, &*target);
        kernel.write_all_at(&[8], offset).unwrap();
        target.close()
    };
    assert_eq!(kind(write("b", 5)), ErrorKind::Refused);
    assert_eq!(kind(write("d", 70_500)), ErrorKind::Refused, "beside it, in the same page");
    write("c", 300_000).unwrap();
    let mut beside = disk(1);
    beside[300_000] = 8;
    assert!(lab.contents("c/1.raw") == beside, "writes beside the copy are known");
}

/// Many threads write one file while many read versions.
#[test]
fn many_threads_at_once() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let lab = &lab;
            scope.spawn(move || {
                for round in 0..4_u8 {
                    let image = format!("t{thread}");
                    lab.import(&format!("import/{image}"), &disk(10 * thread + round + 10)).unwrap();
                    assert!(lab.contents(&format!("{image}/latest.raw")) == disk(10 * thread + round + 10));
                    lab.names(&image);
                    assert!(lab.contents("a/1.raw") == disk(1));
                }
            });
        }
        let file = lab.create("import/shared").unwrap();
        let file = &*file;
        std::thread::scope(|scope| {
            for part in 0..8_u64 {
                scope.spawn(move || file.write(&[part as u8 + 1; 65_536], part * 65_536).unwrap());
            }
        });
        file.close().unwrap();
    });
    let expected: Vec<u8> = (1..9).flat_map(|part| [part; 65_536]).collect();
    assert!(lab.contents("shared/1.raw") == expected);
}

/// What was copied before a failure is not taken for something that the kernel wrote.
#[test]
fn closing_succeeds_after_a_copy_that_failed_once() {
    let lab = Lab::new();
    let mut word = 1_u64;
    let next = |_| {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (word >> 56) as u8
    };
    let bytes: Vec<u8> = (0..6 << 20).map(next).collect();
    capture_bytes(&lab.place, "a", &bytes);
    let list = |dir: PathBuf| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let packs = list(lab.place.dir().join("packs")).flat_map(list);
    let pack = packs.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let stored = std::fs::read(&pack).unwrap();
    let source = lab.open("a/1.raw", Access::Read).unwrap();
    let target = lab.create("import/b.raw").unwrap();
    assert!(target.backing().is_some());
    take_over(&*source, &*target);
    target.set_length((6 << 20) + 512).unwrap();
    let mut damaged = stored.clone();
    damaged[stored.len() / 4 * 3..][..1000].fill(0);
    std::fs::write(&pack, damaged).unwrap();
    assert!(target.close().is_err());
    std::fs::write(&pack, stored).unwrap();
    target.close().unwrap();
    assert!(lab.contents("b/1.raw")[..6 << 20] == bytes);
}
