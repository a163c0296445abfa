//! Shadow copies: older states of a volume, such as restore points of Windows.
//!
//! A shadow copy stores only blocks that were overwritten since it was made; everything else of it is read from the volume.
//! Clusters of a file that was deleted since then are free according to the volume's bitmap, but may be the only place of what
//! the shadow copy has there. So a volume with shadow copies is kept in full.
//!
//! Sector 15 of the volume is their header: a GUID at 0, and the offset of the catalog at 48, 0 if there is none. The catalog is a
//! list of blocks of 16 KiB: the same GUID at 0, the record type at 20, the offset of the next block at 40, entries of 128 bytes
//! from 128 on. An entry begins with its type: 0 and 1 are unused.
//!
//! Source: J. Metz, *Volume Shadow Snapshot (VSS) format* (libvshadow).

use platter_image::{DiskRead, Extent, IoContext, Result};

use crate::fields::{has, le32, le64};

const HEADER: u64 = 0x1e00;
const HEADER_LENGTH: usize = 512;
/// 3808876b-c176-4e48-b7ae-04046e6cc752.
const IDENTIFIER: &[u8] = b"\x6b\x87\x08\x38\x76\xc1\x48\x4e\xb7\xae\x04\x04\x6e\x6c\xc7\x52";

const BLOCK_LENGTH: usize = 16384;
const CATALOG_BLOCK: u32 = 2;
const ENTRY_LENGTH: usize = 128;
/// Types of entries up to this one are unused.
const UNUSED_MAX: u64 = 1;
/// A longer catalog is not read. Windows allows 512 shadow copies, with two entries each.
const BLOCKS_MAX: usize = 64;

/// Whether a volume may have shadow copies. A catalog that cannot be read counts as one that lists some.
///
/// # Errors
/// Those of reading the disk.
pub(super) fn exist(disk: &dyn DiskRead, volume: Extent) -> Result<bool> {
    let mut header = [0; HEADER_LENGTH];
    if !read(disk, volume, HEADER, &mut header)? || !header.starts_with(IDENTIFIER) {
        return Ok(false);
    }
    let mut block = vec![0; BLOCK_LENGTH];
    let mut offset = le64(&header, 48);
    for _ in 0..BLOCKS_MAX {
        if offset == 0 {
            return Ok(false);
        }
        let is_block = read(disk, volume, offset, &mut block)?
            && has(&block, 0, IDENTIFIER)
            && le32(&block, 20) == CATALOG_BLOCK;
        let is_unused = |entry: &[u8]| le64(entry, 0) <= UNUSED_MAX;
        if !is_block || !block.chunks_exact(ENTRY_LENGTH).skip(1).all(is_unused) {
            return Ok(true);
        }
        offset = le64(&block, 40);
    }
    Ok(true)
}

/// Fills `buffer` from an offset in the volume. Returns `false` if it is not in the volume.
fn read(disk: &dyn DiskRead, volume: Extent, offset: u64, buffer: &mut [u8]) -> Result<bool> {
    let end = offset.checked_add(buffer.len() as u64);
    if end.is_none_or(|end| end > volume.length) {
        return Ok(false);
    }
    let at = volume.offset + offset;
    disk.read_exact_at(buffer, at).context(|| format!("reading the list of shadow copies at offset {at}"))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: usize = 4096;

    fn volume(catalog: u64) -> Vec<u8> {
        let mut disk = vec![0; START + 65536 + BLOCK_LENGTH];
        disk[START + 0x1e00..][..16].copy_from_slice(IDENTIFIER);
        disk[START + 0x1e00 + 48..][..8].copy_from_slice(&catalog.to_le_bytes());
        disk
    }

    fn add_block(disk: &mut [u8], offset: usize, next: u64, entries: &[u8]) {
        let block = &mut disk[START + offset..][..BLOCK_LENGTH];
        block[..16].copy_from_slice(IDENTIFIER);
        block[20] = 2;
        block[40..48].copy_from_slice(&next.to_le_bytes());
        for (number, kind) in (1..).zip(entries) {
            block[number * ENTRY_LENGTH] = *kind;
        }
    }

    fn exist_on(disk: &Vec<u8>) -> bool {
        exist(disk, Extent::new(START as u64, (disk.len() - START) as u64)).unwrap()
    }

    #[test]
    fn a_catalog_with_entries_has_shadow_copies() {
        assert!(!exist_on(&vec![0; START + 65536]) && !exist_on(&vec![0; START + 512]));
        assert!(!exist_on(&volume(0)), "no catalog");
        for (entries, expected) in
            [(&[][..], false), (&[1, 1, 0, 1], false), (&[2, 3], true), (&[1, 3], true), (&[0, 9], true)]
        {
            let mut disk = volume(16384);
            add_block(&mut disk, 16384, 32768, &[1]);
            add_block(&mut disk, 32768, 0, entries);
            assert_eq!(exist_on(&disk), expected, "{entries:?}");
        }
    }

    #[test]
    fn a_catalog_that_cannot_be_read_counts() {
        for catalog in [16384, u64::MAX, 1 << 40] {
            assert!(exist_on(&volume(catalog)), "no block at {catalog}");
        }
        let mut endless = volume(16384);
        add_block(&mut endless, 16384, 16384, &[]);
        assert!(exist_on(&endless));
    }
}
