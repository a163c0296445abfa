//! Which version is exported, and whether this machine may use it.

use platter_fetch::{OpenStore, StoreLocation};
use platter_image::Result;
use platter_records::Resolved;
use platter_signing::SignaturePolicy;

use crate::install::admit;

/// The version that is exported.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// The store.
    pub store: StoreLocation,
    /// `NAME`, `NAME@7` or a score.
    pub version: String,
    /// Which versions may be exported. A score may always.
    pub signatures: SignaturePolicy,
}

impl ExportRequest {
    /// Opens the store and finds the version.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when no trusted key signed it.
    pub(super) fn open(&self) -> Result<(OpenStore, Resolved)> {
        let store = OpenStore::open_reader(&self.store)?;
        let resolved = store.resolve(&self.version)?;
        admit(&self.signatures, &self.version, &resolved)?;
        Ok((store, resolved))
    }
}
