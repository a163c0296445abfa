//! The samples of the format: what this version writes for fixed contents is what the seeds of the fuzz target contain, so every
//! version keeps reading them.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "test code")]

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use platter_image::{BlockId, Kind};
use platter_index::{Entry, IndexFolder, NewPack, PAGE_LENGTH, decode_page};
use platter_records::{PackId, StoreId};
use platter_vfs::simulated::SimulatedDisk;
use platter_vfs::{Entry as DirEntry, OpenMode, Vfs, VfsFile};

/// A simulated disk whose first random id is zero, the second one is one, and so on.
#[derive(Debug)]
struct Numbered(SimulatedDisk, AtomicU8);

impl Vfs for Numbered {
    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<Box<dyn VfsFile>> {
        self.0.open(path, mode)
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> std::io::Result<()> {
        self.0.remove(path)
    }
    fn create_dir(&self, path: &Path) -> std::io::Result<()> {
        self.0.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        self.0.sync_dir(path)
    }
    fn list(&self, path: &Path) -> std::io::Result<Vec<DirEntry>> {
        self.0.list(path)
    }
    fn exists(&self, path: &Path) -> std::io::Result<bool> {
        self.0.exists(path)
    }
    fn lock(&self, path: &Path) -> std::io::Result<Option<Box<dyn VfsFile>>> {
        self.0.lock(path)
    }
    fn free_space(&self, path: &Path) -> std::io::Result<u64> {
        self.0.free_space(path)
    }
    fn random_id(&self) -> std::io::Result<[u8; 16]> {
        Ok([self.1.fetch_add(1, Ordering::Relaxed); 16])
    }
}

#[test]
fn the_samples_are_what_is_written() {
    let disk = Numbered(SimulatedDisk::new(1), AtomicU8::new(0));
    let folder = IndexFolder::new(&disk, Path::new("/index"), StoreId([9; 16]), 1 << 20);
    let entries: Vec<Entry> = (0..150_u64)
        .map(|number| Entry {
            id: BlockId::of(Kind::Data, &number.to_le_bytes()),
            pack: 0,
            offset: 64 + number / 4 * 90_000,
            slot: number as u16 % 4,
            length: 90_128,
        })
        .collect();
    let packs = vec![NewPack { id: PackId([5; 16]), entries: entries.clone() }];
    let snapshot = folder.add(None, packs, &|_| true).unwrap();
    let segment = disk.0.contents(Path::new("/index/00000000000000000000000000000000.segment")).unwrap();
    let manifest = disk.0.contents(Path::new("/index/manifest")).unwrap();
    let page = &segment[PAGE_LENGTH..2 * PAGE_LENGTH];
    let samples = [
        ("index-manifest-v1", &manifest[..]),
        ("index-page-v1", page),
        ("index-segment-v1", &segment[..]),
        ("index-segment-head-v1", &segment[..PAGE_LENGTH]),
    ];
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/index");
    for (name, bytes) in samples {
        if std::env::var_os("PLATTER_WRITE_SAMPLES").is_some() {
            std::fs::create_dir_all(&seeds).unwrap();
            std::fs::write(seeds.join(name), bytes).unwrap();
        }
        assert!(std::fs::read(seeds.join(name)).unwrap() == bytes, "{name} is not what is written now");
    }
    let found = decode_page([0; 16], 0, page).unwrap();
    assert!(found.iter().all(|entry| entries.contains(entry)) && found.len() == 85);
    assert_eq!(snapshot.entries_of(0).unwrap(), entries);
}
