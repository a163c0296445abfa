//! From a filesystem to what of it counts: puts allocation, claims and journal together, and decides what to do when
//! something cannot be trusted.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};

use super::allocation::{self, Allocation};
use super::claims::{self, Claims};
use super::volume::Volume;
use super::{groups, journal};
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

/// Whether `extent` begins with an ext superblock that can be, and whose filesystem fits into it.
///
/// # Errors
/// What reading the disk says.
pub fn fits(disk: &dyn DiskRead, extent: Extent) -> Result<bool> {
    match Volume::open(disk, extent) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
        Err(error) => Err(error),
    }
}

fn distrusted(filesystem: &str, extent: Extent, reason: &Error) -> Contents {
    Contents::whole(filesystem, extent).with_note(format!("all of it is taken, used or not: {reason}"))
}

fn refusal(filesystem: &str, volume: &Volume<'_>, reason: &Error) -> Error {
    let superblock = &volume.superblock;
    let label = superblock.label.as_deref().unwrap_or("no label");
    Error::refused(format!(
        "the {filesystem} filesystem at {} ({label}) is not safe to read by its maps: {reason}. Mount and unmount it, or \
         run e2fsck on it; or insist, and all of it is taken, used or not",
        volume.extent.offset
    ))
}

fn read(volume: &Volume<'_>) -> Result<Contents> {
    let groups = groups::read(volume)?;
    let journal = journal::read(volume, &groups)?;
    let Allocation { used, metadata } = allocation::read(volume, &groups)?;
    let Claims { mut files, unwritten, others, broken, is_cut } = Claims::gather(volume, &groups)?;
    let mut notes = volume.superblock.notes();
    notes.extend(journal.note);
    if broken > 0 {
        notes.push(format!("{broken} inodes name blocks that cannot be: e2fsck would tell which"));
    }
    if is_cut {
        notes.push(format!("it has more than {} file extents: the rest is cut like metadata", files.len()));
    }

    files.sort_unstable();
    let missing = claims::missing(&files, &used);
    let used = if missing.is_empty() {
        used
    } else {
        let lost: Extents = missing.into_iter().collect();
        notes.push(format!(
            "{} bytes of files are free by its bitmaps: they are taken all the same",
            lost.total()
        ));
        used.iter().chain(&lost).copied().collect()
    };
    let dropped = claims::sort_and_part(&mut files);
    if dropped > 0 {
        notes.push(format!("{dropped} file extents overlap others: they are cut like metadata"));
    }

    let tail = allocation::tail(volume);
    if tail.length > TAIL_NOTED {
        notes.push(format!("{} bytes behind its end are taken, too", tail.length));
    }
    let (allocated, zeroed) =
        without_what_is_not_read(used, &metadata, &files, others, unwritten, journal.body);
    let allocated = allocated.iter().copied().chain([tail]).collect();
    Ok(Contents { allocated, zeroed, files, notes, ..Contents::default() })
}

/// Takes preallocation away, and tells what of the journal is zeroed: only what nobody else claims.
fn without_what_is_not_read(
    used: Extents,
    metadata: &Extents,
    files: &[platter_image::chunking::FileRun],
    others: Vec<Extent>,
    unwritten: Vec<Extent>,
    journal: Vec<Extent>,
) -> (Extents, Extents) {
    if unwritten.is_empty() && journal.is_empty() {
        return (used, Extents::new());
    }
    let journal = Extents::from_unsorted(journal);
    let unwritten = Extents::from_unsorted(unwritten);
    // Of millions of claims, only those in the way are put together.
    let is_in_the_way =
        |claim: &Extent| journal.clip(*claim).next().is_some() || unwritten.clip(*claim).next().is_some();
    let claims = others.into_iter().chain(files.iter().map(platter_image::chunking::FileRun::extent));
    let claimed: Extents = claims.chain(metadata.iter().copied()).filter(is_in_the_way).collect();
    let journal = journal.subtract(&claimed);
    let unwritten = unwritten.subtract(&claimed).subtract(&journal);
    let allocated = used.subtract(&unwritten);
    // Only what is allocated can be zeroed.
    let zeroed = journal.subtract(&journal.subtract(&allocated));
    (allocated, zeroed)
}
