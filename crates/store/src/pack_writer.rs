//! Appends frames to a new pack and seals it. After an error the state of the pack is unknown and it must not be used further:
//! its owner then makes the store refuse writes (design: durable).

use std::path::PathBuf;

use platter_image::frame::{EncodedFrame, packed_length};
use platter_image::{IoContext, Result};
use platter_vfs::{OpenMode, VfsFile};

use crate::place::StorePlace;
use platter_pack::{
    FrameRow, HEADER_LENGTH, PACK_BLOCKS_MAX, PACK_FRAMES_MAX, PackDirectory, encode_end, encode_header, ids,
    write_frame,
};
use platter_records::{PackId, StoreId};

/// A pack that is being written.
#[derive(Debug)]
pub(crate) struct PackWriter {
    place: StorePlace,
    id: PackId,
    path: PathBuf,
    file: Box<dyn VfsFile>,
    length: u64,
    directory: PackDirectory,
}

/// The facts about a sealed pack that the catalog stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedPack {
    pub(crate) id: PackId,
    /// Length of the file in bytes.
    pub(crate) length: u64,
    pub(crate) frames: u64,
    pub(crate) blocks: u64,
}

impl PackWriter {
    /// Creates a pack with a new random id.
    pub(crate) fn create(place: &StorePlace, store: StoreId) -> Result<Self> {
        let id = PackId(place.vfs().random_id().context(|| "choosing a name for a pack".into())?);
        place.create_dirs(&place.pack_dir(id))?;
        let path = place.pack(id);
        let file =
            place.vfs().open(&path, OpenMode::CreateNew).context(|| format!("making {}", path.display()))?;
        file.write_all_at(&encode_header(id, store), 0).context(|| format!("writing {}", path.display()))?;
        let directory = PackDirectory::default();
        Ok(Self { place: place.clone(), id, path, file, length: HEADER_LENGTH, directory })
    }

    /// Returns the pack's id.
    pub(crate) fn id(&self) -> PackId {
        self.id
    }

    /// Returns whether that frame should go into the next pack.
    pub(crate) fn is_full_for(&self, frame: &EncodedFrame) -> bool {
        !self.directory.frames.is_empty()
            && (self.length + packed_length(frame.stored.len(), frame.blocks.len()) as u64
                > self.place.pack_length_target()
                || self.directory.frames.len() == PACK_FRAMES_MAX
                || self.directory.ids.len() + frame.blocks.len() > PACK_BLOCKS_MAX)
    }

    /// Appends a frame and returns its offset.
    pub(crate) fn append(&mut self, frame: &EncodedFrame) -> Result<u64> {
        let offset = self.length;
        let length = write_frame(&*self.file, offset, &frame.stored)
            .map_err(|error| error.within(format!("appending to {}", self.path.display())))?;
        self.length += u64::from(length);
        let row = FrameRow {
            offset,
            packed_length: length,
            raw_length: frame.raw_length,
            kind: frame.kind,
            blocks: frame.blocks.len() as u32,
        };
        self.directory.push(row, ids(&frame.blocks));
        Ok(offset)
    }

    /// Makes the frames so far durable, so that sealing, which happens under the catalog's lock, is short.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync().context(|| format!("syncing {}", self.path.display()))
    }

    /// Writes the footer and makes pack and name durable.
    pub(crate) fn seal(self) -> Result<SealedPack> {
        let mut length = self.length;
        encode_end(self.id, self.length, &self.directory, |piece| {
            let at = length;
            length += piece.len() as u64;
            self.file
                .write_all_at(piece, at)
                .context(|| format!("writing the end of {}", self.path.display()))
        })?;
        self.sync()?;
        self.place.sync_dir(&self.place.pack_dir(self.id))?;
        // A process that crashed may have created the folder without syncing its name.
        self.place.sync_dir(&self.place.packs_dir())?;
        Ok(SealedPack {
            id: self.id,
            length,
            frames: self.directory.frames.len() as u64,
            blocks: self.directory.ids.len() as u64,
        })
    }
}
