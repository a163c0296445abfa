//! Adds signatures to versions. A signature becomes part of the version's record in the catalog and its log; packs do not change.
//! Nothing here verifies it: the store knows no keys.

use platter_image::{Error, Result};

use crate::store::Store;
use platter_records::{Action, SIGNATURE_LENGTH_MAX, SIGNATURES_MAX, Signature, Version, VersionName};

impl Store {
    /// Adds a signature to a version, in one commit, durable on return. Returns the version with it. A signature that the version
    /// has already changes nothing.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when the signature is too long, or the version has the maximum number of
    /// signatures; `Transient` when another process holds the writer's lock for more than a few seconds; `Io`.
    pub fn sign(&self, name: &VersionName, signature: &Signature) -> Result<Version> {
        if signature.text.len() > SIGNATURE_LENGTH_MAX {
            return Err(Error::refused(format!("a signature has at most {SIGNATURE_LENGTH_MAX} bytes")));
        }
        self.change_catalog(|change| {
            let versions = change.versions_below(&name.image)?;
            let Some(mut version) = versions.into_iter().find(|version| version.name == *name) else {
                return Ok(Err(Error::missing(format!("there is no {name}"))));
            };
            if version.record.signatures.contains(signature) {
                return Ok(Ok(version));
            }
            if version.record.signatures.len() >= SIGNATURES_MAX {
                let what = format!("{name} has {SIGNATURES_MAX} signatures, the maximum");
                return Ok(Err(Error::refused(what)));
            }
            version.record.signatures.push(signature.clone());
            if let Err(refusal) = version.record.encode() {
                return Ok(Err(refusal));
            }
            change.replace_record(&version)?;
            change.does(Action::Sign { version: name.clone() });
            Ok(Ok(version))
        })
    }
}
