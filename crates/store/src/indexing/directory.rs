//! Which blocks a frame has, for packs that the index on disk covers. The index maps blocks to frames; the reverse is in the footer
//! of each pack. The footers in use are kept in memory, up to a limit. As long as few frames of a pack are read, only the outline of
//! its footer is, and the ids of these frames.
//!
//! If a pack's file is gone or its footer is damaged, its frames are taken from the index on disk, which is read completely once for
//! that. Then the pack stays in memory.

use std::sync::Arc;

use platter_image::{BlockId, Error, ErrorKind, FrameAddress, Result};
use platter_index::{FrameList, directory_of};

use crate::block_index::{BlockIndex, IndexError};
use crate::check::is_missing_file;
use crate::quarantine::condition_of;
use crate::store::Shared;
use platter_pack::{read_directory, read_listed, read_rows};

impl Shared {
    /// Answers a question to the index. If the index on disk cannot be read, goes on with the footers of packs, in memory.
    pub(crate) fn asked<T>(&self, ask: impl Fn(&BlockIndex) -> Result<T, IndexError>) -> Result<T> {
        loop {
            let asked = ask(&self.index.read());
            match asked {
                Ok(answer) => return Ok(answer),
                Err(IndexError(error)) => self.go_on_in_memory(&error)?,
            }
        }
    }

    /// Calls `with` with the blocks of the frame at an address, in order. `None`: that frame is not known.
    ///
    /// # Errors
    /// When the pack's directory cannot be read.
    pub(crate) fn with_ids<T>(
        &self,
        address: FrameAddress,
        with: impl FnOnce(&[BlockId]) -> T,
    ) -> Result<Option<T>> {
        {
            let index = self.index.read();
            if let Some(ids) = index.in_memory().ids_at(address) {
                return Ok(Some(with(ids)));
            }
            if index.covering(address.pack).is_none() {
                return Ok(None);
            }
        }
        if let Some(list) = self.directory(address.pack)? {
            let found = list.at(address.offset).filter(|(length, _)| *length == address.length);
            return Ok(found.map(|(_, ids)| with(ids)));
        }
        // It was moved into memory.
        Ok(self.index.read().in_memory().ids_at(address).map(with))
    }

    /// As [`Shared::read_frame_start`], by the pack's outline: without the ids of all its blocks. If this fails or returns false,
    /// nothing follows from that: the frame must be read by the pack's directory.
    ///
    /// # Errors
    /// When something cannot be read, or is wrong.
    pub(crate) fn read_by_outline(
        &self,
        address: FrameAddress,
        length: usize,
        stored: &mut Vec<u8>,
    ) -> Result<bool> {
        let ordinal = address.pack;
        if self.index.read().covering(ordinal).is_none() {
            return Ok(false);
        }
        let list = match self.directories.get(ordinal) {
            Some(list) => list,
            None => {
                let (rows, ids_at) =
                    read_rows(&*self.packs.file(ordinal)?, self.packs.get(ordinal)?.id, self.id)?;
                let outline = Arc::new(FrameList::outline(&rows, ids_at));
                self.directories.add(ordinal, &outline);
                outline
            }
        };
        let Some(ids) = list.place_of_ids(address) else { return Ok(false) };
        read_listed(&*self.packs.file(ordinal)?, address, ids, length, stored)?;
        Ok(true)
    }

    /// Returns the blocks of the frame that begins at that offset of a pack.
    ///
    /// # Errors
    /// As [`Shared::with_ids`].
    pub(crate) fn ids_from(&self, ordinal: u32, offset: u64) -> Result<Option<Vec<BlockId>>> {
        let list = self.directory(ordinal)?;
        if let Some((_, ids)) = list.as_ref().and_then(|list| list.at(offset)) {
            return Ok(Some(ids.to_vec()));
        }
        let index = self.index.read();
        let address = index.in_memory().address_at(ordinal, offset);
        Ok(address.and_then(|address| index.in_memory().ids_at(address)).map(<[BlockId]>::to_vec))
    }

