//! Tests of a node: writable disks beside read-only ones, served again after a kill.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use platter_export::Exports as _;
use platter_store::Store;

use super::{answer, request_at, written};
use crate::address::{FuseAddress, NbdAddress, ServeAddress, ServersRequest};
use crate::agent::Agent;
use crate::attach::{AttachRequest, NodeRequest, attach};
use crate::client::{discard_at, running_node};
use crate::control::{Answer, ControlSocket, Question, Words};
use crate::disk_request::{DiskRequest, OnDetach};
use crate::list::disks;
use crate::place::LivePlace;
use crate::served::Served;
use platter_fetch::{CacheLocation, EditLockChoice, OriginLocation, StoreLocation};
use platter_image::{ErrorKind, Result};
use platter_testbed::{Lab, Origin, Running, kind, store_disk};

const KIB: usize = 1 << 10;

/// An origin with two images, and a node's directory.
struct Host {
    lab: Lab,
    bytes: Vec<u8>,
}

impl Host {
    fn new() -> Self {
        let lab = Lab::new();
        let disk = lab.disk("disk", KIB, 0);
        for image in ["lab/read", "lab/written"] {
            store_disk(&lab.place, image, &std::fs::read(&disk).unwrap());
        }
        Self { bytes: std::fs::read(disk).unwrap(), lab }
    }

    fn run_origin(&self) -> Running {
        Origin::new(&self.lab).run(&self.lab)
    }

    fn dir(&self) -> PathBuf {
        self.lab.path("node")
    }

    fn place(&self) -> LivePlace {
        let cache = Some(CacheLocation { dir: self.dir(), limit_bytes: 64 << 20 });
        let origin = OriginLocation { server: self.lab.afar(), cache };
        LivePlace::of_cache(&StoreLocation::Remote(origin), &self.dir())
    }

    fn request(&self) -> AttachRequest {
        AttachRequest {
            node: Some(NodeRequest {
                name: "test".into(),
                sharing: None,
                record_boots: false,
                casts: false,
                interface: None,
            }),
            ..request_at(self.place())
        }
    }

    /// Starts a node, which serves its earlier disks.
    fn node(&self) -> Arc<Served> {
        let served = self.open();
        Agent::open(&served).unwrap().attach_at_start().unwrap();
        served
    }

    fn open(&self) -> Arc<Served> {
        once_closed(|| Served::open(self.request(), Default::default(), Box::new(|_| {}))).unwrap()
    }

    fn edit_locks(&self) -> usize {
        Store::open_reader(&self.lab.place).unwrap().edit_locks().unwrap().len()
    }
}

/// Retries `open` until its cache is free: the threads of a dropped node keep it open until they have ended.
fn once_closed<T>(open: impl Fn() -> Result<T>) -> Result<T> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match open() {
            Err(error)
                if error.to_string().contains("in use by another process") && Instant::now() < until =>
            {
                thread::yield_now();
            }
            opened => return opened,
        }
    }
}

