//! The checksums of superblocks and tree blocks: the first 32 bytes of a block, as far as the kind of checksum needs them.

use sha2::{Digest, Sha256};
use twox_hash::XxHash64;

use crate::checksum::crc32c;
use crate::fields::{le32, le64};

/// The bytes of a block that are reserved for its checksum.
pub(super) const LENGTH: usize = 32;

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksum {
    Crc32c,
    XxHash64,
    Sha256,
}

impl Checksum {
    /// The kind with that number; `None` if it is not known. BLAKE2 has number 3.
    pub(super) fn from_number(number: u16) -> Option<Self> {
        match number {
            0 => Some(Self::Crc32c),
            1 => Some(Self::XxHash64),
            2 => Some(Self::Sha256),
            _ => None,
        }
    }

    /// Whether the checksum of a block is correct.
    pub(super) fn is_correct(self, block: &[u8]) -> bool {
        let Some((stored, contents)) = block.split_at_checked(LENGTH) else { return false };
        match self {
            Self::Crc32c => le32(stored, 0) == !crc32c(!0, &[contents]),
            Self::XxHash64 => le64(stored, 0) == XxHash64::oneshot(0, contents),
            Self::Sha256 => stored == Sha256::digest(contents).as_slice(),
        }
    }
}
