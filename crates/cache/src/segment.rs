//! Opens a segment that an earlier process wrote: by its footer, or without one by verifying each frame.

use platter_image::{ErrorKind, IoContext, Result};
use platter_vfs::VfsFile;

use super::place::pack_id;
use platter_pack::ids;
use platter_pack::{HEADER_LENGTH, PackDirectory, begins_locked, read_directory, read_header, scan};
use platter_records::StoreId;

/// The contents of a segment.
pub(super) struct SegmentContents {
    /// Its frames.
    pub(super) directory: PackDirectory,
    /// Whether the blocks were hashed: true if there was no footer. With a footer, frames were not even read.
    pub(super) hashed: bool,
    /// Length of the file in bytes.
    pub(super) length: u64,
    /// Offset at which frames can be appended; `None` if there is a footer or a hole, or the key of its frames is missing.
    pub(super) end: Option<u64>,
}

/// Reads a segment.
///
/// # Errors
/// `Io`, and errors that show that it is another segment or of another cache.
pub(super) fn read(file: &dyn VfsFile, number: u32, cache: StoreId) -> Result<SegmentContents> {
    let length = file.length().context(|| "reading a segment's length".into())?;
    match read_directory(file, pack_id(number), cache) {
        Ok(directory) => return Ok(SegmentContents { directory, hashed: false, length, end: None }),
        Err(error) if error.kind() == ErrorKind::Corrupt => {}
        Err(error) => return Err(error),
    }
    // A segment with another id is never appended to, but its frames are used.
    let is_ours = read_header(file).is_ok_and(|found| found == (pack_id(number), cache));
    let (mut directory, mut end, mut has_hole) = (PackDirectory::default(), HEADER_LENGTH, false);
    scan(file, &mut |frame| {
        has_hole |= frame.after_hole;
        end = frame.row.end();
        directory.push(frame.row, ids(frame.blocks));
        Ok(())
    })?;
    // Frames that cannot be proven without their key are not known here, but they stay: a later process may have it.
    let is_whole = is_ours && !has_hole && !begins_locked(file);
    Ok(SegmentContents { directory, hashed: true, length, end: is_whole.then_some(end) })
}
