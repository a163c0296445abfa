//! From a filesystem to what of it counts: puts allocation, claims and journal together, and decides what to do when
//! something cannot be trusted.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};

use super::claims::Claims;
use super::volume::Volume;
use super::{agreement, allocation, groups, journal};
use crate::filesystem::Contents;

/// More than this behind the end of a filesystem is worth a note, in bytes.
const TAIL_NOTED: u64 = 1 << 20;

/// Looks into the ext filesystem that begins where `extent` does.
///
/// # Errors
/// `Refused` if it needs recovery, unless `force` (then all of it counts); and what reading the disk says.
pub fn examine(disk: &dyn DiskRead, extent: Extent, force: bool) -> Result<Contents> {
    let volume = match Volume::open(disk, extent) {
        Ok(volume) => volume,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(distrusted("ext", extent, &error)),
        Err(error) => return Err(error),
    };
    let superblock = &volume.superblock;
    let filesystem = superblock.features.filesystem();
    let contents = match superblock.needs_recovery() {
        Some(reason) => Err(Error::refused(reason)),
        None => read(&volume),
    };
    let contents = match contents {
        Ok(contents) => contents,
        Err(error) if error.kind() == ErrorKind::Corrupt => distrusted(filesystem, extent, &error),
        Err(error) if error.kind() == ErrorKind::Refused && force => distrusted(filesystem, extent, &error),
        Err(error) if error.kind() == ErrorKind::Refused => return Err(refusal(filesystem, &volume, &error)),
        Err(error) => return Err(error),
    };
    Ok(Contents {
        filesystem: filesystem.to_owned(),
        label: superblock.label.clone(),
        uuid: superblock.uuid.clone(),
        block_size: superblock.block_size,
        ..contents
    })
}

fn distrusted(filesystem: &str, extent: Extent, reason: &Error) -> Contents {
    Contents::whole(filesystem, extent).with_note(format!("all of it is taken, used or not: {reason}"))
}

fn refusal(filesystem: &str, volume: &Volume<'_>, reason: &Error) -> Error {
    let superblock = &volume.superblock;
    let label = superblock.label.as_deref().unwrap_or("no label");
    Error::refused(format!(
        "the {filesystem} filesystem at {} ({label}) is not safe to read by its maps: {reason}. Mount and unmount it, or \
         run e2fsck on it; or insist: `platter capture --force` takes all of it, used or not",
        volume.extent.offset
    ))
}

fn read(volume: &Volume<'_>) -> Result<Contents> {
    let groups = groups::read(volume)?;
    let journal = journal::read(volume, &groups)?;
    let allocation = allocation::read(volume, &groups)?;
    let mut claims = Claims::gather(volume, &groups)?;
    agreement::check(volume, &groups, &allocation, &mut claims)?;

    let mut notes = volume.superblock.notes();
    notes.extend(journal.note);
    let tail = allocation::tail(volume);
    if tail.length > TAIL_NOTED {
        notes.push(format!("{} bytes behind its end are taken, too", tail.length));
    }
    // Each block has one owner, so nothing else stands in what was never written, nor in the journal.
    let unwritten = Extents::from_unsorted(claims.unwritten);
    let allocated = allocation.used.subtract(&unwritten).iter().copied().chain([tail]).collect();
    let zeroed = Extents::from_unsorted(journal.body);
    Ok(Contents { allocated, zeroed, files: claims.files, notes, ..Contents::default() })
}
