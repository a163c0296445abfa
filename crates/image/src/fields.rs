//! Fields of the binary formats: little-endian integers and byte arrays at an offset. The caller has checked the length.

/// Returns the `N` bytes at `at`.
///
/// # Panics
/// If the field is not inside `bytes`; all functions here.
pub fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Returns the 4-byte integer at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// Returns the 8-byte integer at `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}
