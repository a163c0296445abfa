//! Tests of disks of an origin's store, which are written locally and published to the origin.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platter_export::Exports as _;
use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::recipe::{CutPolicy, Root};
use platter_image::{Domain, ErrorKind, FrameStore, Kind, Result};
use platter_records::{NumberChoice, VersionRecord};
use platter_store::Store;
use platter_vdisk::BlockDevice;

use super::{answer, request_at, written};
use crate::attach::AttachRequest;
use crate::control::{Answer, Question, Words};
use crate::disk_request::OnDetach;
use crate::event::LiveEvent;
use crate::list::disks;
use crate::place::LivePlace;
use crate::publish::{PublishRequest, discard, publish};
use crate::publish_report::PublishReport;
use crate::served::Served;
use platter_jobs::Silent;
use platter_testbed::{Lab, Origin, Running, kind, store_disk};

const IMAGE: &str = "lab/disk";
const KIB: usize = 2 << 10;

/// An origin with one version of an image, and a local directory.
struct Far {
    lab: Lab,
    bytes: Vec<u8>,
}

impl Far {
    fn new() -> Self {
        let lab = Lab::new();
        let disk = lab.disk("disk", KIB, 0);
        store_disk(&lab.place, IMAGE, &std::fs::read(&disk).unwrap());
        Self { bytes: std::fs::read(disk).unwrap(), lab }
    }

    fn run(&self) -> Running {
        Origin::new(&self.lab).run(&self.lab)
    }

    fn dir(&self) -> PathBuf {
        self.lab.path("overlays")
    }

    fn place(&self) -> LivePlace {
        LivePlace::open(&self.lab.afar().into(), Some(&self.dir())).unwrap()
    }

    fn request(&self) -> AttachRequest {
        request_at(self.place())
    }

    /// Serves the disk for writing.
    fn serve(&self) -> Arc<Served> {
        self.serve_noting(Arc::default()).unwrap()
    }

    fn serve_noting(&self, notes: Arc<Mutex<Vec<String>>>) -> Result<Arc<Served>> {
        let request = self.request();
        request.place.make()?;
        let note = move |event: &LiveEvent<'_>| {
            if let LiveEvent::Note(text) = event {
                notes.lock().push(text.clone());
            }
        };
        let served = Served::open(request, Default::default(), Box::new(note))?;
        served.attach(&written(IMAGE))?;
        Ok(served)
    }

    /// The bytes of a version, as the store has them.
    fn version(&self, number: u64) -> Vec<u8> {
        self.exported(&format!("{IMAGE}@{number}"))
    }

    fn exported(&self, version: &str) -> Vec<u8> {
        let target = self.lab.path("exported");
        let _ = std::fs::remove_file(&target);
        let request = platter_jobs::TargetRequest::new(&target);
        let exported = platter_jobs::ExportRequest {
            store: self.lab.here().into(),
            version: version.into(),
            signatures: Default::default(),
        };
        platter_jobs::export(&exported, &request, &Silent).unwrap();
        std::fs::read(target).unwrap()
    }

    fn newest(&self) -> VersionRecord {
        let store = Store::open_reader(&self.lab.place).unwrap();
        store.version(&IMAGE.parse().unwrap(), NumberChoice::Latest).unwrap().record
    }

    fn overlays(&self) -> usize {
        let listed = std::fs::read_dir(self.dir().join("overlays")).unwrap();
        let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".overlay")).count()
    }
}

fn ask_to_publish(served: &Arc<Served>) -> Result<PublishReport> {
    match answer(served, Question::Publish { disk: IMAGE.into(), words: Words::default() })? {
        Answer::Published(report) => Ok(report),
        other => panic!("{other:?}"),
    }
}

fn disk(served: &Arc<Served>) -> Arc<dyn BlockDevice> {
    served.open(IMAGE).unwrap()
}

fn contents(disk: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let mut bytes = vec![0; disk.length() as usize];
    disk.read(&mut bytes, 0).unwrap();
    bytes
}

fn publish_here(far: &Far, branch: Option<&str>, edit_lock: Option<u64>) -> Result<PublishReport> {
    let request = PublishRequest {
        place: far.place(),
        disk: IMAGE.parse().unwrap(),
        edit_lock,
        branch: branch.map(|name| name.parse().unwrap()),
        labels: Default::default(),
        notes: String::new(),
        tool_version: "test".into(),
    };
    publish(&request, &Silent)
}

