//! Tests of disks and servers over a real store, local and behind an origin.

mod far;
mod far_tree;
mod node;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_export::Exports as _;
use platter_export::tree::{Access, ROOT};
use platter_image::{ErrorKind, Result};
use platter_records::{NumberChoice, UnreadableOmitted, UnreadableRecord, VersionRecord};
use platter_store::{KnownCheck, Store, StorePlace};
use tempfile::TempDir;

use crate::address::{ServersRequest, TreeAccess};
use crate::agent::Agent;
use crate::attach::AttachRequest;
use crate::control::{Answer, ControlSocket, Question, ServingProcess, Words};
use crate::disk_request::{DiskRequest, OnDetach, WriteRequest};
use crate::place::LivePlace;
use crate::served::Served;
use crate::servers::Server;
use platter_fetch::EditLockChoice;
use platter_jobs::{CaptureRequest, Silent, capture};

/// A new store, and a request without disks for it.
pub(crate) fn request() -> (TempDir, AttachRequest) {
    let folder = tempfile::tempdir().unwrap();
    let store = StorePlace::on_system(folder.path());
    Store::init(&store).unwrap();
    let place = LivePlace::open(&store.into(), None).unwrap();
    (folder, request_at(place))
}

/// A request without disks for a store.
fn request_at(place: LivePlace) -> AttachRequest {
    AttachRequest {
        place,
        disks: Vec::new(),
        servers: ServersRequest::default(),
        memory_bytes: 1 << 20,
        hoard: None,
        node: None,
        take_over: false,
        signatures: Default::default(),
        tool_version: "test".into(),
        stop: Arc::default(),
    }
}

/// A request to serve a writable disk.
pub(crate) fn written(version: &str) -> DiskRequest {
    let write = WriteRequest { holder: "test@here".into(), ..WriteRequest::default() };
    DiskRequest { write: Some(write), ..DiskRequest::new(version) }
}

/// The same request, with a fully writable tree.
fn with_tree(request: AttachRequest) -> AttachRequest {
    let servers = ServersRequest { tree_access: TreeAccess::Names, ..request.servers };
    AttachRequest { servers, ..request }
}

/// Executes a request like the process does.
fn answer(served: &Arc<Served>, question: Question) -> Result<Answer> {
    // Only a successor sends more than its request.
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    crate::answering::answer(served, &Agent::open(served)?, question, &stream)
}

/// Captures a disk of `bytes` as the next version of `image`.
pub(crate) fn capture_bytes(store: &StorePlace, image: &str, bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let request = CaptureRequest {
        store: store.clone().into(),
        source: file.path().to_owned(),
        input: Default::default(),
        name: image.parse().unwrap(),
        survey: Default::default(),
        allow_in_use: false,
        skip_bad: false,
        audit: false,
        sector_size: None,
        options: Default::default(),
        known: KnownCheck::Sample,
        labels: Default::default(),
        notes: String::new(),
        edit_lock: EditLockChoice::Free,
        tool_version: "test".into(),
    };
    capture(&request, &Silent).unwrap();
}

/// After its last disk, a process ends unless it serves the tree.
#[test]
fn detaching_the_last_disk_ends_a_process_without_a_tree() {
    let (_folder, request) = request();
    capture_bytes(request.place.store().local("this").unwrap(), "lab/disk", &[7; 4096]);
    for has_tree in [false, true] {
        let request = AttachRequest { stop: Arc::default(), ..request.clone() };
        let served = Served::open(request, Default::default(), Box::new(|_| {})).unwrap();
        let uri = Arc::new(|disk: &str| format!("test:{disk}"));
        served.set_servers(&[Server { uri, has_tree, run: Box::new(|_| Ok(())) }]);
        served.attach(&DiskRequest::new("lab/disk")).unwrap();
        assert_eq!(served.attached().unwrap()[0].exports, ["test:lab/disk"]);
        let question =
            Question::Detach { disk: "lab/disk".into(), then: Some(OnDetach::Keep), words: Words::default() };
        answer(&served, question).unwrap();
        assert_eq!(served.stop().load(Ordering::Relaxed), !has_tree);
    }
}

