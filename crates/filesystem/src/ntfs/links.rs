//! Symbolic links: reparse points of Windows and of its Linux subsystem, and files that ntfs-3g marks.

use crate::fields::{has, le16, le32};

const TAG_MOUNT_POINT: u32 = 0xa000_0003;
const TAG_SYMLINK: u32 = 0xa000_000c;
const TAG_LINUX_SYMLINK: u32 = 0xa000_001d;
/// Tag, length of the data, and two unused bytes.
const HEADER: usize = 8;

/// The meaning of a reparse point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reparse {
    /// A link to this target.
    Link(Vec<u8>),
    /// Something of this tag, which only Windows understands.
    Other(u32),
}

/// Decodes a reparse point.
pub(super) fn reparse(bytes: &[u8]) -> Reparse {
    let tag = le32(bytes, 0);
    let target = match tag {
        // Offset and length of the printed name, which follows eight bytes (twelve, with flags, of a symbolic link).
        TAG_MOUNT_POINT => printed(bytes, HEADER + 8),
        TAG_SYMLINK => printed(bytes, HEADER + 12),
        // A version, then UTF-8.
        TAG_LINUX_SYMLINK => bytes
            .get(HEADER..HEADER + usize::from(le16(bytes, 4)))
            .and_then(|data| data.get(4..))
            .map(<[u8]>::to_vec),
        _ => None,
    };
    target.filter(|target| !target.is_empty()).map_or(Reparse::Other(tag), Reparse::Link)
}

/// The name that Windows shows, with slashes.
fn printed(bytes: &[u8], names: usize) -> Option<Vec<u8>> {
    let (offset, length) = (usize::from(le16(bytes, HEADER + 4)), usize::from(le16(bytes, HEADER + 6)));
    let units = bytes.get(names + offset..)?.get(..length)?.chunks_exact(2).map(|unit| le16(unit, 0));
    let name = String::from_utf16_lossy(&units.collect::<Vec<_>>());
    Some(name.replace('\\', "/").into_bytes())
}

/// The mark of a link that ntfs-3g made, at the start of a file with the attribute *system*.
pub(super) const MARK: &[u8] = b"IntxLNK\x01";
/// A longer file is no link.
pub(super) const MARKED_LENGTH_MAX: u64 = MARK.len() as u64 + 2 * 4096;

/// The target in the contents of a file with that mark; `None` if it is none.
pub(super) fn marked(contents: &[u8]) -> Option<Vec<u8>> {
    if !has(contents, 0, MARK) {
        return None;
    }
    let units = contents[MARK.len()..].chunks_exact(2).map(|unit| le16(unit, 0));
    Some(String::from_utf16_lossy(&units.collect::<Vec<_>>()).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn links_of_each_kind() {
        let name = wide("C:\\x");
        let mut junction = TAG_MOUNT_POINT.to_le_bytes().to_vec();
        junction.extend([0, 0, 0, 0, 0, 0, 0, 0, 2, 0, name.len() as u8, 0, 9, 9]);
        junction.extend(&name);
        assert_eq!(reparse(&junction), Reparse::Link(b"C:/x".to_vec()));
        assert_eq!(reparse(&junction[..20]), Reparse::Other(TAG_MOUNT_POINT));
        let linux = [&TAG_LINUX_SYMLINK.to_le_bytes()[..], &[8, 0, 0, 0, 2, 0, 0, 0], b"../x"].concat();
        assert_eq!(reparse(&linux), Reparse::Link(b"../x".to_vec()));
        assert_eq!(reparse(b"\x17\0\0\x80"), Reparse::Other(0x8000_0017));
        assert_eq!(marked(&[MARK, &wide("ü/x")].concat()).unwrap(), "ü/x".as_bytes());
        assert_eq!(marked(b"IntxCHR\0"), None);
    }
}