#[test]
fn local_changes_become_a_version_at_the_origin() {
    let mut far = Far::new();
    let origin = far.run();
    let served = far.serve();
    let live = disk(&served);
    assert!(live.is_writable() && contents(&live) == far.bytes);
    live.write(&[0x5a; 5000], 70_000).unwrap();
    far.bytes[70_000..75_000].fill(0x5a);
    assert_eq!(ask_to_publish(&served).unwrap().version, "lab/disk@2");
    assert_eq!(kind(ask_to_publish(&served)), ErrorKind::Refused, "nothing was written since");
    let sent = origin.0.seen.upload_bytes.swap(0, Ordering::SeqCst);
    assert!(sent < 200 << 10, "{sent} bytes sent for 5000");
    live.write(&[0x5b; 512], 0).unwrap();
    far.bytes[..512].fill(0x5b);
    let words = Words::default();
    let then = Some(OnDetach::Publish);
    answer(&served, Question::Detach { disk: IMAGE.into(), then, words }).unwrap();
    assert_eq!(origin.0.store.edit_locks().unwrap(), []);
    assert_eq!(far.overlays(), 0);
    drop(origin);
    assert!(far.version(3) == far.bytes);
}

#[test]
fn changes_of_a_killed_process_are_kept() {
    let mut far = Far::new();
    let _origin = far.run();
    disk(&far.serve()).write(&[7; 4096], 4096).unwrap();
    far.bytes[4096..8192].fill(7);
    let again = far.serve();
    assert!(contents(&disk(&again)) == far.bytes);
    drop(again);
    let listed = disks(&far.place()).unwrap().disks;
    assert_eq!(
        (listed.len(), listed[0].status.holder.as_deref(), listed[0].lost),
        (1, Some("test@here"), false)
    );
    assert_eq!(publish_here(&far, None, None).unwrap().version, "lab/disk@2");
    assert_eq!(kind(publish_here(&far, None, None)), ErrorKind::Missing);
}

/// The origin goes down before or during publishing.
#[test]
fn a_failed_publish_loses_nothing_and_can_be_retried() {
    let mut far = Far::new();
    let origin = far.run();
    let served = far.serve();
    let live = disk(&served);
    live.write(&[1; 4096], 0).unwrap();
    drop(origin);
    std::fs::remove_file(far.lab.socket()).unwrap();
    let error = ask_to_publish(&served).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
    assert!(error.to_string().contains("are kept"), "{error}");
    live.write(&[2; 4096], 8192).unwrap();
    let refuse = Arc::new(AtomicBool::new(true));
    let refused = refuse.clone();
    let spoil =
        move |path: &str, answer: Vec<u8>| match path.ends_with("/need") && refused.load(Ordering::SeqCst) {
            true => b"HTTP/1.1 500 x\r\nconnection: close\r\n\r\n".to_vec(),
            false => answer,
        };
    let origin = Origin { spoil: Box::new(spoil), ..Origin::new(&far.lab) }.run(&far.lab);
    for _ in 0..3 {
        assert_eq!(kind(ask_to_publish(&served)), ErrorKind::Io);
    }
    assert_eq!(far.overlays(), 2, "a frozen overlay is not frozen again");
    for n in 0..20 {
        live.write(&[n; 512], 16384 + u64::from(n) * 512).unwrap();
        assert_eq!(kind(ask_to_publish(&served)), ErrorKind::Io);
    }
    assert!(far.overlays() <= 16, "{} overlays", far.overlays());
    refuse.store(false, Ordering::SeqCst);
    let report = ask_to_publish(&served).unwrap();
    assert_eq!((far.overlays(), report.attached), (1, true));
    far.bytes[..4096].fill(1);
    far.bytes[8192..12288].fill(2);
    for n in 0..20 {
        far.bytes[16384 + n * 512..][..512].fill(n as u8);
    }
    assert!(far.version(far.newest().number) == far.bytes && contents(&live) == far.bytes);
    drop(origin);
}

