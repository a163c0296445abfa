//! Fingerprints for pinning certificates: the SHA-256 of the DER form.

use std::fmt;

use platter_image::{BlockId, Error, Result};
use ring::digest;
use rustls::pki_types::CertificateDer;

/// Length in bytes.
const LENGTH: usize = 32;

/// The SHA-256 of a certificate in its DER form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; LENGTH]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut fingerprint = [0; LENGTH];
        fingerprint.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
        Self(fingerprint)
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn from_hex(digits: &str) -> Option<Self> {
        BlockId::from_hex(digits).map(|id| Self(id.0))
    }

    /// Reads a fingerprint in the forms that users and other tools write: 64 hexadecimal digits in either case, with or without
    /// colons, with or without `sha256:` before them.
    ///
    /// # Errors
    /// `Refused` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let digits: String = lower.strip_prefix("sha256:").unwrap_or(&lower).split(':').collect();
        Self::from_hex(&digits).ok_or_else(|| {
            Error::refused(format!(
                "fingerprint {text:?}: the SHA-256 of a certificate has 64 hexadecimal digits"
            ))
        })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_forms_of_fingerprints_are_parsed() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        for text in [plain.clone(), colons.clone(), format!("sha256:{plain}"), format!("SHA256:{colons}")] {
            let fingerprint = Fingerprint::parse(&text).unwrap();
            assert_eq!(fingerprint, Fingerprint([0xab; 32]), "{text}");
            assert_eq!(fingerprint.to_string(), plain);
        }
        for text in ["", "ab", "sha1:ab", &"g".repeat(64)] {
            assert!(Fingerprint::parse(text).is_err(), "{text}");
        }
    }
}
