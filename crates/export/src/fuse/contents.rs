//! Operations on the contents of an open file, independent of the kernel interface.

use std::cell::RefCell;

use fuser::Errno;
use platter_image::Extent;
use platter_vdisk::Allocation;

use super::failure::{Answer, Failure};
use crate::tree::OpenFile;

/// Maximum bytes of a read or write.
pub(super) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Maximum file size: the kernel's offsets are signed.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Maximum bytes copied per request; programs request the rest. So no request occupies a thread for minutes.
const COPY_BYTES_MAX: u64 = 32 << 20;
/// Maximum bytes cloned per request: the reply has 32 bits, and a part should end at a page boundary.
const TAKE_OVER_BYTES_MAX: u64 = u32::MAX as u64 - 0xfff;

thread_local! {
    /// One buffer per serving thread, so reads need not allocate and zero memory.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `with` with the thread's buffer.
fn with_buffer<T>(length: usize, use_it: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        use_it(&mut buffer[..length])
    })
}

/// Reads up to `size` bytes (fewer only at the end of the file) and passes them to `take`.
pub(super) fn read<T>(
    file: &dyn OpenFile,
    offset: u64,
    size: u32,
    take: impl FnOnce(&[u8]) -> T,
) -> Answer<T> {
    // The read must not be shortened: the kernel takes a short reply as the end of the file.
    if size as usize > REQUEST_BYTES_MAX {
        return Err(Errno::EINVAL.into());
    }
    let length = file.length().saturating_sub(offset).min(u64::from(size)) as usize;
    with_buffer(length, |buffer| {
        if length > 0 {
            file.read(buffer, offset).map_err(Failure::Contents)?;
        }
        Ok(take(buffer))
    })
}

/// Writes `bytes`, and syncs them if the file was opened that way.
pub(super) fn write(file: &dyn OpenFile, offset: u64, bytes: &[u8], is_synchronous: bool) -> Answer<()> {
    if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
        return Err(Errno::EFBIG.into());
    }
    file.write(bytes, offset).map_err(Failure::Contents)?;
    if is_synchronous {
        file.sync().map_err(Failure::Contents)?;
    }
    Ok(())
}

/// Finds the next data or hole from `offset` on. The end of the file counts as a hole.
pub(super) fn seek(file: &dyn OpenFile, offset: i64, whence: i32) -> Answer<u64> {
    let wanted = match whence {
        libc::SEEK_DATA => Allocation::Data,
        libc::SEEK_HOLE => Allocation::Zero,
        _ => return Err(Errno::EINVAL.into()),
    };
    let length = file.length();
    let offset = u64::try_from(offset).ok().filter(|offset| *offset < length).ok_or(Errno::ENXIO)?;
    let mut found = None;
    file.extents(Extent::between(offset, length), &mut |extent, allocation| {
        if allocation == wanted {
            found = Some(extent.offset.max(offset));
        }
        found.is_none()
    })?;
    match (found, wanted) {
        (Some(place), _) => Ok(place),
        (None, Allocation::Zero) => Ok(length),
        (None, Allocation::Data) => Err(Errno::ENXIO.into()),
    }
}

/// Implements `fallocate`: holes, zeros, or nothing.
pub(super) fn allocate(file: &dyn OpenFile, offset: u64, length: u64, mode: i32) -> Answer<()> {
    let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::EFBIG)?;
    let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    let is_zero = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => false,
        libc::FALLOC_FL_ZERO_RANGE => true,
        libc::FALLOC_FL_PUNCH_HOLE if keeps_size => true,
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let has = file.length();
    if is_zero {
        let range = Extent::between(offset, end.min(has));
        if range.length > 0 {
            file.write_zeroes(range)?;
        }
    }
    match end > has {
        true if !keeps_size => file.set_length(end)?,
        // Space after the end cannot be reserved.
        true if !is_zero => return Err(Errno::EOPNOTSUPP.into()),
        _ => {}
    }
    Ok(())
}

/// Copies `length` bytes from one file to another, or fewer; zero only at the end of the source.
pub(super) fn copy(
    (source, from): (&dyn OpenFile, u64),
    (target, to): (&dyn OpenFile, u64),
    length: u64,
) -> Answer<u32> {
    let there = source.length().saturating_sub(from);
    let length = length.min(there).min(TAKE_OVER_BYTES_MAX);
    if length == 0 {
        return Ok(0);
    }
    if to.checked_add(length).is_none_or(|end| end > FILE_BYTES_MAX) {
        return Err(Errno::EFBIG.into());
    }
    if target.take_over(source, Extent::new(from, length), to)? {
        return Ok(length as u32);
    }
    copy_bytes((source, from), (target, to), length.min(COPY_BYTES_MAX)).map(|copied| copied as u32)
}

/// Copies through the thread's buffer. Bytes copied before an error are reported as success; the next request gets the
/// error.
fn copy_bytes(
    (source, from): (&dyn OpenFile, u64),
    (target, to): (&dyn OpenFile, u64),
    length: u64,
) -> Answer<u64> {
    let mut copied = 0;
    while copied < length {
        let part = (length - copied).min(REQUEST_BYTES_MAX as u64) as usize;
        let result = with_buffer(part, |buffer| {
            source.read(buffer, from + copied)?;
            target.write(buffer, to + copied)
        });
        match result {
            Ok(()) => copied += part as u64,
            Err(_) if copied > 0 => break,
            Err(error) => return Err(Failure::Contents(error)),
        }
    }
    Ok(copied)
}
