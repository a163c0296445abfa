//! Reads the directory of a sealed pack, believing nothing.

use platter_image::{Error, IoContext, Result};
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

/// Reads a frame's stored bytes.
pub(crate) fn read_row(file: &dyn VfsFile, row: &FrameRow, stored: &mut Vec<u8>) -> Result<()> {
    stored.resize(row.stored_length as usize, 0);
    read(file, stored, row.offset, "frame")
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
