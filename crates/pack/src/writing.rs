//! Writes one frame in the form it has in a pack.

use platter_image::frame::to_packed;
use platter_image::{IoContext, Result};
use platter_vfs::VfsFile;

/// Writes a whole frame in the form it has in a pack. Returns its length there. Uses two writes to avoid copying the payload.
pub fn write_frame(file: &dyn VfsFile, offset: u64, stored: &[u8]) -> Result<u32> {
    let (header, payload) = to_packed(stored)?;
    let length = header.len() + payload.len();
    file.write_all_at(&header, offset)
        .and_then(|()| file.write_all_at(payload, offset + header.len() as u64))
        .context(|| format!("writing {length} bytes at {offset}"))?;
    Ok(length as u32)
}
