//! Quotas: what they count, compared with a count of everything by brute force over random changes of names, and that no change
//! exceeds one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![allow(clippy::disallowed_methods, reason = "removes files of the store")]

mod disks;

use std::collections::{BTreeMap, BTreeSet};

use disks::{Parts, add_disk};
use platter_image::{BlockId, ErrorKind, Score};
use platter_records::{ImageName, Imported, Signature, StoreId, VersionName, VersionRecord};
use platter_store::{Session, Store, StorePlace, rebuild};

const PREFIXES: [&str; 3] = ["lab", "lab/a", "x"];
const IMAGES: [&str; 5] = ["lab/a/one", "lab/a/two", "lab/b", "x", "y"];

fn name(text: &str) -> ImageName {
    text.parse().unwrap()
}

fn draft(image: &ImageName, score: Score, length: u64) -> VersionRecord {
    let mut draft = VersionRecord::draft(image.clone(), score, 1_700_000_000_000);
    draft.disk_length = length;
    draft
}

/// Numbers that depend on a seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// A store, and beside it what every disk consists of.
struct Model {
    place: StorePlace,
    store: Store,
    disks: BTreeMap<Score, (u64, Parts)>,
    quotas: BTreeMap<String, u64>,
}

impl Model {
    fn covers(prefix: &str, image: &ImageName) -> bool {
        image.as_str() == prefix || image.as_str().starts_with(&format!("{prefix}/"))
    }

    /// Counts by brute force, with another version if there is one, and with other names.
    fn used(
        &self,
        prefix: &str,
        more: Option<(&ImageName, Score)>,
        rename: impl Fn(&ImageName) -> ImageName,
    ) -> u64 {
        let versions = self.store.versions().unwrap();
        let mut names: Vec<(ImageName, Score)> =
            versions.iter().map(|version| (rename(&version.name.image), version.record.score)).collect();
        names.extend(more.map(|(image, score)| (image.clone(), score)));
        let counted = names.iter().filter(|(image, _)| Self::covers(prefix, image));
        let parts: BTreeSet<(BlockId, u64)> = counted
            .flat_map(|(_, score)| self.disks[score].1.iter().map(|(id, bytes)| (*id, *bytes)))
            .collect();
        parts.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Whether no quota forbids a change.
    fn allows(
        &self,
        more: Option<(&ImageName, Score)>,
        rename: impl Fn(&ImageName) -> ImageName + Copy,
    ) -> bool {
        self.quotas.iter().all(|(prefix, limit)| {
            let (before, after) =
                (self.used(prefix, None, ImageName::clone), self.used(prefix, more, rename));
            after <= *limit || after <= before
        })
    }

    fn publish(&self, session: Session, image: &ImageName, score: Score) {
        let is_allowed = self.allows(Some((image, score)), ImageName::clone);
        let done = session.publish(draft(image, score, self.disks[&score].0));
        match done {
            Ok(_) => assert!(is_allowed, "{image} exceeds a quota"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Refused);
                assert!(error.to_string().contains("quota of") && !is_allowed, "{image}: {error}");
            }
        }
    }

    fn rename(&self, from: &ImageName, to: &ImageName) {
        let renamed = |image: &ImageName| if image == from { to.clone() } else { image.clone() };
        let is_allowed = self.allows(None, renamed);
        match self.store.rename(from, to) {
            Ok(_) => assert!(is_allowed, "{from} to {to} exceeds a quota"),
            Err(error) if error.to_string().contains("quota of") => assert!(!is_allowed, "{error}"),
            // Names that were used, or do not exist.
            Err(_) => {}
        }
    }

    fn compare(&self) {
        for listed in self.store.quotas(&|_| true).unwrap() {
            let prefix = listed.quota.prefix.as_str();
            assert_eq!(self.quotas[prefix], listed.quota.limit_bytes);
            assert_eq!(self.used(prefix, None, ImageName::clone), listed.used_bytes, "{prefix}");
        }
        assert_eq!(self.store.quotas(&|_| true).unwrap().len(), self.quotas.len());
    }
}

