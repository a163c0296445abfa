//! Decodes compressed extents: zlib, LZO, zstd.

use std::io::Read;

use platter_image::{Error, Result};

use crate::fields::le32;

/// The method in an extent's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Zlib,
    Lzo,
    Zstd,
}

/// An extent decodes to at most 128 KiB; longer ones are not decoded.
pub(super) const LENGTH_MAX: u64 = 1 << 20;

impl Method {
    /// The method of that number.
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    pub(super) fn from_number(number: u8) -> Result<Self> {
        match number {
            1 => Ok(Self::Zlib),
            2 => Ok(Self::Lzo),
            3 => Ok(Self::Zstd),
            _ => Err(Error::corrupt(format!("an extent is compressed by the unknown method {number}"))),
        }
    }

    /// Decodes an extent that has `length` bytes; what the compressed bytes lack are zeros. `sector` is the filesystem's sector size.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be decoded, or is longer.
    pub(super) fn decode(self, bytes: &[u8], length: usize, sector: usize) -> Result<Vec<u8>> {
        let mut decoded = vec![0; length];
        let filled = match self {
            Self::Zlib => read(&mut flate2::read::ZlibDecoder::new(bytes), &mut decoded),
            Self::Lzo => lzo(bytes, &mut decoded, sector),
            Self::Zstd => zstd_safe::decompress(decoded.as_mut_slice(), frame(bytes)?)
                .map_err(|code| Error::corrupt(format!("zstd: {}", zstd_safe::get_error_name(code)))),
        };
        filled.map(|_| decoded).map_err(|error| error.within(format!("decoding an extent of {length} bytes")))
    }
}

fn read(decoder: &mut dyn Read, decoded: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < decoded.len() {
        match decoder.read(&mut decoded[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) => return Err(Error::corrupt(error.to_string())),
        }
    }
    Ok(filled)
}

/// The frame at the start of an extent, which is filled with zeros.
fn frame(bytes: &[u8]) -> Result<&[u8]> {
    let length = zstd_safe::find_frame_compressed_size(bytes);
    let length =
        length.map_err(|code| Error::corrupt(format!("zstd: {}", zstd_safe::get_error_name(code))))?;
    Ok(&bytes[..length])
}

/// Segments, each of a sector: the total length (4 bytes), then for each its length (4) and its bytes. A length never crosses the
/// end of a sector; if there is no room for it, padding is.
fn lzo(bytes: &[u8], decoded: &mut [u8], sector: usize) -> Result<usize> {
    let end = (le32(bytes, 0) as usize).min(bytes.len());
    let (mut at, mut filled) = (4, 0);
    for piece in decoded.chunks_mut(sector) {
        if sector - at % sector < 4 {
            at = at.next_multiple_of(sector);
        }
        if at + 4 > end {
            break;
        }
        let length = le32(bytes, at) as usize;
        let segment = bytes.get(at + 4..).and_then(|rest| rest.get(..length));
        let segment =
            segment.ok_or_else(|| Error::corrupt(format!("a segment of {length} bytes at {at}")))?;
        // A segment always decodes to a sector, of which the last one may be needed in part.
        let mut whole = vec![0; sector];
        let count = lzokay::decompress::decompress(segment, &mut whole)
            .map_err(|error| Error::corrupt(format!("LZO: {error:?}")))?;
        let count = count.min(piece.len());
        piece[..count].copy_from_slice(&whole[..count]);
        filled += count;
        at += 4 + length;
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_extents_are_errors() {
        for method in [Method::Zlib, Method::Lzo, Method::Zstd] {
            for bytes in [&[0xff; 64][..], &[0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 0xff]] {
                let _ = method.decode(bytes, 4096, 4096);
            }
            assert!(method.decode(&[0xff; 4096], 8192, 4096).is_err(), "{method:?}");
        }
        assert!(Method::from_number(4).is_err());
    }
}
