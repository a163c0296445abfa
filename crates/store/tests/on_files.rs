//! Tests a store on real files: readers beside a writer, one writer at a time, checks, and the golden store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "accesses the store's files directly")]

mod disks;

use std::fs::{Permissions, metadata, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use disks::contents;
use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Child, Entry, State, encode_leaf};
use platter_image::recipe::{CutPolicy, Root};
use platter_image::{BlockId, Domain, ErrorKind, Extent, FrameAddress, FrameIndex, FrameStore, Kind, Score};
use platter_records::{ImageName, NumberChoice, VersionRecord};
use platter_store::{CheckOptions, Exposure, Session, Severity, Store, StorePlace, Verdict, rebuild};

/// Adds a disk that consists of the blocks `numbers`. Returns its score and length.
fn add_disk(session: &Session, numbers: &[u8]) -> (Score, u64) {
    let (score, length, _) = disks::add_disk(session, numbers);
    (score, length)
}

fn draft(image: &str, (score, disk_length): (Score, u64)) -> VersionRecord {
    let mut draft = VersionRecord::draft(image.parse().unwrap(), score, 1_700_000_000_000);
    draft.disk_length = disk_length;
    draft
}

fn new_store() -> (tempfile::TempDir, StorePlace) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("above/store"));
    Store::init(&place).unwrap();
    (folder, place)
}

fn verdict(store: &Store) -> Verdict {
    store.check(CheckOptions { read_data: true, ..Default::default() }, &mut |_| {}).unwrap().verdict
}

#[test]
fn an_open_reader_sees_what_is_published() {
    let (_folder, place) = new_store();
    let reader = Store::open_reader(&place).unwrap();
    assert!(reader.images().unwrap().is_empty());
    assert_eq!(reader.session().unwrap_err().kind(), ErrorKind::Refused);
    let writer = Store::open_writer(&place).unwrap();
    let session = writer.session().unwrap();
    let disk = add_disk(&session, &[1, 2, 3]);
    let block = BlockId::of(Kind::Data, &contents(2));
    assert!(session.locate(&block).unwrap().is_some(), "its own session finds it at once");
    for other in [&reader, &writer] {
        assert!(other.locate(&block).unwrap().is_none(), "others do not find it yet");
    }
    assert!(
        writer.session().unwrap().lookup_and_pin(&block).unwrap().is_some(),
        "another session relies on it"
    );
    let version = session.publish(draft("lab/debian12", disk)).unwrap();
    assert_eq!(version.name.to_string(), "lab/debian12@1");
    for store in [&reader, &writer] {
        assert_eq!(store.resolve("lab/debian12").unwrap().version.unwrap(), version);
        assert_eq!(store.resolve("lab/debian12@1").unwrap().score, disk.0);
        assert_eq!(store.resolve(&disk.0.to_string()).unwrap().version.unwrap(), version);
        assert_eq!(store.read_block(Kind::Data, &block).unwrap(), contents(2));
        assert_eq!(verdict(store), Verdict::Clean);
    }
}

