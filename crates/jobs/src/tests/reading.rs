//! Tests of reading: the bytes, and the amount and number of fetches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use platter_image::recipe::Recipe;
use platter_image::{ErrorKind, FrameSource};

use super::{capture_to, install_from};
use crate::{DiffRequest, Silent, diff, export};
use platter_client::ServerAddress;
use platter_fetch::RemoteStore;
use platter_fetch::SourceOptions;
use platter_fetch::{CacheLocation, OriginLocation};
use platter_fetch::{OpenStore, StoreLocation};
use platter_testbed::Origin;
use platter_testbed::{Lab, kind, mix, same};

const KIB: usize = 48 << 10;

/// A store with one version, `lab/disk`, its disk, and its stored bytes.
fn stored_lab() -> (Lab, std::path::PathBuf, u64) {
    let lab = Lab::new();
    let disk = lab.disk("disk", KIB, 0);
    let stored = capture_to(lab.here(), &disk, "lab/disk").unwrap().new_stored_bytes;
    (lab, disk, stored)
}

/// The origin, read through a cache in the lab's folder.
fn cached(lab: &Lab) -> RemoteStore {
    let cache = CacheLocation { dir: lab.path("cache"), limit_bytes: 64 << 20 };
    OriginLocation { server: lab.afar(), cache: Some(cache) }.open().unwrap()
}

fn lab() -> (Lab, std::path::PathBuf) {
    let (lab, disk, _) = stored_lab();
    (lab, disk)
}

#[test]
fn install_and_export_give_the_disk_and_fetch_it_about_once() {
    let (lab, disk, stored) = stored_lab();
    let origin = Origin { delay: Duration::from_millis(20), ..Origin::new(&lab) }.run(&lab);
    install_from(lab.afar(), "lab/disk", &lab.path("target")).unwrap();
    assert!(same(&disk, &lab.path("target")));
    let seen = &origin.0.seen;
    let fetched = seen.frame_bytes.load(Ordering::SeqCst) as u64;
    assert!(fetched < stored * 11 / 10, "{fetched} bytes for {stored}");
    let (requests, most) = (seen.frames.load(Ordering::SeqCst), seen.most.load(Ordering::SeqCst));
    assert!(requests < 150, "{requests} requests");
    assert!(most >= 2, "{most} under way at once");
    assert_eq!(seen.exact.load(Ordering::SeqCst), 0, "whole frames are accepted");
    let exported = crate::ExportRequest {
        store: lab.afar().into(),
        version: "lab/disk@1".into(),
        signatures: Default::default(),
    };
    export(&exported, &crate::TargetRequest::new(&lab.path("exported")), &Silent).unwrap();
    assert!(same(&disk, &lab.path("exported")));
}

