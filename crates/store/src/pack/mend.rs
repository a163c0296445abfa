//! Gives a pack that a crash left without a good footer one, where it lies. Its frames stay where they are: that takes
//! no space but the footer's, and no time but the footer's.
//!
//! The frames must have been proven as the disk has them, and synced. So the new footer says: whoever finds it whole
//! need not prove them again.

use platter_image::{IoContext, Result};
use platter_vfs::OpenMode;

use super::SealedPack;
use super::format::{PackDirectory, encode_end, encode_header};
use crate::identity::{PackId, StoreId};
use crate::place::StorePlace;

/// Makes the pack end after the last frame of `directory`, with a footer and a header to match, durably.
///
/// Where there is no space for the footer, frames are dropped from the end until there is, if `may_drop` says so: of a
/// pack that nothing refers to. `directory` is then shorter. `None` when no frame is left: the file is gone.
///
/// # Errors
/// `Io`.
pub(crate) fn mend(
    place: &StorePlace,
    (pack, store): (PackId, StoreId),
    directory: &mut PackDirectory,
    may_drop: bool,
) -> Result<Option<SealedPack>> {
    let path = place.pack(pack);
    let context = || format!("mending {}", path.display());
    directory.is_proven = true;
    let file = place.vfs().open(&path, OpenMode::Write).context(context)?;
    let length = loop {
        if directory.frames.is_empty() {
            place.remove_if_there(&path)?;
            place.sync_dir(&place.pack_dir(pack))?;
            return Ok(None);
        }
        let mut length = directory.end();
        file.set_length(length).context(context)?;
        let mut is_full = false;
        let written = file.write_all_at(&encode_header(pack, store), 0).context(context).and_then(|()| {
            encode_end(pack, directory.end(), directory, |piece| {
                let at = length;
                length += piece.len() as u64;
                let written = file.write_all_at(piece, at);
                is_full =
                    written.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull);
                written.context(context)
            })
        });
        match written {
            Ok(()) => break length,
            Err(_) if is_full && may_drop => directory.truncate(directory.frames.len() - 1),
            Err(error) => return Err(error),
        }
    };
    file.sync().context(context)?;
    place.sync_dir(&place.pack_dir(pack))?;
    // The folder may have been made by a process that did not live to sync its name.
    place.sync_dir(&place.packs_dir())?;
    let (frames, blocks) = (directory.frames.len() as u64, directory.ids.len() as u64);
    Ok(Some(SealedPack { id: pack, length, frames, blocks }))
}
