//! The disk of an image, for reading all of its data. What is damaged reads as zeros, and is counted.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use platter_image::{DiskRead, Error, Extent, Result};
use platter_vdisk::{BlockDevice, RecipeDisk};

/// After a failed read, so many bytes are read at a time.
const PIECE: u64 = 64 << 10;

/// A version, or a range of it, as a disk.
pub(super) struct ImageDisk {
    disk: RecipeDisk,
    range: Extent,
    sector_size: u32,
    lost_bytes: AtomicU64,
    damage: Mutex<Option<String>>,
}

impl ImageDisk {
    pub(super) fn new(disk: RecipeDisk, range: Option<Extent>, sector_size: u32) -> Self {
        let range = range.unwrap_or(Extent::new(0, disk.length()));
        Self { disk, range, sector_size, lost_bytes: AtomicU64::new(0), damage: Mutex::default() }
    }

    /// The bytes that could not be read so far, and the first reason. What is read twice counts twice.
    pub(super) fn lost(&self) -> (u64, Option<String>) {
        (self.lost_bytes.load(Ordering::Relaxed), self.damage.lock().clone())
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// Errors that are no damage.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let start = self.range.offset.saturating_add(offset);
        match self.disk.read(buffer, start) {
            Err(error) if error.is_data_loss() => {}
            read => return read,
        }
        let mut at = 0;
        while at < buffer.len() {
            // Pieces are aligned, so that each damaged block is met once.
            let place = start + at as u64;
            let length = (PIECE - place % PIECE).min((buffer.len() - at) as u64) as usize;
            let piece = &mut buffer[at..at + length];
            match self.disk.read(piece, place) {
                Err(error) if error.is_data_loss() => {
                    piece.fill(0);
                    self.note(length as u64, &error);
                }
                read => read?,
            }
            at += length;
        }
        Ok(())
    }

    fn note(&self, bytes: u64, error: &Error) {
        self.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.damage.lock().get_or_insert_with(|| error.with_causes());
    }
}

impl DiskRead for ImageDisk {
    fn length(&self) -> u64 {
        self.range.length
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.range.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read(buffer, offset).map_err(io::Error::other)
    }
}