/// A disk that is served, written, published and detached, as seen in the tree.
#[test]
fn a_served_disk_is_in_the_tree() {
    let (_folder, request) = request();
    capture_bytes(request.place.store().local("this").unwrap(), "lab/disk", &[7; 4096]);
    let served = Served::open(with_tree(request), Default::default(), Box::new(|_| {})).unwrap();
    served.attach(&written("lab/disk")).unwrap();
    let tree = served.tree().unwrap();
    let find = |path: &str| path.split('/').try_fold(ROOT, |at, name| Ok(tree.lookup(at, name)?.id));
    let read = |path: &str| -> platter_image::Result<Vec<u8>> {
        let file = tree.open(find(path)?, Access::Read)?;
        let mut bytes = vec![0; file.length() as usize];
        file.read(&mut bytes, 0).map(|()| bytes)
    };
    let live = tree.open(find("lab/disk/live.raw").unwrap(), Access::ReadWrite).unwrap();
    live.write(&[8; 512], 0).unwrap();
    live.sync().unwrap();
    assert_eq!(read("lab/disk/latest.raw").unwrap(), [7; 4096]);
    let words = Words::default();
    answer(&served, Question::Publish { disk: "lab/disk".into(), words: words.clone() }).unwrap();
    assert_eq!(read("lab/disk/latest.raw").unwrap(), read("lab/disk/live.raw").unwrap());
    assert_eq!(read("lab/disk/2.raw").unwrap()[..513], [&[8; 512][..], &[7]].concat());
    answer(&served, Question::Detach { disk: "lab/disk".into(), then: Some(OnDetach::Discard), words })
        .unwrap();
    assert!(find("lab/disk/live.raw").is_err() && live.write(&[9; 512], 0).is_err());
}

/// Ranges that were skipped or unreadable in a version are still missing after other parts were written.
#[test]
fn missing_ranges_of_a_version_are_missing_in_the_next_one() {
    let (_folder, request) = request();
    let place = request.place.store().local("this").unwrap().clone();
    capture_bytes(&place, "lab/disk", &[7; 64 << 10]);
    let newest = || {
        let store = Store::open_reader(&place).unwrap();
        store.version(&"lab/disk".parse().unwrap(), NumberChoice::Latest).unwrap().record
    };
    let lost = |offset, length, file: &str| UnreadableRecord { offset, length, file: file.to_owned() };
    let lacking = VersionRecord {
        number: 0,
        parent: None,
        skipped_gap_bytes: 5 << 20,
        unreadable: vec![lost(0, 4096, "1:/whole"), lost(8192, 8192, "1:/half"), lost(32_768, 4096, "")],
        unreadable_omitted: Some(UnreadableOmitted { ranges: 3, bytes: 1536 }),
        ..newest()
    };
    Store::open_writer(&place).unwrap().session().unwrap().publish(lacking.clone()).unwrap();
    let served = Served::open(with_tree(request), Default::default(), Box::new(|_| {})).unwrap();
    served.attach(&written("lab/disk")).unwrap();
    let disk = served.open("lab/disk").unwrap();
    disk.write(&[8; 4096], 0).unwrap();
    disk.write(&[8; 512], 8192).unwrap();
    answer(&served, Question::Publish { disk: "lab/disk".into(), words: Words::default() }).unwrap();
    let record = newest();
    assert_eq!((record.number, record.skipped_gap_bytes), (3, 5 << 20));
    assert_eq!(record.unreadable, lacking.unreadable[1..]);
    assert_eq!(record.unreadable_omitted, lacking.unreadable_omitted);
    let then = Some(OnDetach::Discard);
    answer(&served, Question::Detach { disk: "lab/disk".into(), then, words: Words::default() }).unwrap();
}

/// A read-only tree can be read, and nobody can change it.
#[test]
fn a_tree_is_read_only_by_default() {
    let (_folder, request) = request();
    let store = request.place.store().local("this").unwrap().clone();
    capture_bytes(&store, "lab/disk", &[7; 4096]);
    let served = Served::open(request, Default::default(), Box::new(|_| {})).unwrap();
    let tree = served.tree().unwrap();
    let lab = tree.lookup(ROOT, "lab").unwrap();
    let disk = tree.lookup(lab.id, "disk").unwrap();
    let (version, import) = (tree.lookup(disk.id, "1.raw").unwrap(), tree.lookup(ROOT, "import").unwrap());
    assert!(tree.is_read_only() && ![&lab, &disk, &version, &import].iter().any(|node| node.writable));
    let errors = [
        tree.remove_file(disk.id, "1.raw").err(),
        tree.rename((ROOT, "lab"), (ROOT, "attic")).err(),
        tree.make_directory(ROOT, "attic").err(),
        tree.remove_directory(ROOT, "lab").err(),
        tree.create(import.id, "new.raw", Access::Write).err(),
        tree.open(version.id, Access::Write).err(),
    ];
    assert!(errors.iter().all(|error| error.as_ref().is_some_and(|it| it.kind() == ErrorKind::Refused)));
    assert_eq!(Store::open_reader(&store).unwrap().versions().unwrap().len(), 1);
}

/// A client that lists sockets removes only those of ended processes.
#[test]
fn a_new_socket_is_not_taken_for_that_of_an_ended_process() {
    let (_folder, request) = request();
    let has_ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::SeqCst) {
                ServingProcess::all(request.place.dir()).unwrap();
            }
        });
        let opened: Vec<_> = (0..2000)
            .map(|_| ControlSocket::open(request.place.dir(), false).map(|socket| socket.wake()))
            .collect();
        has_ended.store(true, Ordering::SeqCst);
        for socket in opened {
            socket.unwrap().unwrap();
        }
    });
}
