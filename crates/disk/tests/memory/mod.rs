//! In-memory stores and devices for tests of the pipelines.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::frame::{EncodedFrame, FrameDecoder};
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, DiskRead, DiskWrite, Error, FrameAddress, FrameIndex, FrameSource, FrameStore, Kind,
    Lease, Pin, Result,
};

/// A store of frames in memory, whose stored bytes a test may damage.
#[derive(Default)]
pub(crate) struct MemoryStore {
    pub(crate) frames: Mutex<Vec<Vec<u8>>>,
    pub(crate) index: Mutex<HashMap<BlockId, BlockPlace>>,
    /// How many more appends succeed.
    pub(crate) appends_left: Option<AtomicU64>,
}

impl FrameSource for MemoryStore {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        Ok(self.locate(id)?.map(Lease::in_place))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        self.read_frame(lease.place.frame, stored)
    }
}

impl FrameIndex for MemoryStore {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        Ok(self.index.lock().get(id).copied())
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        stored.clear();
        stored.extend_from_slice(&self.frames.lock()[address.offset as usize]);
        Ok(())
    }
}

impl FrameStore for MemoryStore {
    fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<Pin>> {
        Ok(self.locate(id)?.map(|_| Pin::new(Arc::new(()))))
    }

    fn append(&self, frame: &EncodedFrame) -> Result<Pin> {
        if let Some(left) = &self.appends_left
            && left.fetch_sub(1, Ordering::Relaxed) == 0
        {
            return Err(Error::io("appending", io::ErrorKind::StorageFull.into()));
        }
        let mut frames = self.frames.lock();
        let address =
            FrameAddress { pack: 0, length: frame.stored.len() as u32, offset: frames.len() as u64 };
        frames.push(frame.stored.clone());
        for (slot, block) in frame.blocks.iter().enumerate() {
            let known = self.index.lock().insert(block.id, BlockPlace { frame: address, slot: slot as u32 });
            assert!(known.is_none(), "block {} is stored twice", block.id);
        }
        Ok(Pin::new(Arc::new(())))
    }
}

impl PageSource for MemoryStore {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let place = self.locate(id)?.ok_or_else(|| Error::missing(id.to_string()))?;
        let mut stored = Vec::new();
        self.read_frame(place.frame, &mut stored)?;
        FrameDecoder::new()?.decode_block(&stored, Kind::Page, place.slot, id).map(<[u8]>::to_vec)
    }
}

/// A device in memory for reading and writing.
pub(crate) struct MemoryDevice(pub(crate) Mutex<Vec<u8>>);

impl MemoryDevice {
    pub(crate) fn filled(length: usize, value: u8) -> Self {
        Self(Mutex::new(vec![value; length]))
    }
}

impl DiskRead for MemoryDevice {
    fn length(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.lock().read_exact_at(buffer, offset)
    }
}

impl DiskWrite for MemoryDevice {
    fn length(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.0.lock()[offset as usize..][..buffer.len()].copy_from_slice(buffer);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.lock()[offset as usize..][..length as usize].fill(0);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
