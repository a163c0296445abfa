//! Jobs over an origin of a few lines, on a real store, that can be told to misbehave.

mod hostile;
pub(crate) mod origin;
mod reading;
mod uploading;

use std::path::{Path, PathBuf};

use platter_image::ErrorKind;
use platter_store::{KnownCheck, Store, StorePlace};
use tempfile::TempDir;

use crate::{
    CaptureReport, CaptureRequest, Consent, EditLockChoice, InstallRequest, Result, ServerAddress,
    ServerOptions, Silent, StoreLocation, SurveyOptions, TargetRequest, Trust, capture, install,
};

/// A folder with a store in it, and the origin's socket.
pub(crate) struct Lab {
    folder: TempDir,
    pub(crate) place: StorePlace,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        Self { folder, place }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    pub(crate) fn here(&self) -> StoreLocation {
        self.place.clone().into()
    }

    pub(crate) fn afar(&self) -> StoreLocation {
        let address = ServerAddress::Unix(self.socket());
        StoreLocation::Remote(ServerOptions { address, token: None, trust: Trust::System, cache: None })
    }

    /// A disk of that many KiB: pieces of 64 KiB that are random, text, or zeros. `change` of a thousand pieces are others
    /// than without.
    pub(crate) fn disk(&self, name: &str, kib: usize, change: u64) -> PathBuf {
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

pub(crate) fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

pub(crate) fn capture_to(store: StoreLocation, source: &Path, name: &str) -> Result<CaptureReport> {
    let request = CaptureRequest {
        store,
        source: source.to_owned(),
        name: name.parse().unwrap(),
        survey: SurveyOptions { raw: true, ..Default::default() },
        allow_in_use: false,
        skip_bad: false,
        audit: false,
        sector_size: None,
        options: Default::default(),
        known: KnownCheck::Sample,
        labels: Default::default(),
        notes: String::new(),
        edit_lock: EditLockChoice::Free,
        tool_version: "test".into(),
    };
    capture(&request, &Silent)
}

fn install_from(store: StoreLocation, version: &str, target: &Path) -> Result<()> {
    let request = InstallRequest {
        store,
        version: version.to_owned(),
        target: TargetRequest {
            free: crate::FreeSpace::Zero,
            consent: Consent::Given,
            ..TargetRequest::new(target)
        },
    };
    install(&request, &Silent).map(drop)
}

fn same(a: &Path, b: &Path) -> bool {
    std::fs::read(a).unwrap() == std::fs::read(b).unwrap()
}

pub(crate) fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it worked"),
        Err(error) => error.kind(),
    }
}
