//! Encryption of an overlay's sectors: AES-256-XTS, with keys derived from those of the store and the overlay's id.
//!
//! Every sector of 512 bytes is encrypted by itself, as long as before, with its number on the disk as the tweak. So a sector can be
//! overwritten in place, and a crash that mixes old and new sectors shows what it would show without encryption. Checksums are those
//! of the encrypted bytes. A stored sector of zeros is read as zeros: its space was freed, and after a power cut nothing else may say
//! so; no sector is encrypted to zeros, except with a probability of 2⁻⁴⁰⁹⁶. XTS hides contents from a reader of the file; it does not authenticate them (`docs/formats/overlay.md`).

use std::borrow::Cow;

use aes::Aes256;
use aes::cipher::KeyInit;
use platter_image::{Domain, Error, Result};
use xts_mode::Xts128;

use super::format::OverlayHeader;

/// Bytes that are encrypted together.
pub(super) const SECTOR: u64 = 512;

/// How the sectors of one overlay are stored.
pub(super) enum Cipher {
    /// As they are.
    Plain,
    /// Encrypted.
    Xts(Box<Xts128<Aes256>>),
    /// Encrypted with a key that this process does not have.
    Locked(Domain),
}

impl Cipher {
    pub(super) fn of(header: &OverlayHeader) -> Self {
        if !header.domain.is_encrypted() {
            return Self::Plain;
        }
        let Ok(keys) = header.domain.keys() else { return Self::Locked(header.domain) };
        let keys = keys.of_overlay(&header.id);
        let (data, tweak) = keys.split_at(keys.len() / 2);
        let (data, tweak) = (Aes256::new_from_slice(data), Aes256::new_from_slice(tweak));
        match (data, tweak) {
            (Ok(data), Ok(tweak)) => Self::Xts(Box::new(Xts128::new(data, tweak))),
            // Half of the keys is as long as AES-256 needs.
            _ => Self::Locked(header.domain),
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Returns whole sectors at `offset` of the disk as they are stored.
    ///
    /// # Errors
    /// `Refused` without the key.
    pub(super) fn encrypt<'a>(&self, bytes: &'a [u8], offset: u64) -> Result<Cow<'a, [u8]>> {
        let xts = match self {
            Self::Plain => return Ok(Cow::Borrowed(bytes)),
            Self::Xts(xts) => xts,
            Self::Locked(domain) => return Err(locked(*domain)),
        };
        let mut stored = bytes.to_vec();
        for (sector, bytes) in (offset / SECTOR..).zip(stored.chunks_exact_mut(SECTOR as usize)) {
            xts.encrypt_sector(bytes, u128::from(sector).to_le_bytes().into());
        }
        Ok(Cow::Owned(stored))
    }

    /// Turns stored sectors into those of the disk at `offset`.
    ///
    /// # Errors
    /// `Refused` without the key.
    pub(super) fn decrypt(&self, stored: &mut [u8], offset: u64) -> Result<()> {
        let xts = match self {
            Self::Plain => return Ok(()),
            Self::Xts(xts) => xts,
            Self::Locked(domain) => return Err(locked(*domain)),
        };
        for (sector, bytes) in (offset / SECTOR..).zip(stored.chunks_exact_mut(SECTOR as usize)) {
            if bytes.iter().any(|byte| *byte != 0) {
                xts.decrypt_sector(bytes, u128::from(sector).to_le_bytes().into());
            }
        }
        Ok(())
    }
}

fn locked(domain: Domain) -> Error {
    domain.keys().err().unwrap_or_else(|| {
        Error::refused(format!(
            "the overlay was opened before the key of domain {domain} was there: open it again"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IEEE 1619-2007, vector 10: AES-256-XTS, sector 0xff.
    #[test]
    fn it_is_aes_256_xts() {
        let hex = |text: &str| -> Vec<u8> {
            let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
            digits
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let key = |text| Aes256::new_from_slice(&hex(text)).unwrap();
        let cipher = Cipher::Xts(Box::new(Xts128::new(
            key("2718281828459045235360287471352662497757247093699959574966967627"),
            key("3141592653589793238462643383279502884197169399375105820974944592"),
        )));
        let plain: Vec<u8> = (0..=255).chain(0..=255).collect();
        let stored = cipher.encrypt(&plain, 0xff * SECTOR).unwrap().into_owned();
        assert_eq!(stored[..32], hex("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b")[..]);
        assert_eq!(stored[496..], hex("c4f36ffda9fcea70b9c6e693e148c151")[..]);
        let mut opened = stored;
        cipher.decrypt(&mut opened, 0xff * SECTOR).unwrap();
        assert_eq!(opened, plain);
    }
}
