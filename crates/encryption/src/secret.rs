//! The secrets that wrap a master key: passphrases, the contents of key files, and the output of commands.

use platter_image::{Error, Result};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::master_key::fill;
use crate::slot::Cost;

/// Begins a secret that [`new_key_file_text`] made.
const RANDOM_MARK: &str = "platter-key-";
/// The most bytes of a secret.
pub(crate) const SECRET_LENGTH_MAX: usize = 64 << 10;

/// Where a secret comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretKind {
    /// A passphrase that a person types.
    Passphrase,
    /// The contents of a key file.
    File,
    /// What an external command prints.
    Command,
}

impl SecretKind {
    /// The word in key files and lists.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passphrase => "passphrase",
            Self::File => "file",
            Self::Command => "command",
        }
    }
}

/// A secret. It is erased when it is dropped.
pub struct Secret {
    pub(crate) kind: SecretKind,
    pub(crate) bytes: Zeroizing<Vec<u8>>,
}

impl Secret {
    /// A secret of that kind. One line break at the end does not count, so that a passphrase in a file or from a command is
    /// the one that a person types.
    ///
    /// # Errors
    /// `Refused` when it is empty or too long.
    pub fn new(kind: SecretKind, mut bytes: Zeroizing<Vec<u8>>) -> Result<Self> {
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        if bytes.is_empty() || bytes.len() > SECRET_LENGTH_MAX {
            return Err(Error::refused(format!(
                "the {} has {} bytes: a secret has 1 to {SECRET_LENGTH_MAX}",
                kind.word(),
                bytes.len()
            )));
        }
        Ok(Self { kind, bytes })
    }

    /// What guessing it has to cost. Nobody can guess 32 random bytes, so trying them need not be slow; every command does it.
    pub fn cost(&self) -> Cost {
        let is_random = self.bytes.strip_prefix(RANDOM_MARK.as_bytes()).is_some_and(|digits| {
            digits.len() == 64 && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        });
        if is_random { Cost::RANDOM } else { Cost::USUAL }
    }

    /// Where it comes from.
    pub fn kind(&self) -> SecretKind {
        self.kind
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret of kind {}", self.kind.word())
    }
}

/// The contents of a new key file: a mark, 64 random hexadecimal digits and a line break.
///
/// # Errors
/// `Io` when the system has no random bytes.
pub fn new_key_file_text() -> Result<Zeroizing<String>> {
    let mut random = Zeroizing::new([0_u8; 32]);
    fill(&mut *random)?;
    let mut text = Zeroizing::new(String::with_capacity(RANDOM_MARK.len() + 65));
    text.push_str(RANDOM_MARK);
    for byte in *random {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text.push('\n');
    Ok(text)
}
