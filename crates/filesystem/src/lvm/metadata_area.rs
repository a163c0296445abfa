//! An area for metadata: a header, and a ring with the texts of the last versions of the metadata.
//!
//! The header names the current text by place, length and checksum. A second place is set only while an update is under way.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::text::TEXT_LENGTH_MAX;
use crate::checksum::crc32_lvm;
use crate::fields::{has, le32, le64};

/// The length of the header; the ring begins behind it.
const HEADER_LENGTH: u64 = 512;
/// The flag of a place: the area is not in use.
const FLAG_IGNORED: u32 = 1;

/// Reads the current text in `area`, an offset range of the physical volume that is `extent` of the disk.
///
/// # Errors
/// `Corrupt` if it cannot be relied on; errors of reading the disk.
pub(super) fn read(disk: &dyn DiskRead, extent: Extent, area: Extent) -> Result<Vec<u8>> {
    if area.length <= HEADER_LENGTH || area.end() > extent.length {
        return Err(Error::corrupt(format!("its area for metadata at {} is impossible", area.offset)));
    }
    let read = |offset: u64, length: u64| -> Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        let at = extent.offset + area.offset + offset;
        disk.read_exact_at(&mut bytes, at).context(|| format!("reading metadata of LVM at offset {at}"))?;
        Ok(bytes)
    };
    let header = read(0, HEADER_LENGTH)?;
    if !has(&header, 4, b" LVM2 x[5A%r0N*>") || crc32_lvm(&header[4..]) != le32(&header, 0) {
        return Err(Error::corrupt("the header of its metadata is damaged"));
    }
    if le32(&header, 20) != 1 || le64(&header, 24) != area.offset || le64(&header, 32) != area.length {
        return Err(Error::corrupt("the header of its metadata is not that of this place"));
    }
    let (offset, length) = (le64(&header, 40), le64(&header, 48));
    let (checksum, flags) = (le32(&header, 56), le32(&header, 60));
    if offset == 0 || flags & FLAG_IGNORED != 0 {
        return Err(Error::corrupt("it belongs to no volume group, or its metadata is only on others"));
    }
    if flags != 0 {
        return Err(Error::corrupt("its metadata has flags that are not known"));
    }
    if header[64..].iter().any(|byte| *byte != 0) {
        return Err(Error::corrupt("an update of its metadata was not finished"));
    }
    let ring = area.length - HEADER_LENGTH;
    if !(HEADER_LENGTH..area.length).contains(&offset) || length == 0 || length > ring.min(TEXT_LENGTH_MAX) {
        return Err(Error::corrupt(format!("its metadata has an impossible place, or {length} bytes")));
    }
    let first = length.min(area.length - offset);
    let mut text = read(offset, first)?;
    text.extend(read(HEADER_LENGTH, length - first)?);
    match crc32_lvm(&text) == checksum {
        true => Ok(text),
        false => Err(Error::corrupt("the checksum of its metadata is wrong")),
    }
}