/// A recipe that refers past the end of a block, or to something that is not a data block, cannot be read. A check reports it
/// although all pages and blocks exist and are sound.
#[test]
fn a_check_finds_a_recipe_that_refers_past_its_blocks_or_its_disk() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    let (good, length) = add_disk(&session, &[2]);
    session.publish(draft("lab/good", (good, length))).unwrap();
    assert_eq!((length, verdict(&store)), (3 * 512, Verdict::Clean));
    let block = BlockId::of(Kind::Data, &contents(2));
    let leaf_span = Extent::new(0, 1 << 24);
    for (image, id, length, offset, disk_length) in [
        ("lab/out-of-block", block, 1024, 1024, 1 << 20),
        ("lab/no-block", good.0, 512, 0, 1 << 20),
        ("lab/past-the-end", block, 1024, 0, 512),
    ] {
        let state = State::Data { block: id, offset };
        let leaf = encode_leaf(leaf_span, &[Entry { extent: Extent::new(0, length), state }]);
        let top = Child { start: 0, span_log2: 24, id: BlockId::of(Kind::Page, &leaf) };
        let root = Root {
            disk_length,
            sector_size: 512,
            cut_policy: CutPolicy::FILE_ALIGNED_64K_GRID_32K,
            domain: Domain::SHARED,
            top: Some((0, top)),
        };
        let mut pages = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 17);
        pages.push(top.id, &leaf);
        pages.push(root.score().unwrap().0, &root.encode());
        let session = store.session().unwrap();
        session.append(&pages.encode(&mut Compressor::new(3).unwrap()).unwrap()).unwrap();
        session.publish(draft(image, (root.score().unwrap(), disk_length))).unwrap();
        for read_data in [false, true] {
            let report = store.check(CheckOptions { read_data, ..Default::default() }, &mut |_| {}).unwrap();
            assert_eq!(report.verdict, Verdict::Damaged, "{image}");
            let found = &report.findings[0];
            assert_eq!((report.findings.len(), found.versions.len()), (1, 1), "{:?}", report.findings);
            assert!(
                found.versions[0].image.to_string() == image && found.what.contains("recipe"),
                "{found:?}"
            );
        }
        store.forget(&image.parse().unwrap(), None).unwrap();
    }
}

/// In packs, frames lack the ids of their blocks. This is invisible outside: to the session that has just added a frame and to
/// readers of its start. Wrong addresses return an error.
#[test]
fn frames_are_read_whole() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    let blocks: Vec<Vec<u8>> = (1..=9).map(contents).collect();
    let id = |contents: &[u8]| BlockId::of(Kind::Data, contents);
    let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
    blocks.iter().for_each(|contents| builder.push(id(contents), contents));
    let frame = builder.encode(&mut Compressor::new(3).unwrap()).unwrap();
    session.append(&frame).unwrap();
    let wanted = session.locate(&id(&blocks[3])).unwrap().unwrap();
    assert_eq!((wanted.slot, wanted.frame.length as usize), (3, frame.stored.len()));
    let mut stored = vec![7; 3];
    session.read_frame(wanted.frame, &mut stored).unwrap();
    assert!(stored == frame.stored);
    let disk = add_disk(&session, &[1, 2, 3]);
    session.publish(draft("a", disk)).unwrap();
    drop(store);
    let store = Store::open_reader(&place).unwrap();
    let wanted = store.locate(&id(&blocks[3])).unwrap().unwrap();
    for length in [0, 10, 56, 92, 56 + 36 * 9, frame.stored.len() - 1, frame.stored.len(), 1 << 20] {
        store.read_frame_start(wanted.frame, length, &mut stored).unwrap();
        assert!(stored == frame.stored[..length.min(frame.stored.len())], "{length} bytes");
    }
    for wrong in [
        FrameAddress { offset: wanted.frame.offset + 1, ..wanted.frame },
        FrameAddress { length: wanted.frame.length - 1, ..wanted.frame },
        FrameAddress { pack: wanted.frame.pack + 1, ..wanted.frame },
    ] {
        assert_eq!(store.read_frame(wrong, &mut stored).unwrap_err().kind(), ErrorKind::Bug);
    }
}

