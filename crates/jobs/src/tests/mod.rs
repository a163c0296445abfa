//! Tests of jobs with an origin on a real store, which can be made to misbehave.

mod hostile;
mod reading;
mod uploading;

use std::path::Path;

use platter_fetch::{EditLockChoice, StoreLocation};
use platter_image::Result;
use platter_store::{KnownCheck, StorePlace};

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
