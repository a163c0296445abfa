//! Signs versions of a store, and verifies their signatures.

use platter_fetch::{OpenStore, StoreLocation};
use platter_image::{Error, Result};
use platter_records::{Version, VersionName, VersionRecord};
use platter_signing::{SigningKey, Statement, TrustedKeys};
use serde::Serialize;

/// A signed version.
#[derive(Clone, Debug, Serialize)]
pub struct SignReport {
    /// Its name.
    pub version: String,
    /// Its score.
    pub score: String,
    /// The id of the key.
    pub key: String,
    /// Whether the key had signed it before.
    pub was_signed: bool,
}

/// A version with a valid signature.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    /// Its name.
    pub version: String,
    /// Its score.
    pub score: String,
    /// The id of the key.
    pub key: String,
    /// The store in which it was signed.
    pub store: String,
    /// The signed text.
    pub statement: String,
    /// The signature, in the format of minisign.
    pub signature: String,
}

/// Signs a version, and adds the signature to the store. Does nothing if the key has signed it already.
///
/// # Errors
/// `Missing` when there is no such version; `Refused` for a score without a version, or when it has the maximum number of
/// signatures; the store's errors.
pub fn sign(store: &StoreLocation, version: &str, key: &SigningKey) -> Result<SignReport> {
    let store = OpenStore::open_reader(store)?;
    let Version { name, record, .. } = named(&store, version)?;
    let was_signed = key.has_signed(&record);
    if !was_signed {
        let signature = key.sign(&Statement::of(store.id()?, &record))?;
        let signed = store.sign(&name, &signature)?;
        check_same(&name, &record, &signed.record)?;
    }
    Ok(SignReport {
        version: name.to_string(),
        score: record.score.to_string(),
        key: key.id().to_owned(),
        was_signed,
    })
}

/// An origin could return another version than the signed one.
fn check_same(name: &VersionName, record: &VersionRecord, signed: &VersionRecord) -> Result<()> {
    if signed.name() == *name && signed.score == record.score {
        return Ok(());
    }
    Err(Error::corrupt(format!("the origin answers with {} instead of {name}", signed.name())))
}

/// Verifies that one of these keys signed a version.
///
/// # Errors
/// `Refused` when none did; `Missing` when there is no such version; the store's errors.
pub fn verify(store: &StoreLocation, version: &str, keys: &TrustedKeys) -> Result<VerifyReport> {
    let store = OpenStore::open_reader(store)?;
    let record = named(&store, version)?.record;
    let (signed, signature) = keys.verify(&record)?;
    Ok(VerifyReport {
        version: record.name().to_string(),
        score: record.score.to_string(),
        key: signed.key,
        store: signed.store.to_string(),
        statement: Statement::of(signed.store, &record).text(),
        signature: signature.text.clone(),
    })
}

fn named(store: &OpenStore, version: &str) -> Result<Version> {
    let resolved = store.resolve(version)?;
    resolved.version.ok_or_else(|| {
        Error::refused(format!("no version has the score {}: a signature names a version", resolved.score))
    })
}