#[test]
fn a_suspended_holder_publishes_nothing_and_keeps_its_changes() {
    let mut far = Far::new();
    let origin = far.run();
    let served = far.serve();
    let live = disk(&served);
    live.write(&[9; 4096], 0).unwrap();
    let lost = origin.0.store.edit_lock(&IMAGE.parse().unwrap()).unwrap().unwrap().number;
    origin.0.store.steal_edit_lock(&IMAGE.parse().unwrap(), "other", 1).unwrap();
    let error = ask_to_publish(&served).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("NEW-NAME"), "{error}");
    far.bytes[..4096].fill(9);
    assert!(contents(&live) == far.bytes);
    drop((live, served));
    // The lock must be named, unless a new image is made from the changes.
    for result in [
        publish_here(&far, None, None).map(drop),
        discard(&far.place(), &IMAGE.parse().unwrap(), None).map(drop),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(&format!("--lock {lost}")), "{error}");
    }
    let listed = disks(&far.place()).unwrap().disks;
    assert!(listed.iter().any(|disk| disk.lost && disk.status.edit_lock == Some(lost)));
    assert_eq!(publish_here(&far, Some("lab/branch"), None).unwrap().version, "lab/branch@1");
    assert_eq!(far.newest().number, 1);
    // The other holder's changes elsewhere cannot be ended from here.
    for result in [
        publish_here(&far, None, None).map(drop),
        discard(&far.place(), &IMAGE.parse().unwrap(), None).map(drop),
    ] {
        assert_eq!(kind(result), ErrorKind::Missing);
    }
}

/// The edit lock is taken over and released after all checks, just before the commit.
#[test]
fn the_commit_itself_compares_the_edit_lock() {
    let far = Far::new();
    let stolen = AtomicBool::new(false);
    let before_publish = move |store: &Store, draft: &VersionRecord| {
        if !stolen.swap(true, Ordering::SeqCst) {
            let other = store.steal_edit_lock(&draft.image, "other", 1).unwrap();
            store.release_edit_lock(&other).unwrap();
        }
    };
    let _origin = Origin { before_publish: Box::new(before_publish), ..Origin::new(&far.lab) }.run(&far.lab);
    let served = far.serve();
    disk(&served).write(&[9; 4096], 0).unwrap();
    let error = ask_to_publish(&served).unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("taken over"), "{error}");
    assert_eq!((far.newest().number, far.overlays()), (1, 2));
}

/// Somebody publishes under the same edit lock, from a copy of the overlay or with another program, just before the
/// commit.
#[test]
fn the_commit_itself_compares_the_number() {
    let far = Far::new();
    let published = AtomicBool::new(false);
    let before_publish = move |store: &Store, draft: &VersionRecord| {
        if !published.swap(true, Ordering::SeqCst) {
            // A disk of one free sector.
            let cut_policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
            let root =
                Root { disk_length: 512, sector_size: 512, cut_policy, domain: Domain::SHARED, top: None };
            let session = store.session().unwrap();
            let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 10);
            frame.push(root.score().unwrap().0, &root.encode());
            session.append(&frame.encode(&mut Compressor::new(3).unwrap()).unwrap()).unwrap();
            let (score, disk_length) = (root.score().unwrap(), 512);
            let another = VersionRecord { source: "another".into(), score, disk_length, ..draft.clone() };
            session.publish(another).unwrap();
        }
    };
    let _origin = Origin { before_publish: Box::new(before_publish), ..Origin::new(&far.lab) }.run(&far.lab);
    let served = far.serve();
    let live = disk(&served);
    live.write(&[9; 4096], 0).unwrap();
    for _ in 0..2 {
        assert_eq!(kind(ask_to_publish(&served)), ErrorKind::Refused);
    }
    assert_eq!((far.newest().number, far.newest().source.as_str()), (2, "another"));
    assert_eq!(contents(&live)[..4096], [9; 4096]);
}

/// Copies the files of a directory to another one.
fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Replaces all files of a directory by those of another one.
fn restore(copy: &Path, dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    copy_all(copy, dir);
}

/// The process died after the origin had the version and before the process knew: the overlays are those of that moment.
#[test]
fn publishing_again_creates_no_second_version() {
    for more in [false, true] {
        let far = Far::new();
        let (dir, copy) = (far.dir().join("overlays"), far.lab.path("copy"));
        std::fs::create_dir(&copy).unwrap();
        let (from, to) = (dir.clone(), copy.clone());
        let before_publish = move |_: &Store, _: &VersionRecord| copy_all(&from, &to);
        let origin = Origin { before_publish: Box::new(before_publish), ..Origin::new(&far.lab) };
        let origin = origin.run(&far.lab);
        let served = far.serve();
        disk(&served).write(&[3; 4096], 0).unwrap();
        assert_eq!(ask_to_publish(&served).unwrap().version, "lab/disk@2");
        drop(served);
        restore(&copy, &dir);
        if more {
            let served = far.serve();
            disk(&served).write(&[4; 512], 8192).unwrap();
            drop(served);
        }
        let report = publish_here(&far, None, None).unwrap();
        assert_eq!(report.version, format!("lab/disk@{}", 2 + u64::from(more)));
        assert_eq!(far.newest().number, 2 + u64::from(more));
        assert_eq!(origin.0.store.edit_locks().unwrap(), []);
    }
}

