//! Reads the directory of a sealed pack, believing nothing, and frames, which it makes whole: in a pack their blocks' ids
//! stand in the directory only.

use platter_image::frame::{make_whole, whole_header_length};
use platter_image::{BlockId, Error, IoContext, Result};
use platter_vfs::VfsFile;

use super::format::{
    FrameRow, HEADER_LENGTH, PackDirectory, TRAILER_LENGTH, decode_footer, decode_header, decode_trailer,
};
use crate::identity::{PackId, StoreId};

/// Reads header, trailer and footer of a sealed pack.
///
/// # Errors
/// `Corrupt` when it is not sealed, damaged, or not that pack of that store; `Refused` when a newer Platter wrote it.
pub fn read_directory(file: &dyn VfsFile, pack: PackId, store: StoreId) -> Result<PackDirectory> {
    let found = read_header(file)?;
    if found != (pack, store) {
        return Err(Error::corrupt(format!("pack header: it is pack {} of store {}", found.0, found.1)));
    }
    let length = file.length().context(|| "asking a pack's length".into())?;
    if length < HEADER_LENGTH + TRAILER_LENGTH {
        return Err(Error::corrupt(format!("a pack of {length} bytes has no trailer")));
    }
    let mut trailer = [0; TRAILER_LENGTH as usize];
    read(file, &mut trailer, length - TRAILER_LENGTH, "pack trailer")?;
    let trailer = decode_trailer(&trailer, pack, length)?;
    let mut footer = vec![0; trailer.footer_length as usize];
    read(file, &mut footer, trailer.footer_offset, "pack footer")?;
    decode_footer(&footer, &trailer)
}

/// Reads a pack's header: which pack of which store it is.
pub(crate) fn read_header(file: &dyn VfsFile) -> Result<(PackId, StoreId)> {
    let mut header = [0; HEADER_LENGTH as usize];
    read(file, &mut header, 0, "pack header")?;
    decode_header(&header)
}

/// Makes `stored` ready for [`read_frame`]: it begins with the ids of the frame's blocks, and is as long as what is wanted of
/// the whole frame, or as its header. Gives the number of blocks.
pub(crate) fn lay_ids(ids: &[BlockId], length: usize, stored: &mut Vec<u8>) -> usize {
    stored.resize(length.max(whole_header_length(ids.len())), 0);
    for (place, id) in stored.chunks_exact_mut(BlockId::LEN).zip(ids) {
        place.copy_from_slice(&id.0);
    }
    ids.len()
}

/// Reads the frame at `offset`, or the start of it, behind the ids that [`lay_ids`] left in `stored`, and makes it whole where
/// it is: nothing else is proved. `length` is that of the whole frame.
pub(crate) fn read_frame(
    file: &dyn VfsFile,
    offset: u64,
    length: usize,
    blocks: usize,
    stored: &mut [u8],
) -> Result<()> {
    read(file, &mut stored[blocks * BlockId::LEN..], offset, "frame")?;
    let within = |error: Error| error.within(format!("frame at {offset}"));
    let found = make_whole(stored, blocks).map_err(within)?;
    if found != length {
        return Err(within(Error::corrupt(format!("it has {found} bytes where {length} are listed"))));
    }
    Ok(())
}

/// Reads the frame of a directory's row, whole.
pub(crate) fn read_row(
    file: &dyn VfsFile,
    row: &FrameRow,
    ids: &[BlockId],
    stored: &mut Vec<u8>,
) -> Result<()> {
    let length = row.whole_length();
    let blocks = lay_ids(ids, length, stored);
    read_frame(file, row.offset, length, blocks, stored)
}

/// The same, its header only.
pub(crate) fn read_row_header(
    file: &dyn VfsFile,
    row: &FrameRow,
    ids: &[BlockId],
    stored: &mut Vec<u8>,
) -> Result<()> {
    let blocks = lay_ids(ids, 0, stored);
    read_frame(file, row.offset, row.whole_length(), blocks, stored)
}

/// Reads exactly; a file that ends before is damage, not a failure of the system.
pub(super) fn read(file: &dyn VfsFile, buffer: &mut [u8], offset: u64, what: &str) -> Result<()> {
    match file.read_exact_at(buffer, offset) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(format!("{what} at {offset}: the pack ends before")).with_source(error))
        }
        result => result.context(|| format!("reading a {what} at {offset}")),
    }
}