    /// Returns the addresses of all known frames of a pack.
    ///
    /// # Errors
    /// As [`Shared::with_ids`].
    pub(crate) fn addresses_of(&self, ordinal: u32) -> Result<Vec<FrameAddress>> {
        if let Some(list) = self.directory(ordinal)? {
            return Ok(list.addresses(ordinal));
        }
        let index = self.index.read();
        let all = index.in_memory().frames().map(|(address, _)| address);
        Ok(all.filter(|address| address.pack == ordinal).collect())
    }

    /// Returns the directory of a covered pack; `None` if the pack is in memory.
    fn directory(&self, ordinal: u32) -> Result<Option<Arc<FrameList>>> {
        if self.index.read().covering(ordinal).is_none() {
            return Ok(None);
        }
        if let Some(list) = self.directories.get(ordinal).filter(|list| !list.is_outline()) {
            return Ok(Some(list));
        }
        let id = self.packs.get(ordinal)?.id;
        let read = self.packs.file(ordinal).and_then(|file| read_directory(&*file, id, self.id));
        match read {
            Ok(directory) => {
                let list = Arc::new(FrameList::new(directory));
                self.directories.add(ordinal, &list);
                Ok(Some(list))
            }
            Err(error) if condition_of(&error).is_some() && self.take_from_disk(ordinal).is_ok() => {
                self.note_damage(format!("pack {id}: {}", error.with_causes()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves a covered pack into memory: by its footer, or from the index on disk.
    ///
    /// # Errors
    /// `Refused` when the index in memory is full.
    pub(crate) fn take_into_memory(&self, ordinal: u32) -> Result<()> {
        if self.index.read().covering(ordinal).is_none() {
            return Ok(());
        }
        let id = self.packs.get(ordinal)?.id;
        match self.packs.file(ordinal).and_then(|file| read_directory(&*file, id, self.id)) {
            Ok(directory) => self.index.write().keep_in_memory(ordinal, &directory),
            Err(_) => self.take_from_disk(ordinal),
        }
    }

    /// Moves a pack from the index on disk into memory. Reads the whole index.
    fn take_from_disk(&self, ordinal: u32) -> Result<()> {
        let covering = self.index.read().covering(ordinal).map(|(disk, number)| (Arc::clone(disk), number));
        let Some((snapshot, number)) = covering else { return Ok(()) };
        match snapshot.entries_of(number) {
            Ok(entries) => self.index.write().keep_in_memory(ordinal, &directory_of(&entries)),
            Err(error) => self.go_on_in_memory(&error),
        }
    }

    /// Stops using the index on disk, which could not be read: reads all footers into memory. If they cannot be read either, the
    /// index stays in use.
    pub(crate) fn go_on_in_memory(&self, error: &Error) -> Result<()> {
        let mut index = self.index.write();
        if index.snapshot().is_none() {
            // Another thread did it.
            return Ok(());
        }
        let mut directories = Vec::new();
        for ordinal in index.covered() {
            let id = self.packs.get(ordinal)?.id;
            match self.packs.file(ordinal).and_then(|file| read_directory(&*file, id, self.id)) {
                Ok(directory) => directories.push((ordinal, directory)),
                Err(error) if error.kind() == ErrorKind::Corrupt || is_missing_file(&error) => {
                    let file = self.packs.file(ordinal);
                    directories.push((ordinal, self.directory_or_frames(id, file)?));
                }
                Err(error) => return Err(error.within("neither the block index nor a pack can be read")),
            }
        }
        index.forget_disk();
        self.note_damage(format!(
            "the block index is damaged, so it is not used; the next writer makes it again: {}",
            error.with_causes()
        ));
        self.index_is_broken.store(true, std::sync::atomic::Ordering::Relaxed);
        directories.iter().try_for_each(|(ordinal, directory)| index.push_pack(*ordinal, directory))
    }
}
