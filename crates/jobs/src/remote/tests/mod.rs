//! Jobs over an origin of a few lines, on a real store, that can be told to misbehave.

mod hostile;
mod origin;
mod reading;
mod uploading;

use std::path::{Path, PathBuf};

use platter_image::ErrorKind;
use platter_store::{Store, StorePlace};
use tempfile::TempDir;

use crate::{
    CaptureReport, CaptureRequest, InstallRequest, Result, ServerAddress, ServerOptions, Silent,
    StoreLocation, SurveyOptions, TokenChoice, Trust, capture, install,
};

/// A folder with a store in it, and the origin's socket.
struct Lab {
    folder: TempDir,
    place: StorePlace,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        Self { folder, place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    fn here(&self) -> StoreLocation {
        self.place.clone().into()
    }

    fn afar(&self) -> StoreLocation {
        let address = ServerAddress::Unix(self.socket());
        StoreLocation::Remote(ServerOptions { address, token: None, trust: Trust::System, cache: None })
    }

    /// A disk of that many KiB: pieces of 64 KiB that are random, text, or zeros. `change` of a thousand pieces are others
    /// than without.
    fn disk(&self, name: &str, kib: usize, change: u64) -> PathBuf {
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

fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn capture_to(store: StoreLocation, source: &Path, name: &str) -> Result<CaptureReport> {
    let request = CaptureRequest {
        store,
        source: source.to_owned(),
        name: name.parse().unwrap(),
        survey: SurveyOptions { raw: true, ..Default::default() },
        allow_mounted: false,
        sector_size: None,
        options: Default::default(),
        labels: Default::default(),
        notes: String::new(),
        token: TokenChoice::Free,
        tool_version: "test".into(),
    };
    capture(&request, &Silent)
}

fn install_from(store: StoreLocation, version: &str, target: &Path) -> Result<()> {
    let request = InstallRequest {
        store,
        version: version.to_owned(),
        target: target.to_owned(),
        free: crate::FreeSpace::Zero,
        read_back: false,
        force: Vec::new(),
    };
    install(&request, &Silent).map(drop)
}

fn same(a: &Path, b: &Path) -> bool {
    std::fs::read(a).unwrap() == std::fs::read(b).unwrap()
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it worked"),
        Err(error) => error.kind(),
    }
}