fn run(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    let mut model = Model { place, store, disks: BTreeMap::new(), quotas: BTreeMap::new() };
    let mut random = Random(seed);
    for _ in 0..60 {
        let image = name(IMAGES[random.below(IMAGES.len())]);
        match random.below(8) {
            0..=2 => {
                let session = model.store.session().unwrap();
                let numbers: Vec<u8> = (0..1 + random.below(5)).map(|_| 1 + random.below(24) as u8).collect();
                let (score, length, parts) = add_disk(&session, &numbers);
                model.disks.insert(score, (length, parts));
                model.publish(session, &image, score);
            }
            3 => {
                let versions = model.store.versions().unwrap();
                if let Some(version) = versions.get(random.below(versions.len().max(1))) {
                    model.publish(model.store.session().unwrap(), &image, version.record.score);
                }
            }
            4 => drop(model.store.forget(&image, None)),
            5 => model.rename(&image, &name(&format!("{}{}", IMAGES[random.below(5)], random.below(3)))),
            6 => {
                let prefix = PREFIXES[random.below(3)];
                let limit = 2000 + random.below(30_000) as u64;
                model.store.set_quota(&name(prefix), Some(limit)).unwrap();
                model.quotas.insert(prefix.to_owned(), limit);
            }
            _ => {
                let Model { place, store, .. } = model;
                drop(store);
                let store = Store::open_writer(&place).unwrap();
                model = Model { place, store, ..model };
            }
        }
        model.compare();
    }
    let before = model.store.quotas(&|_| true).unwrap();
    let Model { place, store, .. } = model;
    drop(store);
    std::fs::remove_file(place.dir().join("catalog.sqlite")).unwrap();
    rebuild(&place).unwrap();
    assert_eq!(Store::open_writer(&place).unwrap().quotas(&|_| true).unwrap(), before);
}

#[test]
fn quotas_count_what_brute_force_counts() {
    for seed in 1..=12 {
        run(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
    }
}

/// A version that was forgotten here stays so, and a name that another disk has is a conflict, whatever the quota is.
#[test]
fn an_import_is_decided_before_it_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    let image = name("lab/a");
    let publish = |number| {
        let session = store.session().unwrap();
        let (score, length, _) = add_disk(&session, &[number]);
        session.publish(draft(&image, score, length)).unwrap().record
    };
    let (forgotten, kept) = (publish(1), publish(2));
    store.forget(&image, Some(forgotten.number)).unwrap();
    store.set_quota(&name("lab"), Some(1)).unwrap();
    let import = |record: &VersionRecord, restore| store.session().unwrap().import(record, restore);
    assert_eq!(import(&forgotten, false).unwrap(), Imported::Former);
    assert_eq!(import(&kept, false).unwrap(), Imported::Present);
    let other = VersionRecord { score: forgotten.score, disk_length: forgotten.disk_length, ..kept.clone() };
    let conflict = import(&other, false).unwrap_err().to_string();
    assert!(conflict.contains("another disk named lab/a@2"), "{conflict}");
    let refusal = import(&forgotten, true).unwrap_err().to_string();
    assert!(refusal.contains("quota of lab"), "{refusal}");
    store.set_quota(&name("lab"), None).unwrap();
    assert_eq!(import(&forgotten, true).unwrap(), Imported::Added);
}

/// What no catalog can read again is not written, and a signature without room ends no other session.
#[test]
fn an_impossible_import_is_refused_and_the_store_stays_usable() {
    let folder = tempfile::tempdir().unwrap();
    let place = StorePlace::on_system(folder.path().join("store"));
    Store::init(&place).unwrap();
    let store = Store::open_writer(&place).unwrap();
    let session = store.session().unwrap();
    let (score, length, _) = add_disk(&session, &[1]);
    let mut long = draft(&name("lab/a"), score, length);
    long.notes = "n".repeat(64_000);
    let here = session.publish(long).unwrap().record;
    let import = |record: &VersionRecord| store.session().unwrap().import(record, false);
    for number in [0, 1 << 63] {
        let before = VersionName { image: name("lab/b"), number };
        let bad = VersionRecord { number: 7, renamed_from: Some(before), ..here.clone() };
        let refusal = import(&bad).unwrap_err().to_string();
        assert!(refusal.contains("invalid number"), "{refusal}");
    }
    let signature = Signature { store: StoreId([7; 16]), text: "s".repeat(1_000) };
    let signed = VersionRecord { signatures: vec![signature; 3], ..here.clone() };
    let refusal = import(&signed).unwrap_err().to_string();
    assert!(refusal.contains("shorten labels and notes"), "{refusal}");
    assert_eq!(import(&here).unwrap(), Imported::Present, "other sessions go on");
    drop(store);
    assert_eq!(Store::open_writer(&place).unwrap().versions().unwrap().len(), 1);
}