#[test]
fn versions_have_parents_and_errors_for_missing_names_help() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    for numbers in [[1, 2], [2, 3]] {
        let session = store.session().unwrap();
        let disk = add_disk(&session, &numbers);
        session.publish(draft("a", disk)).unwrap();
    }
    let history = store.history(&"a".parse().unwrap()).unwrap();
    assert_eq!(history.iter().map(|version| version.name.number).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(history[0].record.parent.unwrap().score, history[1].record.score);
    assert_eq!((history[0].record.new_raw_bytes > 0, history[1].record.parent), (true, None));
    let missing = |text: &str| {
        let error = store.resolve(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        error.to_string()
    };
    assert!(missing("a@3").contains("the newest is a@2"));
    assert!(missing("b").contains("no image b"));
    assert!(missing(&"0".repeat(64)).contains("no disk in the store has the score"));
}

#[test]
fn only_one_writer_at_a_time_and_the_error_names_it() {
    let (_folder, place) = new_store();
    let place = place.with_lock_wait(Some(Duration::ZERO));
    let store = Store::open_writer(&place).unwrap();
    let error = Store::open_writer(&place).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    let session = store.session().unwrap();
    drop(store);
    assert!(Store::open_writer(&place).is_err(), "its session keeps the lock");
    drop(session);
    Store::open_writer(&place).unwrap();
}

/// Every kind of change waits for the lock, as long as the place says.
#[test]
fn all_changes_wait_alike() {
    let (_folder, place) = new_store();
    let image = "lab/a".parse().unwrap();
    let changes: [fn(&StorePlace, &ImageName) -> Option<ErrorKind>; 4] = [
        |place, _| Store::open_writer(place).err().map(|error| error.kind()),
        |place, image| {
            let taken = Store::open_reader(place).unwrap().take_edit_lock(image, "me", 0);
            taken.err().map(|error| error.kind())
        },
        |place, _| Store::discard_interrupted(place).err().map(|error| error.kind()),
        |place, _| place.change_key_file(|_| Ok(())).err().map(|error| error.kind()),
    ];
    for change in changes {
        let writer = Store::open_writer(&place).unwrap();
        let at_once = place.clone().with_lock_wait(Some(Duration::ZERO));
        assert_eq!(change(&at_once, &image), Some(ErrorKind::Transient));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| change(&place, &image));
            // As long as every wait was once, at least.
            std::thread::sleep(Duration::from_millis(700));
            assert!(!waiting.is_finished());
            drop(writer);
            assert_ne!(waiting.join().unwrap(), Some(ErrorKind::Transient));
        });
    }
}

#[test]
fn concurrent_sessions_publish_and_a_dropped_one_leaves_its_blocks() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4_u8 {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..5 {
                    let session = store.session().unwrap();
                    let disk = add_disk(&session, &[worker, round, 100 + worker * 10 + round]);
                    session.publish(draft(["even", "odd"][usize::from(worker % 2)], disk)).unwrap();
                }
            });
        }
    });
    for image in ["even", "odd"] {
        let history = store.history(&image.parse().unwrap()).unwrap();
        assert_eq!(
            history.iter().map(|version| version.name.number).rev().collect::<Vec<_>>(),
            Vec::from_iter(1..=10)
        );
    }
    let session = store.session().unwrap();
    add_disk(&session, &[250]);
    drop(session);
    let block = BlockId::of(Kind::Data, &contents(250));
    assert!(store.session().unwrap().lookup_and_pin(&block).unwrap().is_some());
    assert_eq!(verdict(&store), Verdict::Clean);
}