/// An overlay from a backup lacks changes that were written later and published under the same edit lock.
#[test]
fn an_overlay_from_a_backup_undoes_no_version() {
    for rounds in [1, 2] {
        let mut far = Far::new();
        let _origin = far.run();
        let served = far.serve();
        let live = disk(&served);
        live.write(&[3; 4096], 0).unwrap();
        let (dir, copy) = (far.dir().join("overlays"), far.lab.path("copy"));
        std::fs::create_dir(&copy).unwrap();
        live.flush().unwrap();
        copy_all(&dir, &copy);
        for round in 0..rounds {
            live.write(&[round; 4096], 8192).unwrap();
            ask_to_publish(&served).unwrap();
        }
        drop((live, served));
        restore(&copy, &dir);
        let served = far.serve();
        disk(&served).write(&[4; 4096], 16384).unwrap();
        let error = ask_to_publish(&served).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        let named = format!("lab/disk@{} is newer than the version below this disk (lab/disk@1)", 1 + rounds);
        assert!(error.to_string().contains(&named), "{error}");
        assert_eq!(far.newest().number, 1 + u64::from(rounds));
        drop(served);
        assert_eq!(publish_here(&far, Some("lab/branch"), None).unwrap().version, "lab/branch@1");
        far.bytes[..4096].fill(3);
        far.bytes[16384..20480].fill(4);
        assert!(far.exported("lab/branch") == far.bytes);
    }
}

/// The response to the publication is lost: the version is not published twice.
#[test]
fn a_publish_with_a_lost_response_is_found() {
    let far = Far::new();
    let lost = AtomicBool::new(false);
    let spoil = move |path: &str, mut answer: Vec<u8>| {
        if path.ends_with("/publish") && !lost.swap(true, Ordering::SeqCst) {
            answer.clear();
        }
        answer
    };
    let _origin = Origin { spoil: Box::new(spoil), ..Origin::new(&far.lab) }.run(&far.lab);
    let served = far.serve();
    disk(&served).write(&[3; 4096], 0).unwrap();
    assert_eq!(ask_to_publish(&served).unwrap().version, "lab/disk@2");
    assert_eq!((far.newest().number, far.overlays()), (2, 1));
}

#[test]
fn local_data_stays_available_while_the_origin_is_down() {
    let mut far = Far::new();
    let origin = far.run();
    let served = far.serve();
    let live = disk(&served);
    live.write(&[8; 65536], 0).unwrap();
    let mut known = vec![0; 65536];
    live.read(&mut known, 1 << 20).unwrap();
    drop(origin);
    std::fs::remove_file(far.lab.socket()).unwrap();
    let mut bytes = vec![0; 65536];
    live.read(&mut bytes, 1 << 20).unwrap();
    assert!(bytes == known, "from memory");
    live.write(&[9; 4096], 4096).unwrap();
    live.flush().unwrap();
    live.read(&mut bytes, 0).unwrap();
    far.bytes[..65536].fill(8);
    far.bytes[4096..8192].fill(9);
    assert!(bytes == far.bytes[..65536]);
    let list = disks(&far.place()).unwrap();
    assert!(list.away.is_some() && !list.disks[0].lost && list.disks[0].status.disk == IMAGE);
    drop((live, served));
    // A process that starts meanwhile waits for pages of the recipe, which are cached.
    let notes = Arc::<Mutex<Vec<String>>>::default();
    let late = std::thread::scope(|scope| {
        let waits = scope.spawn(|| far.serve_noting(notes.clone()));
        std::thread::sleep(std::time::Duration::from_millis(300));
        let origin = far.run();
        (waits.join().unwrap().unwrap(), origin)
    });
    assert!(contents(&disk(&late.0)) == far.bytes);
    assert!(notes.lock()[0].contains("continuing with the local changes"));
    assert_eq!(ask_to_publish(&late.0).unwrap().version, "lab/disk@2");
}
