//! Reads a received segment back from the target and compares it with the written data.
//!
//! A receiver has no store to compare with. It keeps a fingerprint of the verified bytes of each place when they are
//! written, and compares it with that of the target.

use platter_disk::install::LostWrite;
use platter_image::plan::Places;
use platter_image::{BlockId, DiskRead, Error, Extent, IoContext, Kind, Result};

use crate::Compared;

/// Bytes read at once.
const READ_LENGTH: u64 = 4 << 20;

/// A short hash of the bytes written to each place, by its position.
pub(super) struct Fingerprints(Vec<u64>);

impl Fingerprints {
    /// Creates fingerprints for this many places.
    pub(super) fn new(places: usize) -> Self {
        Self(vec![0; places])
    }

    /// Sets the fingerprint of the bytes written to a place.
    pub(super) fn set(&mut self, position: usize, bytes: &[u8]) {
        self.0[position] = fingerprint(bytes);
    }

    /// Compares every place, and the ranges that must be zeros.
    ///
    /// # Errors
    /// `Corrupt`, with the position of the first difference found; `Io` when the target cannot be read.
    pub(super) fn compare<'a>(
        &self,
        target: &(impl DiskRead + ?Sized),
        places: &Places,
        zeros: impl Iterator<Item = &'a Extent>,
    ) -> Result<Compared> {
        let mut compared = Compared::default();
        let mut order: Vec<u32> = (0..self.0.len() as u32).collect();
        order.sort_unstable_by_key(|position| places.block_at(*position as usize).1.offset);
        let mut reader = Reader { target, bytes: Vec::new(), window: Extent::new(0, 0) };
        for position in order {
            let (block, extent) = places.block_at(position as usize);
            if fingerprint(reader.read(extent)?) != self.0[position as usize] {
                return Err(differs(extent, &format!("block {block}")));
            }
            compared.data_bytes += extent.length;
        }
        for extent in zeros {
            let mut rest = *extent;
            while rest.length > 0 {
                let piece = Extent::new(rest.offset, rest.length.min(READ_LENGTH));
                if reader.read(piece)?.iter().any(|byte| *byte != 0) {
                    return Err(differs(piece, "zeros"));
                }
                rest = Extent::between(piece.end(), rest.end());
            }
            compared.zero_bytes += extent.length;
        }
        Ok(compared)
    }
}

/// Reads ahead in pieces.
struct Reader<'a, D: ?Sized> {
    target: &'a D,
    bytes: Vec<u8>,
    window: Extent,
}

impl<D: DiskRead + ?Sized> Reader<'_, D> {
    fn read(&mut self, extent: Extent) -> Result<&[u8]> {
        if extent.offset < self.window.offset || extent.end() > self.window.end() {
            // Whole pieces, so that direct reads are possible.
            let start = extent.offset / READ_LENGTH * READ_LENGTH;
            let end = extent.end().next_multiple_of(READ_LENGTH).min(self.target.length());
            self.window = Extent::new(0, 0);
            self.bytes.resize((end - start) as usize, 0);
            self.target
                .read_exact_at(&mut self.bytes, start)
                .context(|| format!("reading {} bytes at {start} back", end - start))?;
            self.window = Extent::between(start, end);
        }
        let start = (extent.offset - self.window.offset) as usize;
        Ok(&self.bytes[start..start + extent.length as usize])
    }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    let id = BlockId::of(Kind::Data, bytes);
    id.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

fn differs(extent: Extent, what: &str) -> Error {
    LostWrite::error(format!(
        "reading back: {} bytes at {} of the target differ from what was written ({what})",
        extent.length, extent.offset
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonzero_bytes_in_zero_ranges_are_found() {
        let none = Fingerprints::new(0);
        let mut disk = vec![0; 9 << 20];
        let zeros = [Extent::new(512, 1024), Extent::new(4 << 20, 5 << 20)];
        let compared = none.compare(&disk, &Places::default(), zeros.iter()).unwrap();
        assert_eq!(compared.zero_bytes, (5 << 20) + 1024);
        disk[(9 << 20) - 1] = 1;
        let error = none.compare(&disk, &Places::default(), zeros.iter()).unwrap_err();
        assert!(error.to_string().contains("at 8388608 of the target"), "{error}");
    }
}
