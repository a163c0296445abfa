//! Tests of single findings. `tests/simulation` damages whole stores.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "test code that replaces the store's files directly"
)]

use platter_collection::CollectRequest;
use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::Entry;
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{Domain, Extent, FrameStore};
use platter_records::Action;

use super::*;
use crate::place::StorePlace;

/// A store with `a@1`, a disk of zeros and one block.
fn store_with_version() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    let mut compressor = Compressor::new(3).unwrap();
    let contents = [7; 4096];
    let block = BlockId::of(Kind::Data, &contents);
    let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 17);
    frame.push(block, &contents);
    session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
    let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
    let known = Vec::<(BlockId, Vec<u8>)>::new();
    let mut recipe = RecipeBuilder::new(8192, 512, policy, Domain::SHARED, known);
    let state = platter_image::page::State::Data { block, offset: 0 };
    recipe.push(Entry { extent: Extent::new(0, 4096), state }).unwrap();
    let (score, pages) = recipe.finish().unwrap();
    let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 17);
    pages.iter().for_each(|(id, page)| frame.push(*id, page));
    session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
    let draft = VersionRecord {
        cut_policy: 1,
        disk_length: 8192,
        sector_size: 512,
        ..VersionRecord::draft("a".parse().unwrap(), score, 5)
    };
    session.publish(draft).unwrap();
    (folder, store)
}

fn check(store: &Store) -> Result<CheckReport> {
    store.check(CheckOptions::default(), &mut |_| {})
}

#[test]
fn a_record_that_the_catalog_changed_is_found() {
    let (_folder, store) = store_with_version();
    store.rename(&"a".parse().unwrap(), &"b".parse().unwrap()).unwrap();
    assert_eq!(check(&store).unwrap().verdict, Verdict::Clean);
    store
        .change_catalog(|change| {
            let mut version = change.versions_by_time()?.remove(0);
            version.record.labels.insert("room".into(), "3".into());
            change.replace_record(&version)?;
            change.does(Action::Sign { version: version.name });
            Ok(Ok(()))
        })
        .unwrap();
    let report = check(&store).unwrap();
    assert_eq!(report.verdict, Verdict::Damaged);
    assert!(report.findings[0].what.contains("record differs"), "{:?}", report.findings);
}

/// A collection keeps what is below overlays, so a check looks at it, too.
#[test]
fn what_a_forgotten_version_had_is_checked_below_an_overlay() {
    let (_folder, store) = store_with_version();
    let score = store.versions().unwrap()[0].record.score;
    store.forget(&"a".parse().unwrap(), None).unwrap();
    let bases = || Ok(vec![score]);
    let check = |store: &Store| store.check_with_roots(CheckOptions::default(), &bases, &mut |_| {}).unwrap();
    assert!(check(&store).verdict < Verdict::Leaks);
    // Without the overlay, its blocks are collected.
    let request = CollectRequest {
        now_unix_ms: 9,
        keep_trash_ms: 0,
        dry_run: false,
        is_confirmed: true,
        compact_percent: 20,
        recompress: None,
        end_leases: false,
    };
    let kept = store.collect(&request, &bases, &mut |_| {}).unwrap();
    assert!(kept.given_up.packs == 0 && check(&store).verdict < Verdict::Leaks, "{kept:?}");
    store.collect(&request, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
    assert!(store.check(CheckOptions::default(), &mut |_| {}).unwrap().verdict < Verdict::Leaks);
    let report = check(&store);
    assert_eq!(report.verdict, Verdict::Damaged);
    assert!(report.findings[0].what.contains("changes to a live disk are based"), "{:?}", report.findings);
    // An overlay that cannot be read is damage.
    let report =
        store.check_with_roots(CheckOptions::default(), &|| Err(Error::corrupt("an overlay")), &mut |_| {});
    assert_eq!(report.unwrap().verdict, Verdict::Damaged);
}

#[test]
fn a_check_beside_a_rebuild_says_so() {
    let (_folder, store) = store_with_version();
    let unfinished = store.place().unfinished().catalog();
    std::fs::write(&unfinished, "").unwrap();
    // This store holds the lock, as a rebuild does.
    let error = check(&store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
    assert!(error.to_string().contains("a rebuild is running"), "{error}");
    let place = store.place().clone();
    drop(store);
    // What an interrupted rebuild left does not count.
    let store = Store::open_reader(&place).unwrap();
    assert!(check(&store).unwrap().verdict < Verdict::Leaks);
    // A catalog that was replaced before the check counts.
    std::fs::copy(place.catalog(), &unfinished).unwrap();
    std::fs::rename(&unfinished, place.catalog()).unwrap();
    assert!(check(&store).unwrap().verdict < Verdict::Leaks);
    // One that is replaced meanwhile does not.
    let replaced = store.check(CheckOptions::default(), &mut |_| {
        std::fs::copy(place.catalog(), &unfinished).unwrap();
        std::fs::rename(&unfinished, place.catalog()).unwrap();
    });
    assert_eq!(replaced.unwrap_err().kind(), ErrorKind::Transient);
}
