//! Copies between stores of all kinds.

use std::sync::atomic::Ordering;

use platter_image::{ErrorKind, FrameIndex, Kind};
use platter_records::{Imported, NumberChoice};
use platter_store::{CollectRequest, KnownCheck, Store, StorePlace};
use platter_testbed::{Lab, mix, store_disk};

use super::{PushReport, PushRequest, push};
use crate::Silent;

/// Bytes of a disk.
fn disk(kib: usize, key: u64) -> Vec<u8> {
    let own = |n: u64| if n >> 13 & 1 == 0 { key << 40 } else { 0 };
    (0..(kib << 7) as u64).flat_map(|n| mix(n | own(n)).to_le_bytes()).collect()
}

fn other(lab: &Lab, name: &str) -> StorePlace {
    let place = StorePlace::on_system(lab.path(name));
    Store::init(&place).unwrap();
    place
}

fn copy(from: &StorePlace, to: &StorePlace, what: &str) -> PushReport {
    let request = PushRequest {
        from: from.clone().into(),
        to: to.clone().into(),
        what: vec![what.parse().unwrap()],
        restore: false,
        known: KnownCheck::Sample,
    };
    push(&request, &Silent).unwrap()
}

fn results(report: &PushReport) -> Vec<(&str, Imported)> {
    report.versions.iter().map(|version| (version.version.as_str(), version.result)).collect()
}

#[test]
fn versions_keep_everything_and_travel_once() {
    let lab = Lab::new();
    store_disk(&lab.place, "lab/a", &disk(2048, 1));
    store_disk(&lab.place, "lab/a", &disk(2048, 2));
    let to = other(&lab, "other");
    let report = copy(&lab.place, &to, "lab/a");
    assert_eq!(results(&report), [("lab/a@1", Imported::Added), ("lab/a@2", Imported::Added)]);
    assert!(report.failed.is_empty() && report.bytes > 0);
    let (here, there) = (Store::open_reader(&lab.place).unwrap(), Store::open_reader(&to).unwrap());
    let image = "lab/a".parse().unwrap();
    assert_eq!(here.history(&image).unwrap(), there.history(&image).unwrap());
    let again = copy(&lab.place, &to, "lab/a");
    assert_eq!(again.blocks, 0);
    assert_eq!(results(&again)[1], ("lab/a@2", Imported::Present));
    // What was forgotten there stays so.
    there.forget(&image, Some(1)).unwrap();
    let again = copy(&lab.place, &to, "lab/a");
    assert_eq!((results(&again)[0], again.failure), (("lab/a@1", Imported::Former), None));
    assert_eq!(
        copy(&lab.place, &to, "lab/a@1").failure,
        Some(ErrorKind::Refused),
        "it was asked for by name"
    );
    // Also if nothing of it is left there: it is not sent.
    let bare = other(&lab, "bare");
    copy(&lab.place, &bare, "lab/a");
    let store = Store::open_writer(&bare).unwrap();
    store.forget(&image, None).unwrap();
    let now_unix_ms = 1 << 50;
    let (keep_trash_ms, compact_percent) = (0, 0);
    let request = CollectRequest {
        now_unix_ms,
        keep_trash_ms,
        dry_run: false,
        is_confirmed: true,
        compact_percent,
        recompress: None,
        end_leases: false,
    };
    store.collect(&request, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
    drop(store);
    let again = copy(&lab.place, &bare, "lab/a");
    assert_eq!((again.bytes, again.failure), (0, None));
    // Another disk under the name is a conflict, and the other image is copied all the same.
    store_disk(&to, "lab/b", &disk(64, 3));
    store_disk(&lab.place, "lab/b", &disk(64, 4));
    let conflict = copy(&lab.place, &to, "lab/b");
    assert_eq!(conflict.failure, Some(ErrorKind::Refused));
    assert!(conflict.failed[0].1.contains("lab/b@1"), "{:?}", conflict.failed);
}

/// Overwrites the middle of the only frame that has a block.
fn damage(place: &StorePlace, id: &platter_image::BlockId) {
    let store = Store::open_reader(place).unwrap();
    let frame = store.locate(id).unwrap().unwrap().frame;
    let pack = store.pack_id(frame).unwrap().to_string();
    let path = place.dir().join("packs").join(&pack[..2]).join(format!("{pack}.pack"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[frame.offset as usize + frame.length as usize - 9] ^= 0xff;
    std::fs::write(path, bytes).unwrap();
}

fn a_block(place: &StorePlace) -> platter_image::BlockId {
    let store = Store::open_reader(place).unwrap();
    let version = store.version(&"lab/a".parse().unwrap(), NumberChoice::Latest).unwrap();
    let recipe = platter_image::recipe::Recipe::open(version.record.score, &store).unwrap();
    let whole = platter_image::Extent::new(0, recipe.root().disk_length);
    let block = recipe.entries(whole).find_map(|entry| match entry.unwrap().state {
        platter_image::page::State::Data { block, .. } => Some(block),
        _ => None,
    });
    block.unwrap()
}

#[test]
fn damage_at_the_source_is_named_and_damage_at_the_target_is_mended() {
    let lab = Lab::new();
    store_disk(&lab.place, "lab/a", &disk(1024, 1));
    let (to, third) = (other(&lab, "other"), other(&lab, "third"));
    copy(&lab.place, &to, "lab/a");
    let block = a_block(&to);
    damage(&to, &block);
    let report = copy(&to, &third, "lab/a");
    assert_eq!(report.failure, Some(ErrorKind::Corrupt));
    assert!(report.failed[0].1.contains("block "), "{:?}", report.failed);
    // The damage was found by reading, so the same copy now sends the block again.
    let mended = copy(&lab.place, &to, "lab/a");
    assert!(mended.blocks > 0);
    assert!(Store::open_reader(&to).unwrap().read_block(Kind::Data, &block).is_ok());
    assert_eq!(results(&copy(&to, &third, "lab/a")), [("lab/a@1", Imported::Added)]);
}

#[test]
fn an_origin_is_a_source_and_only_the_rest_is_fetched() {
    let lab = Lab::new();
    store_disk(&lab.place, "lab/a", &disk(2048, 1));
    let running = platter_testbed::Origin::new(&lab).run(&lab);
    let to = other(&lab, "other");
    let request = PushRequest {
        from: lab.afar().into(),
        to: to.clone().into(),
        what: vec!["lab/a@1".parse().unwrap()],
        restore: false,
        known: KnownCheck::Sample,
    };
    // An interrupted copy leaves its frames.
    store_disk(&to, "lab/part", &disk(2048, 1)[..1 << 20]);
    let report = push(&request, &Silent).unwrap();
    assert_eq!(results(&report), [("lab/a@1", Imported::Added)]);
    assert!(report.bytes < 3 << 19, "{} of 2 MiB", report.bytes);
    assert!(running.0.seen.frames.load(Ordering::Relaxed) > 0);
}