fn contents(served: &Arc<Served>, disk: &str) -> Vec<u8> {
    let disk = served.open(disk).unwrap();
    let mut bytes = vec![0; disk.length() as usize];
    disk.read(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn only_disks_that_are_filled_stay_pinned() {
    let host = Host::new();
    let _origin = host.run_origin();
    let served = host.node();
    let sets = |served: &Served| served.store().cache().unwrap().cache().pin_sets().unwrap();
    let attach = |served: &Arc<Served>, requests| answer(served, Question::Attach(requests));
    let filled = || DiskRequest { fill: true, ..DiskRequest::new("lab/read") };
    attach(&served, vec![DiskRequest::new("lab/read")]).unwrap();
    // A request that fails as a whole ends the fill that it has begun.
    assert!(attach(&served, vec![filled(), DiskRequest::new("lab/none")]).is_err());
    assert!(served.fills.status("lab/read").is_none() && served.is_attached("lab/read"));
    assert!(served.remembered().iter().all(|disk| !disk.request.fill));
    attach(&served, vec![filled()]).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while sets(&served).is_empty() && Instant::now() < until {
        thread::yield_now();
    }
    let kept = sets(&served);
    assert_eq!(kept.len(), 1);
    // A process was killed between forgetting a disk and unpinning it.
    let left = format!("{}{}", platter_fetch::PINS_PREFIX, "ab".repeat(32)).parse().unwrap();
    served.store().cache().unwrap().cache().pin(&left, &[]).unwrap();
    drop(served);
    let served = host.node();
    assert_eq!(sets(&served), kept);
    let words = Words::default();
    answer(&served, Question::Detach { disk: "lab/read".into(), then: None, words }).unwrap();
    assert!(sets(&served).is_empty() && served.remembered().is_empty());
}

#[test]
fn a_killed_node_continues_with_all_of_its_disks_without_its_origin() {
    let host = Host::new();
    let origin = host.run_origin();
    let served = host.node();
    for request in [DiskRequest::new("lab/read"), written("lab/written")] {
        answer(&served, Question::Attach(vec![request])).unwrap();
    }
    let disk = served.open("lab/written").unwrap();
    assert!(disk.is_writable() && !served.open("lab/read").unwrap().is_writable());
    disk.write(&[9; 4096], 8192).unwrap();
    let mut expected = host.bytes.clone();
    expected[8192..12288].fill(9);
    // Both are completely cached.
    assert!(contents(&served, "lab/read") == host.bytes && contents(&served, "lab/written") == expected);
    served.store().cache().unwrap().cache().sync().unwrap();
    drop((disk, served, origin));
    std::fs::remove_file(host.lab.socket()).unwrap();

    let served = host.node();
    assert!(contents(&served, "lab/read") == host.bytes && contents(&served, "lab/written") == expected);
    let disk = served.open("lab/written").unwrap();
    disk.write(&[8; 512], 0).unwrap();
    expected[..512].fill(8);
    let _origin = host.run_origin();
    let published = answer(
        &served,
        Question::Detach {
            disk: "lab/written".into(),
            then: Some(OnDetach::Publish),
            words: Words::default(),
        },
    );
    let Answer::Detached(Some(report)) = published.unwrap() else { panic!("it is published") };
    assert_eq!((report.version.as_str(), host.edit_locks()), ("lab/written@2", 0));
    drop((disk, served));
    let served = host.node();
    assert_eq!(served.list(), ["lab/read"], "a detached disk is not served again");
    answer(&served, Question::Attach(vec![DiskRequest::new("lab/written")])).unwrap();
    assert!(contents(&served, "lab/written") == expected);
}

/// While the origin is down, a node serves the version that it published last: it is the newest one in any stored reply,
/// and its blocks were put into the cache as they were sent.
#[test]
fn a_node_reads_what_it_published_without_its_origin() {
    let host = Host::new();
    let origin = host.run_origin();
    let served = host.node();
    answer(&served, Question::Attach(vec![written("lab/written")])).unwrap();
    let disk = served.open("lab/written").unwrap();
    let random: Vec<u8> =
        (0..65_536_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    disk.write(&random, 8192).unwrap();
    let mut expected = host.bytes.clone();
    expected[8192..][..random.len()].copy_from_slice(&random);
    assert!(contents(&served, "lab/written") == expected);
    let words = Words::default();
    let detach = Question::Detach { disk: "lab/written".into(), then: Some(OnDetach::Publish), words };
    answer(&served, detach).unwrap();
    drop((disk, served, origin));
    std::fs::remove_file(host.lab.socket()).unwrap();
    for version in ["lab/written", "lab/written@2"] {
        let served = host.node();
        answer(&served, Question::Attach(vec![DiskRequest::new(version)])).unwrap();
        assert!(contents(&served, "lab/written") == expected, "{version}");
        let words = Words::default();
        answer(&served, Question::Detach { disk: "lab/written".into(), then: None, words }).unwrap();
    }
}

/// A clone by a node fails at once while the origin is down.
#[test]
fn a_clone_is_tried_once_while_the_origin_is_away() {
    let host = Host::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let asking = asked.clone();
    let spoil = move |path: &str, answer: Vec<u8>| match path.contains("lab/new") {
        true => {
            asking.fetch_add(1, Ordering::SeqCst);
            Vec::new()
        }
        false => answer,
    };
    let _origin = Origin { spoil: Box::new(spoil), ..Origin::new(&host.lab) }.run(&host.lab);
    let served = host.node();
    let question = Question::Clone {
        version: "lab/read".into(),
        name: "lab/new".parse().unwrap(),
        next: false,
        edit_lock: EditLockChoice::Free,
        tool_version: "test".into(),
    };
    assert_eq!(kind(answer(&served, question)), ErrorKind::Transient);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// A served disk is not discarded; the error names the command to detach it.
#[test]
fn a_disk_that_is_served_is_not_discarded() {
    let host = Host::new();
    let origin = host.run_origin();
    let served = host.node();
    answer(&served, Question::Attach(vec![written("lab/written")])).unwrap();
    served.open("lab/written").unwrap().write(&[9; 4096], 0).unwrap();
    // Another process asks over the control socket.
    let control = ControlSocket::open(&host.dir(), true).unwrap();
    let agent = Agent::open(&served).unwrap();
    let is_stopped = AtomicBool::new(false);
    let (discarded, without_origin) = thread::scope(|scope| {
        scope.spawn(|| {
            control.answer_all(&|| is_stopped.load(Ordering::SeqCst), &|question, stream| {
                crate::answering::answer(&served, &agent, question, stream)
            });
        });
        let discard = || discard_at(&host.dir(), &"lab/written".parse().unwrap(), None);
        let discarded = discard();
        drop(origin);
        std::fs::remove_file(host.lab.socket()).unwrap();
        let without_origin = discard();
        is_stopped.store(true, Ordering::SeqCst);
        control.wake().unwrap();
        (discarded, without_origin)
    });
    for discarded in [discarded, without_origin] {
        let error = discarded.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("platter detach lab/written --then discard"), "{error}");
    }
    // The rest of the disk is at the origin.
    let mut written = [0; 4096];
    served.open("lab/written").unwrap().read(&mut written, 0).unwrap();
    assert_eq!(written, [9; 4096]);
}

/// Unpublished changes in a node's directory are found by commands that name only the store.
#[test]
fn disks_of_a_node_are_found_without_its_directory() {
    let host = Host::new();
    let _origin = host.run_origin();
    let served = host.node();
    answer(&served, Question::Attach(vec![written("lab/written")])).unwrap();
    served.open("lab/written").unwrap().write(&[9; 4096], 0).unwrap();
    drop(served);
    let elsewhere = LivePlace::open(&host.lab.afar().into(), None).unwrap();
    let listed = disks(&elsewhere).unwrap().disks;
    assert_eq!((listed.len(), listed[0].status.written_bytes), (1, Some(4096)));
    assert_eq!(running_node(&elsewhere).unwrap(), None);
    let plain = Served::open(request_at(elsewhere), Default::default(), Box::new(|_| {})).unwrap();
    plain.attach(&written("lab/written")).unwrap();
    assert_eq!(contents(&plain, "lab/written")[..4096], [9; 4096], "above the same overlay");
}

/// An edit lock that was taken for a disk that cannot be served is released, and its overlay removed.
#[test]
fn a_disk_that_cannot_be_served_keeps_no_edit_lock() {
    let host = Host::new();
    let _origin = host.run_origin();
    let served = host.node();
    let unix = |name: &str| ServeAddress::Unix(host.lab.path(name));
    let record = Some(host.lab.path("none/trace"));
    assert_eq!(kind(served.attach(&DiskRequest { record, ..written("lab/written") })), ErrorKind::Io);
    let own = NbdAddress { address: unix("none/nbd.sock"), tls: None, insecure_loopback: false };
    assert!(served.attach(&DiskRequest { nbd: Some(own.clone()), ..written("lab/written") }).is_err());
    assert_eq!((host.edit_locks(), served.list().len(), served.remembered().len()), (0, 0, 0));
    drop(served);
    // The tree is mounted after the edit lock was taken.
    let servers = ServersRequest {
        nbd: Some(NbdAddress { address: unix("nbd.sock"), ..own }),
        fuse: Some(FuseAddress { mount_point: host.lab.path("none"), allow_other: false }),
        ..ServersRequest::default()
    };
    let request = AttachRequest { disks: vec![written("lab/written")], servers, ..host.request() };
    let attached = once_closed(|| attach(request.clone(), Box::new(|_| {})));
    assert_eq!(kind(attached), ErrorKind::Missing);
    let overlays = std::fs::read_dir(host.dir().join("overlays")).unwrap().count();
    assert_eq!((host.edit_locks(), overlays), (0, 0));
}
