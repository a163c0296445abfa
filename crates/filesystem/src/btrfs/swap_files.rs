//! Hibernated systems in swap files.
//!
//! The kernel swaps and hibernates into extents that the filesystem calls unwritten, and it syncs first, so nothing else says
//! that they have contents. It does so only in files that are written in place (`NODATACOW`), whose first page then has the
//! mark of a hibernated system.

use std::collections::BTreeSet;

use platter_image::{Error, Extent, Result};

use super::chunks::Chunks;
use super::volume::Volume;
use crate::fields::le64;
use crate::reader::needs_recovery;
use crate::swap::{HEADER_LENGTH_MAX, Header};

/// A filesystem with more files that may be swap files is not read: they would take more than 128 MiB of memory.
const STARTS_MAX: usize = 1 << 21;

const FLAG_IN_PLACE: u64 = 2;

/// The files that may be swap files, file by file.
#[derive(Debug, Default)]
pub(super) struct SwapFiles {
    /// The current file is written in place.
    is_in_place: bool,
    /// Where the current file begins.
    start: Option<Extent>,
    /// The starts of files that may be swap files, as addresses.
    starts: BTreeSet<Extent>,
}

impl SwapFiles {
    /// Begins the next file, of which this is the inode's item.
    pub(super) fn begin(&mut self, item: &[u8]) {
        (self.is_in_place, self.start) = (le64(item, 64) & FLAG_IN_PLACE != 0, None);
    }

    /// Adds an extent of the current file, which comes after those before it in the file.
    ///
    /// # Errors
    /// `Corrupt` if there are too many files.
    pub(super) fn add(&mut self, file_offset: u64, place: Extent, is_written: bool) -> Result<()> {
        // The start of a swap file was written by mkswap; what is not written may have anything of former files.
        if file_offset == 0 && is_written {
            self.start = Some(Extent::new(place.offset, place.length.min(HEADER_LENGTH_MAX)));
        }
        if !is_written && self.is_in_place {
            self.starts.extend(self.start.take());
        }
        match self.starts.len() > STARTS_MAX {
            true => Err(Error::corrupt(format!(
                "it has more than {STARTS_MAX} files that are written in place and have unwritten extents"
            ))),
            false => Ok(()),
        }
    }

    /// Checks that no hibernated system is in one of the files.
    ///
    /// # Errors
    /// `Refused` if there is one; errors of reading the disk.
    pub(super) fn check(&self, volume: &Volume<'_>, chunks: &Chunks) -> Result<()> {
        let mut bytes = Vec::new();
        for start in &self.starts {
            let Some(chunk) = chunks.find(start.offset, start.length) else { continue };
            bytes.resize(start.length as usize, 0);
            volume.read(Chunks::place(chunk, 0, start.offset, start.length).offset, &mut bytes)?;
            if let Some(magic) = Header::find(&bytes).and_then(|header| header.hibernated()) {
                return Err(needs_recovery(
                    format!("a hibernated system is in one of its swap files ({magic})"),
                    "Start this system and shut it down",
                ));
            }
        }
        Ok(())
    }
}
