//! Determines which bytes of a filesystem are kept: combines allocation, claims and journal, and decides what
//! to do when something cannot be trusted.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};

use super::claims::Claims;
use super::volume::Volume;
use super::{agreement, allocation, groups, journal};
use crate::filesystem::Contents;

/// A longer rest after the end of a filesystem is noted, in bytes.
const TAIL_NOTED: u64 = 1 << 20;

/// Examines the ext filesystem at the start of `extent`.
///
/// # Errors
/// `Refused` if it needs recovery, unless `force` is set (then all of it is kept); errors of reading the
/// disk.
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
    Contents::whole(filesystem, extent)
        .with_note(format!("stored in full, including unused blocks: {reason}"))
}

fn refusal(filesystem: &str, volume: &Volume<'_>, reason: &Error) -> Error {
    let superblock = &volume.superblock;
    let label = superblock.label.as_deref().unwrap_or("no label");
    Error::refused(format!(
        "the allocation maps of the {filesystem} filesystem at offset {} ({label}) cannot be trusted: {reason}. Mount and unmount it, or \
         run e2fsck on it; `platter capture --force` stores all of it, including unused blocks",
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
        notes.push(format!("{} bytes after its end are stored, too", tail.length));
    }
    // Each block has one owner, so unwritten extents and the journal contain nothing else.
    let unwritten = Extents::from_unsorted(claims.unwritten);
    let allocated = allocation.used.subtract(&unwritten).iter().copied().chain([tail]).collect();
    let zeroed = Extents::from_unsorted(journal.body);
    Ok(Contents { allocated, zeroed, files: claims.files, notes, ..Contents::default() })
}
