//! Writes a new footer for a pack that a crash left without a valid one. The frames stay in place: it takes only the space and
//! the time of the footer.
//!
//! The frames must have been synced and then proven by reading them from the disk. The new footer records that, so that they need
//! not be proven again.

use platter_image::{IoContext, Result};
use platter_vfs::OpenMode;

use crate::pack_writer::SealedPack;
use crate::place::StorePlace;
use platter_pack::{PackDirectory, encode_end, encode_header};
use platter_records::{PackId, StoreId};

/// Truncates the pack after the last frame of `directory`, and writes a matching footer and header, durably.
///
/// Returns `None` if the pack has no frame and the file was removed.
///
/// # Errors
/// `Io`, also without space for the footer: the frames then stay as they are.
pub(crate) fn mend(
    place: &StorePlace,
    (pack, store): (PackId, StoreId),
    directory: &mut PackDirectory,
) -> Result<Option<SealedPack>> {
    let path = place.pack(pack);
    let context = || format!("writing a new footer for {}", path.display());
    directory.is_proven = true;
    let file = place.vfs().open(&path, OpenMode::Write).context(context)?;
    if directory.frames.is_empty() {
        place.remove_if_there(&path)?;
        place.sync_dir(&place.pack_dir(pack))?;
        return Ok(None);
    }
    let mut length = directory.end();
    file.set_length(length).context(context)?;
    file.write_all_at(&encode_header(pack, store), 0).context(context)?;
    encode_end(pack, directory.end(), directory, |piece| {
        let at = length;
        length += piece.len() as u64;
        file.write_all_at(piece, at).context(context)
    })?;
    file.sync().context(context)?;
    place.sync_dir(&place.pack_dir(pack))?;
    // A process that crashed may have created the folder without syncing its name.
    place.sync_dir(&place.packs_dir())?;
    let (frames, blocks) = (directory.frames.len() as u64, directory.ids.len() as u64);
    Ok(Some(SealedPack { id: pack, length, frames, blocks }))
}
