//! Finds the frames of a pack without its footer: from the start, one after another, each proving itself by its
//! checksums. Where one does not, the search goes on for the next that does.

use platter_image::frame::{FrameHeader, HEADER_LENGTH as FRAME_HEADER_LENGTH, ListedBlock, MAGIC};
use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_vfs::VfsFile;

use super::format::{FrameRow, HEADER_LENGTH};
use super::reader::{read, read_row};

/// Bytes read at once in the search for the next frame.
const SEARCH_LENGTH: usize = 1 << 20;

/// A frame that proved itself.
pub(crate) struct Scanned<'a> {
    pub(crate) row: FrameRow,
    pub(crate) blocks: &'a [ListedBlock],
    /// Header and payload as they lie.
    pub(crate) stored: &'a [u8],
    /// Whether bytes before it, in this pack, were no frame: something was lost there.
    pub(crate) after_hole: bool,
}

/// Calls `visit` with every frame of the pack, in order. Whether the header is good does not matter.
pub(crate) fn scan(file: &dyn VfsFile, visit: &mut dyn FnMut(Scanned<'_>) -> Result<()>) -> Result<()> {
    let length = file.length().context(|| "asking a pack's length".into())?;
    let (mut offset, mut after_hole) = (HEADER_LENGTH, false);
    let mut stored = Vec::new();
    while offset < length {
        match read_frame(file, offset, &mut stored) {
            Ok((row, header)) => {
                visit(Scanned { row, blocks: &header.blocks, stored: &stored, after_hole })?;
                offset += u64::from(row.stored_length);
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                after_hole = true;
                let Some(next) = find_magic(file, offset + 1, length)? else { return Ok(()) };
                offset = next;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_frame(file: &dyn VfsFile, offset: u64, stored: &mut Vec<u8>) -> Result<(FrameRow, FrameHeader)> {
    let mut fixed = [0; FRAME_HEADER_LENGTH];
    read(file, &mut fixed, offset, "frame header")?;
    let (_, stored_length) = FrameHeader::peek_lengths(&fixed)?;
    let mut row = FrameRow {
        offset,
        stored_length: stored_length as u32,
        raw_length: 0,
        kind: platter_image::Kind::Data,
        blocks: 0,
    };
    read_row(file, &row, stored)?;
    let header = FrameHeader::parse(stored)?;
    header.payload(stored)?;
    if header.blocks.is_empty() {
        return Err(Error::corrupt("a frame without blocks"));
    }
    row.raw_length = header.raw_length;
    row.kind = header.kind;
    row.blocks = header.blocks.len() as u32;
    Ok((row, header))
}

/// Where the next frame may start, at or after `start`.
fn find_magic(file: &dyn VfsFile, mut start: u64, length: u64) -> Result<Option<u64>> {
    let mut window = vec![0; SEARCH_LENGTH];
    while start + MAGIC.len() as u64 <= length {
        let count = (length - start).min(SEARCH_LENGTH as u64) as usize;
        read(file, &mut window[..count], start, "stretch of a damaged pack")?;
        if let Some(at) = window[..count].windows(MAGIC.len()).position(|bytes| bytes == MAGIC) {
            return Ok(Some(start + at as u64));
        }
        start += (count + 1 - MAGIC.len()) as u64;
    }
    Ok(None)
}
