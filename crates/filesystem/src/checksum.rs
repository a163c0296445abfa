//! The checksums of filesystem metadata in the raw form that ext and LVM use: with a given seed and without final
//! inversion.

use crc::{Algorithm, CRC_16_MODBUS, CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc, Table};

/// CRC-32C as the kernel's `crc32c()`: the input is a seed, and the output is not inverted.
const RAW_CRC32C: Algorithm<u32> = Algorithm { xorout: 0, ..CRC_32_ISCSI };

/// CRC-32 as LVM computes it: with a start value of its own, and the output is not inverted.
const LVM_CRC32: Algorithm<u32> =
    Algorithm { init: 0xf597_a6cf_u32.reverse_bits(), xorout: 0, ..CRC_32_ISO_HDLC };

static CRC32_LVM: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&LVM_CRC32);
static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&RAW_CRC32C);
static CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_MODBUS);

/// The CRC-32C of several pieces in sequence, continued from `seed`.
pub(crate) fn crc32c(seed: u32, pieces: &[&[u8]]) -> u32 {
    let mut digest = CRC32C.digest_with_initial(seed.reverse_bits());
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize()
}

/// The CRC-32 of LVM.
pub(crate) fn crc32_lvm(bytes: &[u8]) -> u32 {
    CRC32_LVM.checksum(bytes)
}

/// The CRC-16 of old group descriptors (polynomial 0x8005 reflected), starting from all ones.
pub(crate) fn crc16(pieces: &[&[u8]]) -> u16 {
    let mut digest = CRC16.digest();
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_known_values() {
        assert_eq!(!crc32c(!0, &[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(crc32c(!0, &[b"1234"]), &[b"56", b"789"]), !0xe306_9283);
        assert_eq!(crc16(&[b"1234", b"56789"]), 0x4b37);
    }
}
