//! Open files other than imports: a version's disk, a score, the live disk.

use std::io;
use std::sync::Arc;

use platter_export::tree::{Access, OpenFile};
use platter_image::{Error, Extent, Result, Score};
use platter_vdisk::{Allocation, BlockDevice};

use super::view::Contents;

/// The disk of a version. Its contents never change, even if the version is renamed or forgotten.
pub(super) struct VersionFile {
    /// Held to keep the node's number known while this is open.
    pub(super) contents: Arc<Contents>,
    pub(super) disk: Arc<dyn BlockDevice>,
}

impl OpenFile for VersionFile {
    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.disk.read(buffer, offset)
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.disk.extents(range, visit)
    }

    fn score(&self) -> Option<Score> {
        Some(self.contents.score)
    }
}

/// Bytes of a score file.
pub(super) const SCORE_FILE_LENGTH: u64 = 65;

/// A score in text, with a newline.
pub(super) struct ScoreFile {
    /// Held as in a [`VersionFile`].
    pub(super) contents: Arc<Contents>,
}

impl OpenFile for ScoreFile {
    fn length(&self) -> u64 {
        SCORE_FILE_LENGTH
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let text = format!("{}\n", self.contents.score);
        let range = usize::try_from(offset)
            .ok()
            .and_then(|offset| text.as_bytes().get(offset..)?.get(..buffer.len()));
        let range =
            range.ok_or_else(|| Error::refused(format!("a score file ends at {SCORE_FILE_LENGTH}")))?;
        buffer.copy_from_slice(range);
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Data);
        Ok(())
    }
}

/// The live disk of an image.
pub(super) struct LiveFile {
    disk: Arc<dyn BlockDevice>,
    image: String,
    is_writable: bool,
}

impl LiveFile {
    pub(super) fn open(image: &str, disk: Arc<dyn BlockDevice>, access: Access) -> Result<Self> {
        let is_writable = access != Access::Read;
        if is_writable && !disk.is_writable() {
            return Err(Error::refused(format!("{image} is served read-only: attach it with --write")));
        }
        Ok(Self { disk, image: image.to_owned(), is_writable })
    }

    /// Checks whether a range may be written.
    fn check(&self, range: Extent) -> Result<()> {
        if !self.is_writable {
            return Err(Error::refused(format!("the disk of {} was opened read-only", self.image)));
        }
        let length = self.disk.length();
        if range.length > length || range.offset > length - range.length {
            let what = format!(
                "{} bytes at {} of {}: the disk ends at {length}",
                range.length, range.offset, self.image
            );
            return Err(Error::io(what, io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }
}

impl OpenFile for LiveFile {
    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.disk.read(buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check(Extent::new(offset, bytes.len() as u64))?;
        self.disk.write(bytes, offset)
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.check(range)?;
        self.disk.write_zeroes(range)
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.check(Extent::new(0, 0))?;
        match self.disk.length() {
            now if now == length => Ok(()),
            now => Err(Error::refused(format!(
                "the disk of {} has {now} bytes, and cannot have {length}",
                self.image
            ))),
        }
    }

    fn sync(&self) -> Result<()> {
        self.disk.flush()
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.disk.extents(range, visit)
    }
}