#[test]
fn init_refuses_a_directory_that_is_not_empty() {
    let (folder, place) = new_store();
    assert!(Store::init(&place).unwrap_err().to_string().contains("is already a store"));
    std::fs::write(folder.path().join("above/letter.txt"), "dear").unwrap();
    let error = Store::init(&StorePlace::on_system(folder.path().join("above"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let error = Store::open_reader(&StorePlace::on_system(folder.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.to_string().contains("platter init"), "{error}");
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/store-v1")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// The golden store has format 1 and must stay readable. It is read, checked, and rebuilt from its change log, then from
/// its packs alone. Its edit lock is in no pack, but its number is in the record that was published under it.
#[test]
fn the_golden_store_is_read() {
    let folder = tempfile::tempdir().unwrap();
    copy(&golden(), folder.path());
    let place = StorePlace::on_system(folder.path());
    // In a checkout, files have the umask's modes.
    place.close_to_others().unwrap();
    let expected = "be673dbaa0bb2119";
    for round in ["unchanged", "from its log", "from its packs"] {
        let store = Store::open_reader(&place).unwrap();
        let version = store.version(&"golden/disk".parse().unwrap(), NumberChoice::Number(1)).unwrap();
        assert_eq!(&version.record.score.to_string()[..16], expected, "{round}");
        let newest = store.version(&version.name.image, NumberChoice::Latest).unwrap();
        assert_eq!(
            (newest.name.number, version.record.edit_lock, newest.record.edit_lock),
            (2, None, Some(1))
        );
        let edit_lock = store.edit_lock(&version.name.image).unwrap().map(|edit_lock| edit_lock.to_string());
        let held = "lock 1, held by root@node3 since 2023-11-14 22:13:20 UTC".to_owned();
        assert_eq!(edit_lock, (round != "from its packs").then_some(held), "{round}");
        for number in [1, 2, 3] {
            let block = BlockId::of(Kind::Data, &contents(number));
            assert_eq!(store.read_block(Kind::Data, &block).unwrap(), contents(number));
        }
        assert_eq!(verdict(&store), Verdict::Clean, "{round}");
        drop(store);
        std::fs::remove_file(place.dir().join("catalog.sqlite")).unwrap();
        if round == "from its log" {
            std::fs::remove_file(place.dir().join("changes.log")).unwrap();
        }
        assert_eq!(rebuild(&place).unwrap().versions.len(), 2);
    }
}

/// Creates the golden store in its own folder. Only needed for a new format version.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_golden_store() {
    if std::env::var_os("PLATTER_WRITE_GOLDEN").is_none() {
        return;
    }
    let place = StorePlace::on_system(golden());
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    let disk = add_disk(&session, &[1, 2, 3]);
    session.publish(draft("golden/disk", disk)).unwrap();
    let edit_lock =
        store.take_edit_lock(&"golden/disk".parse().unwrap(), "root@node3", 1_700_000_000_000).unwrap();
    let edit_lock = store.set_overlay(&edit_lock, "golden-disk.1.overlay").unwrap();
    let session = store.session().unwrap();
    let disk = add_disk(&session, &[1, 2]);
    session
        .publish(VersionRecord { edit_lock: Some(edit_lock.number), ..draft("golden/disk", disk) })
        .unwrap();
}

/// The expected number is compared in the transaction that creates the version, because another session may publish first.
#[test]
fn a_publish_after_another_version_than_expected_is_refused() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let (first, late) = (store.session().unwrap(), store.session().unwrap());
    let disk = add_disk(&late, &[1, 2]);
    let other = add_disk(&first, &[3]);
    first.publish_after(draft("a", other), Some(0)).unwrap();
    let error = late.publish_after(draft("a", disk), Some(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("number 1, not 0"), "{error}");
    assert!(store.takes_writes() && !Store::open_reader(&place).unwrap().takes_writes());
    assert_eq!(store.versions().unwrap().len(), 1);
    let version = late.publish_after(draft("a", disk), Some(1)).unwrap().version;
    assert_eq!(
        version.name.number, 2,
        "the refusal left the session unchanged, and it can publish with the right number"
    );
    assert!(version.record.new_raw_bytes > 0);
}

#[test]
fn a_new_store_is_private_and_wider_modes_are_found_and_fixed() {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    drop(Store::open_writer(&place).unwrap());
    assert_eq!(place.exposure().unwrap(), Exposure::default());
    for (name, mode) in [("", 0o755), ("packs", 0o750), ("catalog.sqlite", 0o644), ("store.json", 0o604)] {
        set_permissions(place.dir().join(name), Permissions::from_mode(mode)).unwrap();
    }
    let check = || Store::open_reader(&place).unwrap().check(CheckOptions::default(), &mut |_| {}).unwrap();
    let report = check();
    assert_eq!(report.verdict, Verdict::Exposed);
    let [finding] = &report.findings[..] else { panic!("{report:?}") };
    assert_eq!(finding.severity, Severity::Exposure);
    // The four, and the files that SQLite creates beside its database with the database's mode.
    assert!(finding.what.contains("files and directories"), "{}", finding.what);
    assert!(place.close_to_others().unwrap().count >= 4);
    assert_eq!(metadata(place.dir()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(check().verdict, Verdict::Clean);
}

/// Garbage after the end of a file costs bounded time and memory, however long it is.
#[test]
fn garbage_after_the_end_is_not_read() {
    let (_folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    let disk = add_disk(&session, &[1, 2, 3]);
    session.publish(draft("lab/a", disk)).unwrap();
    let place_of = store.locate(&BlockId::of(Kind::Data, &contents(2))).unwrap().unwrap();
    let pack = store.pack_id(place_of.frame).unwrap().to_string();
    drop(store);
    let pack = place.dir().join("packs").join(&pack[..2]).join(format!("{pack}.pack"));
    let extend = |path: &Path, length: u64| {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        let before = file.metadata().unwrap().len();
        file.set_len(length).unwrap();
        before
    };
    let log = place.dir().join("changes.log");
    let before = extend(&log, 20 << 30);
    let report = Store::open_reader(&place).unwrap().check(CheckOptions::default(), &mut |_| {}).unwrap();
    let [found] = &report.findings[..] else { panic!("{report:?}") };
    assert!(found.severity == Severity::Damage && found.what.contains("bytes of garbage"), "{found:?}");
    drop(Store::open_writer(&place).unwrap());
    assert_eq!(metadata(&log).unwrap().len(), before, "the next writer cuts it off");
    assert_eq!(verdict(&Store::open_reader(&place).unwrap()), Verdict::Clean);
    extend(&pack, 64 << 30);
    let store = Store::open_reader(&place).unwrap();
    let report = store.check(CheckOptions::default(), &mut |_| {}).unwrap();
    let [found] = &report.findings[..] else { panic!("{report:?}") };
    assert!(found.severity == Severity::Damage && found.what.contains("but the catalog lists"), "{found:?}");
    assert_eq!(store.read_block(Kind::Data, &BlockId::of(Kind::Data, &contents(2))).unwrap(), contents(2));
    drop(store);
    rebuild(&place).unwrap();
    assert_eq!(verdict(&Store::open_reader(&place).unwrap()), Verdict::Clean);
}

/// Pipes and sockets in place of files are errors, and nobody waits for them.
#[test]
fn no_file_of_the_store_may_be_a_pipe() {
    let (folder, place) = new_store();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    let disk = add_disk(&session, &[1, 2, 3]);
    session.publish(draft("lab/a", disk)).unwrap();
    drop(store);
    let mut files = vec![place.dir().join("catalog.sqlite-journal"), place.dir().join("standing.json")];
    let mut folders = vec![place.dir().to_owned()];
    while let Some(dir) = folders.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let is_dir = entry.file_type().unwrap().is_dir();
            if is_dir { &mut folders } else { &mut files }.push(entry.path());
        }
    }
    assert!(files.len() > 6, "{files:?}");
    let kept = folder.path().join("kept");
    for file in files {
        let was_there = std::fs::rename(&file, &kept).is_ok();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        // Neither hangs.
        let checked =
            Store::open_reader(&place).and_then(|store| store.check(CheckOptions::default(), &mut |_| {}));
        if let Err(error) = &checked {
            assert!(error.with_causes().contains("not a regular file"), "{}: {error:?}", file.display());
        }
        if let Err(error) = Store::open_writer(&place) {
            assert!(error.with_causes().contains("not a regular file"), "{}: {error:?}", file.display());
        }
        drop(std::fs::remove_file(&file));
        if was_there {
            std::fs::rename(&kept, &file).unwrap();
        }
    }
}
