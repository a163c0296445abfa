//! Finds the frames of a pack without its footer, one after another from the start. The footer has the ids of the blocks, so each
//! frame is decoded and its blocks are hashed. The checksum of its header covers the ids and proves the frame. If a frame is
//! not valid, the search continues for the next one that is.

use platter_image::frame::{
    FrameDecoder, FrameHeader, HEADER_LENGTH as FRAME_HEADER_LENGTH, ListedBlock, PACKED_MAGIC, domain_in,
    peek_packed,
};
use platter_image::{BlockId, Error, ErrorKind, IoContext, Result};
use platter_vfs::VfsFile;

use super::format::{FrameRow, HEADER_LENGTH, PACK_LENGTH_MAX, PackDirectory};
use super::reader::{ids, read, read_frame};

/// Bytes that the search for the next frame reads at once.
const SEARCH_LENGTH: usize = 1 << 20;

/// A frame that was proven: all of its blocks were hashed.
pub struct Scanned<'a> {
    /// Its place in the pack.
    pub row: FrameRow,
    /// Its blocks.
    pub blocks: &'a [ListedBlock],
    /// The whole frame.
    pub stored: &'a [u8],
    /// Whether bytes before it in this pack are not a valid frame: something was lost there.
    pub after_hole: bool,
}

/// Calls `visit` with every valid frame of the pack, in order. Does not need the pack's header. Without the key of an encrypted store,
/// its data and pages cannot be proven, and count as damaged. Reads at most [`PACK_LENGTH_MAX`] bytes.
pub fn scan(file: &dyn VfsFile, visit: &mut dyn FnMut(Scanned<'_>) -> Result<()>) -> Result<()> {
    let length = file.length().context(|| "reading a pack's length".into())?.min(PACK_LENGTH_MAX);
    let (mut offset, mut after_hole) = (HEADER_LENGTH, false);
    let (mut decoder, mut stored) = (FrameDecoder::new()?, Vec::new());
    while offset < length {
        match prove_frame(file, offset, &mut decoder, &mut stored) {
            Ok((row, header)) => {
                visit(Scanned { row, blocks: &header.blocks, stored: &stored, after_hole })?;
                offset = row.end();
            }
            // Refused: it names a domain whose key is not here. It can be damaged, or data that looks like a frame.
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused) => {
                after_hole = true;
                let Some(next) = find_magic(file, offset + 1, length)? else { return Ok(()) };
                offset = next;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns whether the first frame of a pack names an encrypted domain. A pack that cannot be read does not.
pub fn begins_encrypted(file: &dyn VfsFile) -> bool {
    let mut fixed = [0; FRAME_HEADER_LENGTH];
    let is_read = read(file, &mut fixed, HEADER_LENGTH, "frame header").is_ok();
    is_read && peek_packed(&fixed).is_ok() && domain_in(&fixed).is_encrypted()
}

/// Returns whether the first frame of a pack cannot be proven, because its key is not in this process.
pub fn begins_locked(file: &dyn VfsFile) -> bool {
    let mut fixed = [0; FRAME_HEADER_LENGTH];
    let is_read = read(file, &mut fixed, HEADER_LENGTH, "frame header").is_ok();
    is_read && peek_packed(&fixed).is_ok() && !domain_in(&fixed).is_open()
}

/// Builds the directory of a pack whose footer is damaged from its frames.
///
/// # Errors
/// `Io`.
pub fn scanned_directory(file: &dyn VfsFile) -> Result<PackDirectory> {
    let mut directory = PackDirectory::default();
    scan(file, &mut |frame| {
        directory.push(frame.row, ids(frame.blocks));
        Ok(())
    })?;
    Ok(directory)
}

fn prove_frame(
    file: &dyn VfsFile,
    offset: u64,
    decoder: &mut FrameDecoder,
    stored: &mut Vec<u8>,
) -> Result<(FrameRow, FrameHeader)> {
    let mut fixed = [0; FRAME_HEADER_LENGTH];
    read(file, &mut fixed, offset, "frame header")?;
    let (blocks, packed_length) = peek_packed(&fixed)?;
    if blocks == 0 {
        return Err(Error::corrupt("a frame without blocks"));
    }
    let length = packed_length + blocks * BlockId::LEN;
    stored.resize(length, 0);
    // The bytes in the place of the ids do not matter yet: the ids are computed from the contents.
    read_frame(file, offset, length, blocks, stored)?;
    let header = decoder.name_blocks(stored)?;
    let row = FrameRow {
        offset,
        packed_length: packed_length as u32,
        raw_length: header.raw_length,
        kind: header.kind,
        blocks: blocks as u32,
    };
    Ok((row, header))
}

/// Returns the offset of the next frame magic at or after `start`.
fn find_magic(file: &dyn VfsFile, mut start: u64, length: u64) -> Result<Option<u64>> {
    let mut window = vec![0; SEARCH_LENGTH];
    while start + PACKED_MAGIC.len() as u64 <= length {
        let count = (length - start).min(SEARCH_LENGTH as u64) as usize;
        read(file, &mut window[..count], start, "part of a damaged pack")?;
        if let Some(at) = window[..count].windows(PACKED_MAGIC.len()).position(|bytes| bytes == PACKED_MAGIC)
        {
            return Ok(Some(start + at as u64));
        }
        start += (count + 1 - PACKED_MAGIC.len()) as u64;
    }
    Ok(None)
}
