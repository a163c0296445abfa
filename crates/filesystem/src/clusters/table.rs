//! The file allocation table: for each cluster, the next one of its file.
//!
//! The entry of a cluster is free (0), bad, the end of a file, or the number of the next cluster. Entries have 12 or
//! 16 bits, 32 bits of which 28 count, or 32 bits (exFAT). The table is held in memory, so its length is limited.

use platter_image::{DiskRead, Error, IoContext, Result};

use crate::fields::{le16, le32};

/// A longer table is not read; in bytes. It has 16 million entries of 32 bits.
pub(crate) const TABLE_LENGTH_MAX: u64 = 64 << 20;

/// The width of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// FAT12.
    Bits12,
    /// FAT16.
    Bits16,
    /// FAT32: the upper four bits do not count.
    Bits28,
    /// exFAT.
    Bits32,
}

impl Width {
    /// Bytes that `entries` entries fill.
    pub(crate) fn bytes(self, entries: u64) -> u64 {
        match self {
            Self::Bits12 => entries.saturating_mul(3).div_ceil(2),
            Self::Bits16 => entries.saturating_mul(2),
            Self::Bits28 | Self::Bits32 => entries.saturating_mul(4),
        }
    }

    /// The largest entry. It and the seven before mark the end of a file; the one before these, a bad cluster.
    fn last(self) -> u32 {
        match self {
            Self::Bits12 => 0xfff,
            Self::Bits16 => 0xffff,
            Self::Bits28 => 0x0fff_ffff,
            Self::Bits32 => u32::MAX,
        }
    }
}

/// The meaning of a cluster's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The cluster is free.
    Free,
    /// The cluster is bad.
    Bad,
    /// The file ends with it.
    End,
    /// The file continues in this cluster.
    Cluster(u64),
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    bytes: Vec<u8>,
    width: Width,
}

impl Table {
    /// Reads a table of `entries` entries at `offset` of the disk.
    ///
    /// # Errors
    /// `Corrupt` if it is too long; errors of reading the disk.
    pub(crate) fn read(disk: &dyn DiskRead, offset: u64, width: Width, entries: u64) -> Result<Self> {
        let length = width.bytes(entries);
        if length > TABLE_LENGTH_MAX {
            return Err(Error::corrupt(format!(
                "its allocation table has {length} bytes, more than {TABLE_LENGTH_MAX}: too many to check"
            )));
        }
        let mut bytes = vec![0; length as usize];
        disk.read_exact_at(&mut bytes, offset)
            .context(|| format!("reading the allocation table at offset {offset}"))?;
        Ok(Self { bytes, width })
    }

    /// The entry of a cluster as stored, without bits that do not count.
    pub(crate) fn entry(&self, cluster: u64) -> u32 {
        let at = cluster as usize;
        match self.width {
            Width::Bits12 => {
                let pair = le16(&self.bytes, at / 2 * 3 + at % 2);
                u32::from(if at.is_multiple_of(2) { pair & 0xfff } else { pair >> 4 })
            }
            Width::Bits16 => u32::from(le16(&self.bytes, at * 2)),
            Width::Bits28 => le32(&self.bytes, at * 4) & 0x0fff_ffff,
            Width::Bits32 => le32(&self.bytes, at * 4),
        }
    }

    /// Returns the meaning of a cluster's entry.
    pub(crate) fn next(&self, cluster: u64) -> Next {
        let (entry, last) = (self.entry(cluster), self.width.last());
        match entry {
            0 => Next::Free,
            _ if entry == last - 8 => Next::Bad,
            _ if entry > last - 8 => Next::End,
            _ => Next::Cluster(u64::from(entry)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_each_width() {
        let bytes = b"\xf8\xff\xff\x03\x40\x00\xf7\xff\xff\x08\x00\x00".to_vec();
        let table = |width, entries| Table::read(&bytes, 0, width, entries).unwrap();
        let narrow = table(Width::Bits12, 8);
        let entries: Vec<u32> = (0..8).map(|cluster| narrow.entry(cluster)).collect();
        assert_eq!(entries, [0xff8, 0xfff, 3, 4, 0xff7, 0xfff, 8, 0]);
        assert_eq!((narrow.next(2), narrow.next(4)), (Next::Cluster(3), Next::Bad));
        assert_eq!((narrow.next(5), narrow.next(7), narrow.next(0)), (Next::End, Next::Free, Next::End));
        assert_eq!(table(Width::Bits16, 6).next(2), Next::Cluster(0x40));
        assert_eq!(table(Width::Bits16, 6).next(3), Next::Bad);
        assert_eq!(table(Width::Bits28, 3).entry(0), 0x03ff_fff8);
        assert_eq!(table(Width::Bits28, 3).next(2), Next::Cluster(0x8ff));
        assert_eq!(table(Width::Bits32, 3).entry(0), 0x03ff_fff8);
        assert_eq!(narrow.next(1 << 40), Next::Free, "an entry that does not exist");
        assert!(Table::read(&bytes, 0, Width::Bits32, u64::MAX).is_err());
    }
}
