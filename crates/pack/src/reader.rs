//! Reads the directory of a sealed pack, trusting none of its values, and reads frames. In a pack, frames lack the ids of their
//! blocks; reading completes a frame with the ids from the directory.

use platter_image::frame::{FrameHeader, ListedBlock, make_whole, whole_header_length};
use platter_image::{BlockId, Error, FrameAddress, IoContext, Result};
use platter_vfs::VfsFile;

use super::format::{
    FrameRow, HEADER_LENGTH, PACK_LENGTH_MAX, PackDirectory, TRAILER_LENGTH, Trailer, decode_footer,
    decode_header, decode_rows, decode_trailer,
};
use platter_records::{PackId, StoreId};

/// Reads header, trailer and footer of a sealed pack.
///
/// # Errors
/// `Corrupt` when the pack is not sealed, is damaged, or has another id or store; `Refused` when a newer Platter wrote it.
pub fn read_directory(file: &dyn VfsFile, pack: PackId, store: StoreId) -> Result<PackDirectory> {
    let trailer = read_trailer(file, pack, store)?;
    let mut footer = vec![0; trailer.footer_length as usize];
    read(file, &mut footer, trailer.footer_offset, "pack footer")?;
    decode_footer(&footer, &trailer)
}

/// As [`read_directory`], but without the ids of blocks, which are most of a footer. Returns the frames, and the offset at which the
/// ids are listed. Nothing proves that they are right: a frame that is found by them must be read by [`read_listed`].
///
/// # Errors
/// As [`read_directory`].
pub fn read_rows(file: &dyn VfsFile, pack: PackId, store: StoreId) -> Result<(Vec<FrameRow>, u64)> {
    let trailer = read_trailer(file, pack, store)?;
    let mut rows = vec![0; trailer.rows_length() as usize];
    read(file, &mut rows, trailer.footer_offset, "pack footer")?;
    Ok((decode_rows(&rows, &trailer)?, trailer.footer_offset + trailer.rows_length()))
}

/// Reads header and trailer of a sealed pack.
fn read_trailer(file: &dyn VfsFile, pack: PackId, store: StoreId) -> Result<Trailer> {
    let found = read_header(file)?;
    if found != (pack, store) {
        return Err(Error::corrupt(format!(
            "pack header: the file is pack {} of store {}",
            found.0, found.1
        )));
    }
    let length = file.length().context(|| "reading a pack's length".into())?;
    if !(HEADER_LENGTH + TRAILER_LENGTH..=PACK_LENGTH_MAX).contains(&length) {
        return Err(Error::corrupt(format!("a file of {length} bytes is too short or too long for a pack")));
    }
    let mut trailer = [0; TRAILER_LENGTH as usize];
    read(file, &mut trailer, length - TRAILER_LENGTH, "pack trailer")?;
    decode_trailer(&trailer, pack, length)
}

/// Reads a pack's header. Returns the ids of pack and store.
pub fn read_header(file: &dyn VfsFile) -> Result<(PackId, StoreId)> {
    let mut header = [0; HEADER_LENGTH as usize];
    read(file, &mut header, 0, "pack header")?;
    decode_header(&header)
}

/// Prepares `stored` for [`read_frame`]: puts the ids of the frame's blocks at its start, and sets its length to `length`, but at
/// least to the length of the whole frame's header. Returns the number of blocks.
pub fn lay_ids(ids: &[BlockId], length: usize, stored: &mut Vec<u8>) -> usize {
    stored.resize(length.max(whole_header_length(ids.len())), 0);
    for (place, id) in stored.chunks_exact_mut(BlockId::LEN).zip(ids) {
        place.copy_from_slice(&id.0);
    }
    ids.len()
}

/// Reads the frame at `offset`, or its start, after the ids that [`lay_ids`] put into `stored`, and completes its header in
/// place. `length` is the length of the whole frame. Contents are not verified.
pub fn read_frame(
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
        return Err(within(Error::corrupt(format!("the frame has {found} bytes, but {length} are listed"))));
    }
    Ok(())
}

/// Reads the frame at an address, or so much of it that it has `length` bytes, and the ids of its `blocks` blocks at `ids_at` in the
/// footer. The frame's header, whose checksum covers the ids, proves that they are right. Contents are not verified.
///
/// # Errors
/// `Corrupt` when the frame or the footer is damaged; `Io`.
pub fn read_listed(
    file: &dyn VfsFile,
    address: FrameAddress,
    (ids_at, blocks): (u64, usize),
    length: usize,
    stored: &mut Vec<u8>,
) -> Result<()> {
    stored.resize(length.min(address.length as usize).max(whole_header_length(blocks)), 0);
    read(file, &mut stored[..blocks * BlockId::LEN], ids_at, "pack footer")?;
    read_frame(file, address.offset, address.length as usize, blocks, stored)?;
    FrameHeader::parse(stored)?;
    stored.truncate(length);
    Ok(())
}

/// Reads the whole frame of a directory's row.
pub fn read_row(file: &dyn VfsFile, row: &FrameRow, ids: &[BlockId], stored: &mut Vec<u8>) -> Result<()> {
    let length = row.whole_length();
    let blocks = lay_ids(ids, length, stored);
    read_frame(file, row.offset, length, blocks, stored)
}

/// As [`read_row`], but only the frame's header.
pub fn read_row_header(
    file: &dyn VfsFile,
    row: &FrameRow,
    ids: &[BlockId],
    stored: &mut Vec<u8>,
) -> Result<()> {
    let blocks = lay_ids(ids, 0, stored);
    read_frame(file, row.offset, row.whole_length(), blocks, stored)
}

/// Fills `buffer`. If the file ends early, that is damage and not an I/O error.
pub(crate) fn read(file: &dyn VfsFile, buffer: &mut [u8], offset: u64, what: &str) -> Result<()> {
    match file.read_exact_at(buffer, offset) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(format!("{what} at offset {offset}: the pack ends before it"))
                .with_source(error))
        }
        result => result.context(|| format!("reading a {what} at offset {offset}")),
    }
}

/// Returns the ids of listed blocks.
pub fn ids(blocks: &[ListedBlock]) -> impl Iterator<Item = BlockId> + '_ {
    blocks.iter().map(|block| block.id)
}
