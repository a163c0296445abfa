//! Tests of jobs with an origin on a real store, which can be made to misbehave.

mod hostile;
mod reading;
mod uploading;

use std::path::Path;

use platter_fetch::{EditLockChoice, StoreLocation};
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{Extent, Result};
use platter_records::{BootBlock, BootSet, BootSetRecord};
use platter_store::{KnownCheck, Store, StorePlace};

use crate::{
    CaptureReport, CaptureRequest, Consent, InstallRequest, Silent, SurveyOptions, TargetRequest, capture,
    install,
};

fn capture_to(store: impl Into<StoreLocation>, source: &Path, name: &str) -> Result<CaptureReport> {
    capture_surveyed(store, source, name, SurveyOptions { raw: true, ..Default::default() })
}

fn capture_surveyed(
    store: impl Into<StoreLocation>,
    source: &Path,
    name: &str,
    survey: SurveyOptions,
) -> Result<CaptureReport> {
    let request = CaptureRequest {
        store: store.into(),
        source: source.to_owned(),
        input: Default::default(),
        name: name.parse().unwrap(),
        survey,
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

fn install_from(store: impl Into<StoreLocation>, version: &str, target: &Path) -> Result<()> {
    let request = InstallRequest {
        store: store.into(),
        version: version.to_owned(),
        target: TargetRequest {
            free: crate::FreeSpace::Zero,
            consent: Consent::Given,
            ..TargetRequest::new(target)
        },
        agreed: None,
        signatures: Default::default(),
    };
    install(&request, &Silent).map(drop)
}

/// Captures a disk of `bytes` as the next version of `image`.
pub(crate) fn capture_bytes(store: &StorePlace, image: &str, bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    capture_surveyed(store.clone(), file.path(), image, SurveyOptions::default()).unwrap();
}

/// Registers a boot that reads the whole disk.
pub(crate) fn register_all(place: &StorePlace, image: &str) -> Result<()> {
    let store = Store::open_writer(place)?;
    let version = store.resolve(image)?.version.unwrap();
    let recipe = Recipe::open(version.record.score, &store)?;
    let whole = Extent::new(0, version.record.disk_length);
    let (mut pages, mut blocks): (Vec<BootBlock>, Vec<BootBlock>) = (Vec::new(), Vec::new());
    recipe.visit_pages(whole, &mut |id| {
        pages.push(BootBlock::new(*id, store.page(id)?.len() as u64));
        Ok(())
    })?;
    for entry in recipe.entries(whole) {
        let entry = entry?;
        let State::Data { block, .. } = entry.state else { continue };
        if !blocks.iter().any(|known| known.id == block) {
            blocks.push(BootBlock::new(block, entry.extent.length));
        }
    }
    let record = BootSetRecord {
        version: version.name.clone(),
        score: version.record.score,
        marker: "test".into(),
        command: String::new(),
        accelerator: String::new(),
        time_unix_ms: 1,
        duration_ms: 1,
        requests: 1,
        bytes_read: 1,
        pages: pages.len() as u32,
        blocks: blocks.len() as u32,
        bytes: pages.iter().chain(&blocks).map(BootBlock::length).sum(),
        tool_version: "test".into(),
        boots: 0,
        nodes: Vec::new(),
    };
    store.register_boot_set(&version.name, &BootSet { record, pages, blocks }, 1).map(drop)
}
