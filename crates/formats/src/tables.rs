//! Tables of a file that are too large to be kept: read in pieces, of which the last ones used stay in memory.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_image::{DiskRead, Error};

/// Bytes of a piece.
const PIECE: u64 = 64 << 10;
/// Pieces that stay in memory: 8 MiB.
const PIECES_MAX: usize = 128;

/// The cache of all tables of a file.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Pieces by their offset in the file, the last one used first.
    pieces: Mutex<VecDeque<(u64, Arc<Vec<u8>>)>>,
}

impl Tables {
    /// `N` bytes of the table that is called `name`. They must not cross a multiple of 64 KiB of the file.
    ///
    /// # Errors
    /// `InvalidData` if they do not lie inside the file; errors of reading it.
    pub(crate) fn entry<const N: usize>(
        &self,
        file: &dyn DiskRead,
        name: &str,
        offset: u64,
    ) -> io::Result<[u8; N]> {
        let piece = self.piece(file, offset / PIECE * PIECE)?;
        let at = (offset % PIECE) as usize;
        let bytes = piece.get(at..at + N).ok_or_else(|| {
            invalid(format!(
                "{name}: its entry at offset {offset} is not inside the file of {} bytes",
                file.length()
            ))
        })?;
        let mut entry = [0; N];
        entry.copy_from_slice(bytes);
        Ok(entry)
    }

    fn piece(&self, file: &dyn DiskRead, start: u64) -> io::Result<Arc<Vec<u8>>> {
        let mut pieces = self.pieces.lock();
        if let Some(at) = pieces.iter().position(|(offset, _)| *offset == start) {
            if at > 0
                && let Some(used) = pieces.remove(at)
            {
                pieces.push_front(used);
            }
            return Ok(pieces[0].1.clone());
        }
        let mut bytes = vec![0; file.length().saturating_sub(start).min(PIECE) as usize];
        file.read_exact_at(&mut bytes, start)?;
        let bytes = Arc::new(bytes);
        pieces.truncate(PIECES_MAX - 1);
        pieces.push_front((start, bytes.clone()));
        Ok(bytes)
    }
}

/// An error about bytes that are not what they must be: it carries an [`Error`] of kind `Corrupt`.
pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Error::corrupt(what))
}