/// Hinted blocks that arrived stay, whether or not they are read, because they were transferred.
#[test]
fn random_reads_are_exact_and_everything_received_is_kept() {
    let (lab, _) = lab();
    let origin = Origin::new(&lab).run(&lab);
    let remote = cached(&lab);
    let score = remote.resolve("lab/disk").unwrap().score;
    let source = remote.cached_source(score, SourceOptions { exact: true, ..Default::default() }).unwrap();
    let recipe = Recipe::open(score, &*source).unwrap();
    let mut ids = Vec::new();
    for entry in recipe.entries(platter_image::Extent::new(0, recipe.root().disk_length)).take(100) {
        if let platter_image::page::State::Data { block, .. } = entry.unwrap().state {
            ids.push(block);
        }
    }
    source.will_need(&ids);
    while !ids.iter().all(|id| source.is_near(id)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let seen = &origin.0.seen;
    let asked = seen.frames.load(Ordering::SeqCst);
    assert_eq!(seen.exact.load(Ordering::SeqCst), asked);
    assert!(ids.iter().all(|id| source.lease(id).unwrap().is_some()));
    assert_eq!(seen.frames.load(Ordering::SeqCst), asked, "nothing is requested twice");
    let counters = remote.cache().unwrap().counters();
    assert!(counters.fetched_frames >= 10 && counters.misses <= 50, "{counters:?}");
}

/// Like disks that boot from versions with many common blocks.
#[test]
fn blocks_wanted_by_two_disks_are_fetched_once() {
    let (lab, _) = lab();
    capture_to(lab.here(), &lab.disk("other", KIB, 1), "lab/other").unwrap();
    let _origin = Origin::new(&lab).run(&lab);
    let remote = cached(&lab);
    let sources = ["lab/disk", "lab/other"].map(|name| {
        let score = remote.resolve(name).unwrap().score;
        let source =
            remote.cached_source(score, SourceOptions { exact: true, ..Default::default() }).unwrap();
        let recipe = Recipe::open(score, &*source).unwrap();
        let whole = platter_image::Extent::new(0, recipe.root().disk_length);
        let data = recipe.entries(whole).filter_map(|entry| match entry.unwrap().state {
            platter_image::page::State::Data { block, .. } => Some(block),
            _ => None,
        });
        (data.collect::<Vec<_>>(), source)
    });
    let before = remote.cache().unwrap().counters().fetched_bytes;
    sources.iter().for_each(|(ids, source)| source.will_need(ids));
    for (ids, source) in &sources {
        while !ids.iter().all(|id| source.is_near(id)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let counters = remote.cache().unwrap().counters();
    let (came, held) = (counters.fetched_bytes - before, counters.cache_bytes);
    // Crossing requests can split a frame of the origin in two.
    assert!(came < held * 5 / 4, "{came} bytes arrived, {held} are held");
}

/// Every response is truncated somewhere, mostly within a frame.
#[test]
fn the_rest_of_truncated_streams_is_requested_again() {
    let (lab, disk) = lab();
    let count = AtomicUsize::new(0);
    let spoil = move |path: &str, mut answer: Vec<u8>| {
        let n = count.fetch_add(1, Ordering::SeqCst) as u64;
        if path.ends_with("/frames") && !n.is_multiple_of(3) {
            answer.truncate(answer.len() / 2 + mix(n) as usize % (answer.len() / 2));
        }
        answer
    };
    let _origin = Origin { spoil: Box::new(spoil), ..Origin::new(&lab) }.run(&lab);
    install_from(lab.afar(), "lab/disk", &lab.path("target")).unwrap();
    assert!(same(&disk, &lab.path("target")));
}

#[test]
fn local_and_remote_stores_answer_alike() {
    let (lab, _) = lab();
    let changed = lab.disk("changed", KIB, 30);
    capture_to(lab.here(), &changed, "lab/disk").unwrap();
    let _origin = Origin::new(&lab).run(&lab);
    let (here, afar) = (
        OpenStore::open_reader(&lab.here().into()).unwrap(),
        OpenStore::open_reader(&lab.afar().into()).unwrap(),
    );
    assert_eq!(here.images().unwrap(), afar.images().unwrap());
    for name in ["lab/disk", "lab/disk@1", "lab/disk@latest"] {
        assert_eq!(here.resolve(name).unwrap(), afar.resolve(name).unwrap(), "{name}");
    }
    let score = here.resolve("lab/disk@1").unwrap().score.to_string();
    assert_eq!(here.resolve(&score).unwrap(), afar.resolve(&score).unwrap());
    assert_eq!(kind(afar.resolve("lab/none")), ErrorKind::Missing);
    assert_eq!(kind(afar.resolve("../x?")), ErrorKind::Refused);
    let differs = |store: StoreLocation| {
        let request =
            DiffRequest { store, a: "lab/disk@1".into(), b: "lab/disk@2".into(), places: None, blocks: true };
        let mut events = Vec::new();
        let report = diff(&request, &mut |event| events.push(format!("{event:?}"))).unwrap();
        (events, report.new_blocks, report.changed_bytes)
    };
    assert_eq!(differs(lab.here().into()), differs(lab.afar().into()));
}

#[test]
fn jobs_that_need_a_local_store_are_refused_with_advice() {
    let lab = Lab::new();
    let error = StoreLocation::from(lab.afar()).local("checking a store").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains(&ServerAddress::Unix(lab.socket()).to_string()), "{error}");
}
