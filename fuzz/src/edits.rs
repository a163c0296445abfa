//! Edits: an input read as a list of small changes to something larger. Any bytes are an edit list.

/// Bytes of an edit in an input: place (3), width (1), value (4), little-endian.
pub const EDIT_LENGTH: usize = 8;
/// Most edits that are taken from an input: more make no disk more interesting.
pub const EDITS_MAX: usize = 256;

/// Writes the low bytes of a number somewhere.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    /// Where; the target maps it into what it edits.
    pub place: usize,
    /// How many bytes: 1, 2 or 4.
    pub width: usize,
    /// What, little-endian.
    pub value: u32,
}

impl Edit {
    /// Writes the value at `at`, as far as `bytes` goes.
    pub fn apply(&self, bytes: &mut [u8], at: usize) {
        let value = self.value.to_le_bytes();
        for (target, byte) in bytes.iter_mut().skip(at).zip(&value[..self.width]) {
            *target = *byte;
        }
    }
}

/// The edits in `input`; a rest too short for one is ignored.
pub fn edits(input: &[u8]) -> impl Iterator<Item = Edit> {
    input.chunks_exact(EDIT_LENGTH).take(EDITS_MAX).map(|edit| Edit {
        place: usize::from(edit[0]) | usize::from(edit[1]) << 8 | usize::from(edit[2]) << 16,
        width: 1 << (edit[3] % 3),
        value: u32::from_le_bytes([edit[4], edit[5], edit[6], edit[7]]),
    })
}
