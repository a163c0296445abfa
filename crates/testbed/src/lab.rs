//! A temporary folder with a store and disks.

use std::path::{Path, PathBuf};

use platter_client::{ServerAddress, ServerOptions};
use platter_disk::capture::{CaptureOptions, capture};
use platter_disk::{SurveyOptions, survey};
use platter_image::{DiskRead, ErrorKind, Result};
use platter_records::VersionRecord;
use platter_store::{Store, StorePlace};
use platter_transport::Trust;
use tempfile::TempDir;

/// A temporary folder with a store and the socket of an origin.
pub struct Lab {
    folder: TempDir,
    /// The store.
    pub place: StorePlace,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Lab {
    /// A new folder with an empty store.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        Self { folder, place }
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The address of the origin.
    pub fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    /// The store, opened directly, without an origin.
    pub fn here(&self) -> StorePlace {
        self.place.clone()
    }

    /// The store, opened through its origin.
    pub fn afar(&self) -> ServerOptions {
        ServerOptions { address: ServerAddress::Unix(self.socket()), token: None, trust: Trust::System }
    }

    /// A disk of `kib` KiB: pieces of 64 KiB with random bytes, text or zeros. Of 1000 pieces, `change` differ from
    /// those of the disk with `change` 0.
    pub fn disk(&self, name: &str, kib: usize, change: u64) -> PathBuf {
        let mut bytes = Vec::with_capacity(kib << 10);
        for piece in 0..(kib / 64) as u64 {
            let own = if mix(piece) % 1000 < change { 1 << 40 } else { 0 };
            match mix(piece ^ 77) % 8 {
                0 => bytes.extend([0; 65536]),
                1..=3 => {
                    let words = format!("piece {} of a text that compresses ", piece + own);
                    bytes.extend(words.bytes().cycle().take(65536));
                }
                _ => bytes.extend((0..8192).flat_map(|n| mix((piece + own) << 16 | n).to_le_bytes())),
            }
        }
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

struct Bytes<'a>(&'a [u8]);

impl DiskRead for Bytes<'_> {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
        Ok(())
    }
}

/// Captures a disk of these bytes, without looking for file systems, as the next version of an image of a store.
pub fn store_disk(place: &StorePlace, image: &str, bytes: &[u8]) {
    let disk = Bytes(bytes);
    let surveyed = survey(&disk, None, &SurveyOptions { raw: true, ..Default::default() }).unwrap();
    let regions: Vec<_> = surveyed.parts.into_iter().map(|part| part.region).collect();
    let session = Store::open_writer(place).unwrap().session().unwrap();
    let captured = capture(&disk, &regions, None, &session, CaptureOptions::default(), &mut |_| {}).unwrap();
    let draft = VersionRecord {
        allocated_bytes: captured.counts.allocated,
        disk_length: bytes.len() as u64,
        sector_size: 512,
        cut_policy: CaptureOptions::default().cut_policy.0,
        ..VersionRecord::draft(image.parse().unwrap(), captured.score, 1)
    };
    session.publish(draft).unwrap();
}

/// Returns a pseudorandom number, always the same for the same argument.
pub fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Whether two files have the same contents.
pub fn same(a: &Path, b: &Path) -> bool {
    std::fs::read(a).unwrap() == std::fs::read(b).unwrap()
}

/// The kind of an error.
pub fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it worked"),
        Err(error) => error.kind(),
    }
}
