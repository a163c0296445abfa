//! What an earlier process left of a segment: what its footer lists, or, where there is none, the frames that prove themselves.

use platter_image::{ErrorKind, IoContext, Result};
use platter_vfs::VfsFile;

use super::place::pack_id;
use crate::identity::StoreId;
use crate::index::ids;
use crate::pack::{HEADER_LENGTH, PackDirectory, read_directory, read_header, scan};

/// What was found.
pub(super) struct Found {
    /// Its frames.
    pub(super) directory: PackDirectory,
    /// Their blocks were hashed: there was no footer. Those of a footer were not even read.
    pub(super) hashed: bool,
    /// Bytes of the file.
    pub(super) length: u64,
    /// Where more frames may follow: it has no footer, and no hole.
    pub(super) end: Option<u64>,
}

/// Reads a segment.
///
/// # Errors
/// `Io`, and whatever says that it is not that segment of that cache.
pub(super) fn read(file: &dyn VfsFile, number: u32, cache: StoreId) -> Result<Found> {
    let length = file.length().context(|| "asking a segment's length".into())?;
    match read_directory(file, pack_id(number), cache) {
        Ok(directory) => return Ok(Found { directory, hashed: false, length, end: None }),
        Err(error) if error.kind() == ErrorKind::Corrupt => {}
        Err(error) => return Err(error),
    }
    // A segment that is another's is never written on; its frames are as good as any.
    let is_ours = read_header(file).is_ok_and(|found| found == (pack_id(number), cache));
    let (mut directory, mut end, mut has_hole) = (PackDirectory::default(), HEADER_LENGTH, false);
    scan(file, &mut |frame| {
        has_hole |= frame.after_hole;
        end = frame.row.end();
        directory.push(frame.row, ids(frame.blocks));
        Ok(())
    })?;
    Ok(Found { directory, hashed: true, length, end: (is_ours && !has_hole).then_some(end) })
}
