//! A disk to start from: a real one, small, of which an input changes some bytes.

use crate::edits;

const SECTOR: usize = 512;

/// An unpacked image, with the sectors that are worth changing.
pub struct BaseDisk {
    bytes: Vec<u8>,
    /// Sectors that are not zeros, and the one after each: places of edits count in these alone.
    live: Vec<usize>,
}

impl BaseDisk {
    /// Unpacks one of the committed images.
    pub fn unpack(packed: &[u8]) -> Self {
        let length =
            zstd_safe::get_frame_content_size(packed).ok().flatten().expect("an image with its length");
        let mut bytes = Vec::with_capacity(length as usize);
        zstd_safe::decompress(&mut bytes, packed).expect("a whole image");
        let sectors: Vec<&[u8]> = bytes.chunks(SECTOR).collect();
        let holds = |sector: &&[u8]| sector.iter().any(|byte| *byte != 0);
        let live = (0..sectors.len())
            .filter(|n| holds(&sectors[*n]) || (*n > 0 && holds(&sectors[n - 1])))
            .collect();
        Self { bytes, live }
    }

    /// The disk with the edits of `input` made.
    pub fn edited(&self, input: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for edit in edits(input) {
            let at = self.live[edit.place / SECTOR % self.live.len()] * SECTOR + edit.place % SECTOR;
            edit.apply(&mut bytes, at);
        }
        bytes
    }
}
