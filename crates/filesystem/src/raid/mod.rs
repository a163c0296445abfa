//! Members of RAID arrays of Linux: where the data of a member of a RAID 1 lies (docs/filesystems/raid.md).
//!
//! Each member of a RAID 1 has all data in one piece. Its superblock is in one of four places: version 0.90 and 1.0 at the end,
//! 1.1 at the start, 1.2 at 4 KiB. [`data_area()`] returns the piece, and never looks at what it contains. It fails unless the
//! superblock has a correct checksum, states its own place and a RAID 1 that was stopped in order, and has nothing that is not
//! known.
//!
//! Sources: the kernel's `drivers/md/md.c` and `include/uapi/linux/raid/md_p.h`; md(4).

mod new;
mod old;

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

/// The length of the part of a superblock that is read, which is all of version 0.90.
const LENGTH: usize = 4096;

/// Where the data of the member of a RAID 1 is that is `extent` of the disk.
///
/// # Errors
/// `Corrupt`, with the reason why its data is not simply there; errors of reading the disk.
pub(crate) fn data_area(disk: &dyn DiskRead, extent: Extent) -> Result<Extent> {
    let mut found = Vec::new();
    for (offset, parse) in places(extent.length) {
        let mut bytes = vec![0; LENGTH.min((extent.length - offset) as usize)];
        let at = extent.offset + offset;
        disk.read_exact_at(&mut bytes, at)
            .context(|| format!("reading a superblock of RAID at offset {at}"))?;
        if bytes.starts_with(b"\xfc\x4e\x2b\xa9") || bytes.starts_with(b"\xa9\x2b\x4e\xfc") {
            found.push((offset, parse, bytes));
        }
    }
    let [(offset, parse, bytes)] = &found[..] else {
        return Err(Error::corrupt(format!("it has {} superblocks of RAID", found.len())));
    };
    if bytes.len() < LENGTH {
        return Err(Error::corrupt("the end of its superblock is missing"));
    }
    let data = parse(bytes, *offset)?;
    let superblock = Extent::new(*offset, LENGTH as u64);
    if data.length == 0 || data.end() > extent.length || data.intersect(&superblock).is_some() {
        return Err(Error::corrupt("its data is not in its place"));
    }
    Ok(Extent::new(extent.offset + data.offset, data.length))
}

/// Returns where the data of the member is, as an offset range of it. Gets the superblock and its offset.
type Parse = fn(&[u8], u64) -> Result<Extent>;

/// Where a superblock may be in a member of that length, and how it is parsed there.
fn places(length: u64) -> impl Iterator<Item = (u64, Parse)> {
    let back = |multiple: u64, distance: u64| (length / multiple * multiple).checked_sub(distance);
    let places: [(Option<u64>, Parse); 4] = [
        (Some(0), new::parse),
        (Some(4 << 10), new::parse),
        (back(64 << 10, 64 << 10), old::parse),
        (back(4 << 10, 8 << 10), new::parse),
    ];
    let places = places.into_iter().filter_map(|(offset, parse)| Some((offset?, parse)));
    // In short members, places coincide.
    let mut seen = Vec::new();
    places.filter(move |(offset, _)| {
        let is_new = *offset < length && !seen.contains(offset);
        seen.push(*offset);
        is_new
    })
}
