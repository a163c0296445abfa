//! The store whose bytes are changed: a few small disks, and at least one of everything that a store can hold.

use std::path::Path;

use platter_collection::CollectRequest;
use platter_encryption::{Cost, KeyFile, MasterKey, Secret, SecretKind};
use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Entry, State};
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{BlockId, Domain, Extent, FrameStore, Kind, Score};
use platter_records::Action;
use platter_records::{
    BootBlock, BootSet, BootSetRecord, Follower, ImageName, NumberChoice, Standing, Version, VersionRecord,
};
use platter_store::{Session, StandingChange, Store, StorePlace, rebuild};
use zeroize::Zeroizing;

use super::facts::Facts;
use super::{Files, files_of};

const CHEAP: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };

pub(crate) fn place_of(dir: &Path) -> StorePlace {
    // Small, so that the reserve is; and every pack gets into the index on disk.
    StorePlace::on_system(dir).with_pack_length_target(1 << 20).with_index_blocks(1)
}

/// The contents of a block: noise, which is stored as it is, or text, which is compressed.
pub(crate) fn contents(number: u64) -> Vec<u8> {
    let length = 512 * (1 + number as usize % 3);
    if number.is_multiple_of(2) {
        return format!("block {number} ").bytes().cycle().take(length).collect();
    }
    let mut state = number;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    });
    noise.take(length).collect()
}

pub(crate) fn image(name: &str) -> ImageName {
    name.parse().unwrap()
}

/// The secrets of the encrypted store, one for each slot.
pub(crate) fn secrets() -> [Secret; 2] {
    let secret = |kind, text: &str| Secret::new(kind, Zeroizing::new(text.as_bytes().to_vec())).unwrap();
    [secret(SecretKind::Passphrase, "correct horse"), secret(SecretKind::File, "battery staple")]
}

/// A sound store.
pub(crate) struct Sample {
    _dir: tempfile::TempDir,
    pub(crate) place: StorePlace,
    pub(crate) files: Files,
    pub(crate) facts: Facts,
    /// The disks of the versions in `Facts`, by score.
    pub(crate) disks: Vec<(Score, Vec<u8>)>,
    pub(crate) is_encrypted: bool,
}

/// What is being put into a store.
struct Maker {
    place: StorePlace,
    disks: Vec<(Score, Vec<u8>)>,
}

impl Maker {
    fn writer(&self) -> Store {
        Store::open_writer(&self.place).unwrap()
    }

    fn pages(&mut self, domain: Domain, numbers: &[u64]) -> (Score, Vec<(BlockId, Vec<u8>)>) {
        let length = numbers.iter().map(|number| contents(*number).len() as u64).sum();
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let mut recipe = RecipeBuilder::new(length, 512, policy, domain, Vec::<(BlockId, Vec<u8>)>::new());
        let mut disk = Vec::new();
        for number in numbers {
            let bytes = contents(*number);
            let block = domain.id_of(Kind::Data, &bytes).unwrap();
            let extent = Extent::new(disk.len() as u64, bytes.len() as u64);
            recipe.push(Entry { extent, state: State::Data { block, offset: 0 } }).unwrap();
            disk.extend(bytes);
        }
        let (score, pages) = recipe.finish().unwrap();
        self.disks.push((score, disk));
        (score, pages)
    }

    /// Adds the blocks that the store lacks, two to a frame.
    fn append(session: &Session, kind: Kind, blocks: &[(BlockId, Vec<u8>)]) {
        let mut compressor = Compressor::new(3).unwrap();
        let new: Vec<_> =
            blocks.iter().filter(|(id, _)| session.lookup_and_pin(id).unwrap().is_none()).collect();
        for pair in new.chunks(2) {
            let mut frame = FrameBuilder::new(kind, session.domain(), 1 << 17);
            pair.iter().for_each(|(id, bytes)| frame.push(*id, bytes));
            session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
        }
    }

    fn publish(&mut self, store: &Store, name: &str, numbers: &[u64]) -> Version {
        let (session, domain) = (store.session().unwrap(), store.domain());
        let data: Vec<_> = numbers
            .iter()
            .map(|number| (domain.id_of(Kind::Data, &contents(*number)).unwrap(), contents(*number)))
            .collect();
        Self::append(&session, Kind::Data, &data);
        let (score, pages) = self.pages(domain, numbers);
        Self::append(&session, Kind::Page, &pages);
        let mut draft = VersionRecord::draft(image(name), score, 1_700_000_000_000);
        draft.disk_length = data.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        draft.notes = format!("notes of {name}");
        draft.labels.insert("color".into(), "green".into());
        session.publish(draft).unwrap()
    }

