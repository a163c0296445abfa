//! Integers in on-disk structures, read by offset. All bytes of a disk become numbers here.
//!
//! A field past the end of the bytes reads as zero, so that no disk can cause a panic; readers check magic
//! numbers and lengths where it matters.

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    if let Some(stored) = bytes.get(offset..).and_then(|rest| rest.get(..N)) {
        field.copy_from_slice(stored);
    }
    field
}

/// Little-endian, 2 bytes.
pub fn le16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array(bytes, offset))
}

/// Little-endian, 4 bytes.
pub fn le32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array(bytes, offset))
}

/// Little-endian, 8 bytes.
pub fn le64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(bytes, offset))
}

/// Big-endian, 2 bytes.
pub fn be16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes(array(bytes, offset))
}

/// Big-endian, 4 bytes.
pub fn be32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(array(bytes, offset))
}

/// Big-endian, 8 bytes.
pub fn be64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_be_bytes(array(bytes, offset))
}

/// Whether `magic` is at `offset`.
pub fn has(bytes: &[u8], offset: usize, magic: &[u8]) -> bool {
    bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic))
}

/// Text up to the first zero byte; `None` if it is empty.
pub fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (end > 0).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// The 16 bytes at `offset` as a UUID in stored order (filesystems); `None` if all are zero.
pub fn uuid(bytes: &[u8], offset: usize) -> Option<String> {
    let field: [u8; 16] = array(bytes, offset);
    (field != [0; 16]).then(|| hyphenated(&field))
}

/// The 16 bytes at `offset` as a GUID whose first three parts are little-endian (GPT); `None` if all are
/// zero.
pub fn guid(bytes: &[u8], offset: usize) -> Option<String> {
    let mut field: [u8; 16] = array(bytes, offset);
    field[..4].reverse();
    field[4..6].reverse();
    field[6..8].reverse();
    (field != [0; 16]).then(|| hyphenated(&field))
}

fn hyphenated(field: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (position, byte) in field.iter().enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_past_the_end_are_zero() {
        let bytes = [1, 2, 3, 4, 5];
        assert_eq!((le16(&bytes, 3), le16(&bytes, 4), le32(&bytes, usize::MAX)), (0x0504, 0, 0));
        assert_eq!((be16(&bytes, 1), be32(&bytes, 0), le64(&bytes, 0)), (0x0203, 0x0102_0304, 0));
    }

    #[test]
    fn the_first_three_parts_of_a_guid_are_little_endian() {
        let stored = b"\x28\x73\x2a\xc1\x1f\xf8\xd2\x11\xba\x4b\x00\xa0\xc9\x3e\xc9\x3b";
        assert_eq!(guid(stored, 0).unwrap(), "c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
        assert_eq!(uuid(stored, 0).unwrap(), "28732ac1-1ff8-d211-ba4b-00a0c93ec93b");
        assert_eq!(uuid(&[0; 16], 0), None);
    }
}
