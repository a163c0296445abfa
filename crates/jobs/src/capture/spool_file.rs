//! The file of an unpacked disk. It has no name, so nothing stays behind, whatever happens; only its owner can read it.
//! Zeros become holes.
//!
//! For an encrypted store, the file is encrypted with a key that only this process has: its blocks on the disk are not
//! overwritten when it is gone. A second file without a name counts how often each piece was written. A piece that is written again
//! gets a new number and thus a new key stream. A piece that was never written is a hole, which is zeros.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_disk::Source;
use platter_encryption::{SPOOL_PIECE_LENGTH, SpoolKey};
use platter_formats::Spool;
use platter_image::{DiskRead, IoContext, Result};

/// Length of a piece: the smallest hole, and what is encrypted together.
const PIECE: usize = SPOOL_PIECE_LENGTH;
/// Most pieces that are encrypted or decrypted at once.
const PIECES_MAX: u64 = 256;
/// Length of the number of a piece.
const NUMBER: usize = 4;

/// A sparse file without a name, as one disk.
#[derive(Debug)]
pub(super) struct SpoolFile {
    file: File,
    encryption: Option<Arc<Encryption>>,
    /// Nothing was written from here on.
    end: u64,
}

impl SpoolFile {
    /// Creates the file in `directory`.
    pub(super) fn create(directory: &Path, is_encrypted: bool) -> Result<Self> {
        let doing = || format!("creating a file for the unpacked disk in {}", directory.display());
        let create = || {
            let file = tempfile::tempfile_in(directory)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            io::Result::Ok(file)
        };
        let file = create().context(doing)?;
        let encryption = match is_encrypted {
            true => Some(Arc::new(Encryption {
                key: SpoolKey::random()?,
                file: file.try_clone().context(doing)?,
                numbers: create().context(doing)?,
            })),
            false => None,
        };
        Ok(Self { file, encryption, end: 0 })
    }

    /// Sets the length of the disk.
    pub(super) fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    /// Opens the disk for reading.
    pub(super) fn open(&self, sector_size: Option<u32>) -> Result<Source> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        match &self.encryption {
            Some(encryption) => {
                Source::open_encrypted(&path, sector_size, Box::new(Decrypted(Arc::clone(encryption))))
            }
            None => Source::open(&path, sector_size),
        }
    }

    /// Whether the file has zeros at these places.
    fn has_zeros(&self, offset: u64, length: usize) -> io::Result<bool> {
        let mut stored = vec![0; length];
        fill_at(&self.file, &mut stored, offset)?;
        Ok(is_zero(&stored))
    }

    fn write_plain(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let first = PIECE - (offset % PIECE as u64) as usize;
        let (head, rest) = bytes.split_at(first.min(bytes.len()));
        let mut at = 0;
        // Neighbours that are not zeros are written together.
        let mut start = None;
        for piece in std::iter::once(head).chain(rest.chunks(PIECE)) {
            let place = offset + at as u64;
            let is_skipped = is_zero(piece) && (place >= self.end || self.has_zeros(place, piece.len())?);
            if !is_skipped {
                start.get_or_insert(at);
            } else if let Some(start) = start.take() {
                self.file.write_all_at(&bytes[start..at], offset + start as u64)?;
            }
            at += piece.len();
        }
        match start {
            Some(start) => self.file.write_all_at(&bytes[start..], offset + start as u64),
            None => Ok(()),
        }
    }
}

impl Spool for SpoolFile {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        match &self.encryption {
            Some(encryption) => encryption.write_all_at(bytes, offset)?,
            None => self.write_plain(bytes, offset)?,
        }
        self.end = self.end.max(end);
        Ok(())
    }

    fn read_exact_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.encryption {
            Some(encryption) => encryption.read_exact_at(buffer, offset),
            None => self.file.read_exact_at(buffer, offset),
        }
    }
}

/// An encrypted file, and the numbers of its pieces: how often each was written, 4 bytes each.
#[derive(Debug)]
struct Encryption {
    key: SpoolKey,
    file: File,
    numbers: File,
}

/// Some pieces that follow each other, not encrypted.
struct Pieces {
    first: u64,
    numbers: Vec<u32>,
    bytes: Vec<u8>,
}