    fn boot_set(store: &Store, version: &Version, numbers: &[u64], pages: &[(BlockId, Vec<u8>)]) {
        let domain = store.domain();
        let blocks: Vec<BootBlock> = numbers
            .iter()
            .map(|number| {
                let bytes = contents(*number);
                BootBlock::new(domain.id_of(Kind::Data, &bytes).unwrap(), bytes.len() as u64)
            })
            .collect();
        let pages: Vec<BootBlock> =
            pages.iter().map(|(id, bytes)| BootBlock::new(*id, bytes.len() as u64)).collect();
        let record = BootSetRecord {
            version: version.name.clone(),
            score: version.record.score,
            marker: "port:22".into(),
            command: String::new(),
            accelerator: "kvm".into(),
            time_unix_ms: 5,
            duration_ms: 6,
            requests: 7,
            bytes_read: 8,
            pages: pages.len() as u32,
            blocks: blocks.len() as u32,
            bytes: pages.iter().chain(&blocks).map(BootBlock::length).sum(),
            tool_version: String::new(),
            boots: 0,
            nodes: Vec::new(),
        };
        let set = BootSet { record, pages, blocks };
        store.register_boot_set(&version.name, &set, 7).unwrap();
    }

    /// Everything that changes names.
    fn eventful(&mut self) {
        let store = self.writer();
        let first = [1, 2, 3, 4];
        let version = self.publish(&store, "lab/disk", &first);
        let (_, mut pages) = self.pages(store.domain(), &first);
        pages.sort_by_key(|(id, _)| *id != version.record.score.0);
        Self::boot_set(&store, &version, &[3, 1], &pages);
        drop(store);
        // What was logged before is then in an earlier log.
        rebuild(&self.place).unwrap();
        let store = self.writer();
        self.publish(&store, "lab/disk", &[1, 2, 5, 6]);
        self.publish(&store, "lab/old", &[7, 2]);
        store.rename(&image("lab/old"), &image("attic/old")).unwrap();
        let version = store.version(&image("lab/disk"), NumberChoice::Latest).unwrap();
        let draft = VersionRecord {
            image: image("copy"),
            cloned_from: Some(version.name.clone()),
            edit_lock: None,
            ..version.record
        };
        store.session().unwrap().publish(draft).unwrap();
        store.protect(&image("lab/disk"), Some(1), true).unwrap();
        store.take_edit_lock(&image("copy"), "somebody@here", 1).unwrap();
        store.set_quota(&image("lab"), Some(1 << 30)).unwrap();
        store.hoard_follow(&image("lab/disk"), Some("{}")).unwrap();
        let standing = Standing::Origin {
            epoch: 1,
            address: "unix:/somewhere".into(),
            former: Vec::new(),
            missing: Vec::new(),
            promotion: "0123456789abcdef".into(),
            conflicts: Vec::new(),
        };
        let action = Action::Rebuild {};
        store
            .change_standing(|_, _| Ok(Some(StandingChange { standing, action, used: Vec::new() })))
            .unwrap();
        store
            .register_follower(Follower {
                id: "00112233445566778899aabbccddeeff".into(),
                name: "node".into(),
                address: String::new(),
                number: 3,
                seen_unix_ms: 5,
            })
            .unwrap();
        self.publish(&store, "gone", &[31, 33, 35]);
        self.disks.pop();
        store.forget(&image("gone"), None).unwrap();
    }

    /// Leaves a dead pack, an index of all others, and the observation that all were read.
    fn settle(&self) {
        let store = self.writer();
        let request = CollectRequest {
            now_unix_ms: 1_700_000_000_000,
            keep_trash_ms: i64::MAX / 2,
            dry_run: false,
            is_confirmed: true,
            compact_percent: 0,
            recompress: None,
            end_leases: false,
        };
        let report = store.collect(&request, &|| Ok(Vec::new()), &mut |_| {}).unwrap();
        drop((report, store));
        drop(self.writer());
        let options = platter_store::CheckOptions { read_data: true, ..Default::default() };
        let report = Store::open_reader(&self.place).unwrap().check(options, &mut |_| {}).unwrap();
        assert_eq!(report.verdict, platter_store::Verdict::Clean, "{report:?}");
    }
}

impl Sample {
    pub(crate) fn new(is_encrypted: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = place_of(dir.path());
        if is_encrypted {
            let master = MasterKey::random().unwrap();
            let mut keys = KeyFile::new(&master);
            for (secret, label) in secrets().iter().zip(["people", "server"]) {
                keys.add(&master, label, secret, CHEAP).unwrap();
            }
            Store::init_encrypted(&place, &keys).unwrap();
            master.use_in_process().unwrap();
        } else {
            Store::init(&place).unwrap();
        }
        let mut maker = Maker { place: place.clone(), disks: Vec::new() };
        maker.eventful();
        maker.settle();
        let mut sample = Self {
            _dir: dir,
            files: files_of(place.dir()),
            place,
            facts: Facts::default(),
            disks: maker.disks,
            is_encrypted,
        };
        sample.facts = Facts::read(&sample.place, &sample);
        assert!(sample.facts.is_complete(), "{:?}", sample.facts);
        sample.files = files_of(sample.place.dir());
        sample
    }
}