impl Encryption {
    /// Reads and decrypts pieces. Those that were not written are zeros.
    fn pieces(&self, first: u64, count: usize) -> io::Result<Pieces> {
        let (mut numbers, mut bytes) = (vec![0; count * NUMBER], vec![0; count * PIECE]);
        fill_at(&self.numbers, &mut numbers, first * NUMBER as u64)?;
        let numbers: Vec<u32> = numbers
            .chunks_exact(NUMBER)
            .map(|number| u32::from_le_bytes([number[0], number[1], number[2], number[3]]))
            .collect();
        if numbers.iter().any(|number| *number > 0) {
            fill_at(&self.file, &mut bytes, first * PIECE as u64)?;
        }
        for ((number, bytes), piece) in numbers.iter().zip(bytes.chunks_mut(PIECE)).zip(first..) {
            match number {
                0 => bytes.fill(0),
                number => self.key.apply(piece, *number, bytes),
            }
        }
        Ok(Pieces { first, numbers, bytes })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let (first, before, count) = covering(offset + done as u64, bytes.len() - done);
            let length = (count * PIECE - before).min(bytes.len() - done);
            let mut pieces = self.pieces(first, count)?;
            pieces.bytes[before..][..length].copy_from_slice(&bytes[done..done + length]);
            self.encrypt(pieces)?;
            done += length;
        }
        Ok(())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let (first, before, count) = covering(offset + done as u64, buffer.len() - done);
            let length = (count * PIECE - before).min(buffer.len() - done);
            let pieces = self.pieces(first, count)?;
            buffer[done..done + length].copy_from_slice(&pieces.bytes[before..][..length]);
            done += length;
        }
        Ok(())
    }

    /// Encrypts pieces under their next numbers, and writes them. Zeros that were not written before stay a hole.
    fn encrypt(&self, pieces: Pieces) -> io::Result<()> {
        let Pieces { first, mut numbers, mut bytes } = pieces;
        let mut written = Vec::new();
        for (at, (number, bytes)) in numbers.iter_mut().zip(bytes.chunks_mut(PIECE)).enumerate() {
            if *number == 0 && is_zero(bytes) {
                continue;
            }
            *number = number.checked_add(1).ok_or_else(|| io::Error::other("written too often"))?;
            self.key.apply(first + at as u64, *number, bytes);
            written.push(at);
        }
        // The numbers first: if this fails, no number is used for two contents.
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        if !written.is_empty() {
            self.numbers.write_all_at(&numbers, first * NUMBER as u64)?;
        }
        for run in written.chunk_by(|one, next| one + 1 == *next) {
            let bytes = &bytes[run[0] * PIECE..][..run.len() * PIECE];
            self.file.write_all_at(bytes, (first + run[0] as u64) * PIECE as u64)?;
        }
        Ok(())
    }
}

/// Reads an encrypted file as the disk.
struct Decrypted(Arc<Encryption>);

impl DiskRead for Decrypted {
    fn length(&self) -> u64 {
        self.0.file.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
}

/// The first piece of a range, how many of its bytes are before the range, and how many pieces are processed together.
fn covering(offset: u64, length: usize) -> (u64, usize, usize) {
    let before = (offset % PIECE as u64) as usize;
    let count = (before + length).div_ceil(PIECE).min(PIECES_MAX as usize);
    (offset / PIECE as u64, before, count)
}

/// Fills the buffer with the bytes of a file; zeros follow its end.
fn fill_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[done..].fill(0);
    Ok(())
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn create(is_encrypted: bool) -> SpoolFile {
        SpoolFile::create(&std::env::temp_dir(), is_encrypted).unwrap()
    }

    #[test]
    fn zeros_become_holes_and_bytes_stay_where_they_are() {
        for is_encrypted in [false, true] {
            let mut bytes = vec![0; 1 << 20];
            bytes[5000..9000].fill(7);
            bytes[500_000] = 1;
            let mut spool = create(is_encrypted);
            spool.write_all_at(&bytes, 777).unwrap();
            spool.set_length(777 + bytes.len() as u64).unwrap();
            let mut read = vec![1; bytes.len()];
            spool.read_exact_at(&mut read, 777).unwrap();
            assert!(read == bytes);
            let source = spool.open(None).unwrap();
            source.read_exact_at(&mut read, 777).unwrap();
            assert!(read == bytes);
            let metadata = spool.file.metadata().unwrap();
            assert!(metadata.blocks() * 512 <= 6 * 4096);
            assert_eq!(metadata.mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_was_written_last_is_read() {
        const LENGTH: usize = 3 << 20;
        for is_encrypted in [false, true] {
            let (mut spool, mut model) = (create(is_encrypted), vec![0; LENGTH]);
            let mut state = 12345_u64;
            let mut random = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % below
            };
            for round in 0..300 {
                let start = random(LENGTH);
                let length = random([10, 5000, 1_500_000][round % 3]).min(LENGTH - start);
                let bytes: Vec<u8> = vec![(round % 4) as u8; length];
                spool.write_all_at(&bytes, start as u64).unwrap();
                model[start..start + length].copy_from_slice(&bytes);
            }
            spool.set_length(LENGTH as u64).unwrap();
            let mut read = vec![9; LENGTH];
            spool.open(None).unwrap().read_exact_at(&mut read, 0).unwrap();
            assert!(read == model, "encrypted: {is_encrypted}");
        }
    }

    #[test]
    fn nothing_of_an_encrypted_file_is_readable_and_no_key_stream_is_used_twice() {
        let mut spool = create(true);
        let stored = |spool: &SpoolFile| {
            let mut stored = vec![0; 3 * PIECE];
            fill_at(&spool.file, &mut stored, 0).unwrap();
            stored
        };
        spool.write_all_at(&[7; 3 * PIECE], 0).unwrap();
        let first = stored(&spool);
        spool.write_all_at(&[7; PIECE], PIECE as u64).unwrap();
        let second = stored(&spool);
        assert!(first[..PIECE] == second[..PIECE] && first[2 * PIECE..] == second[2 * PIECE..]);
        let (one, other) = (&first[PIECE..2 * PIECE], &second[PIECE..2 * PIECE]);
        assert!(one.chunks(16).zip(other.chunks(16)).all(|(one, other)| one != other));
        assert!(!first.windows(4).any(|bytes| bytes == [7; 4]));
    }
}
