//! A source with a hoard before it: what is hoarded is read there, everything else below.
//!
//! A frame of the hoard that is damaged, or went while it was being updated, is made anew from what is below, with the same
//! blocks at the same slots, so no reader notices.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use platter_image::frame::{Compressor, FrameBuilder, FrameDecoder, FrameHeader, RAW_LENGTH_MAX};
use platter_image::recipe::PageSource;
use platter_image::{BlockId, BlockPlace, Domain, Error, FrameAddress, FrameSource, Kind, Result, plan};
use platter_store::Hoard;
use platter_vdisk::Source;

/// Set in the pack's number of an address in the hoard: sources number their packs from 0.
const OF_HOARD: u32 = 1 << 31;
/// How often it is looked whether another process has updated the hoard.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// A hoard before a source.
pub(crate) struct HoardFirst {
    hoard: Arc<Hoard>,
    below: Arc<dyn Source>,
    looked: Mutex<Instant>,
}

impl HoardFirst {
    /// Puts the hoard before that source.
    pub(crate) fn new(hoard: Arc<Hoard>, below: Arc<dyn Source>) -> Self {
        Self { hoard, below, looked: Mutex::new(Instant::now()) }
    }

    fn look_now_and_then(&self) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.elapsed() >= LOOK_PAUSE {
            *looked = Instant::now();
            // What it showed before is as good as it was.
            let _ = self.hoard.refresh();
        }
    }

    /// A whole frame of the hoard.
    fn hoarded(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.hoard.read_frame(address, stored)?;
        FrameHeader::parse(stored)?.payload(stored).map(drop)
    }

    /// The frame that was at an address, from what is below.
    fn made_anew(&self, address: FrameAddress, why: Error, stored: &mut Vec<u8>) -> Result<()> {
        let Some(ids) = self.hoard.blocks_at(address) else { return Err(why) };
        let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, RAW_LENGTH_MAX);
        let mut decoder = FrameDecoder::new()?;
        self.below.will_need(&ids);
        for id in &ids {
            let place = plan::locate(&*self.below, id)?;
            self.below.read_frame(place.frame, stored)?;
            let contents = decoder.decode_block(stored, Kind::Data, place.slot, id)?;
            if frame.is_full_for(contents.len()) {
                return Err(why);
            }
            frame.push(*id, contents);
        }
        *stored = frame.encode(&mut Compressor::new(1)?)?.stored;
        Ok(())
    }
}

impl FrameSource for HoardFirst {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        self.look_now_and_then();
        let Some(mut place) = self.hoard.locate(id)? else { return self.below.locate(id) };
        place.frame.pack |= OF_HOARD;
        Ok(Some(place))
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        if address.pack & OF_HOARD == 0 {
            return self.below.read_frame(address, stored);
        }
        let address = FrameAddress { pack: address.pack & !OF_HOARD, ..address };
        self.hoarded(address, stored).or_else(|why| self.made_anew(address, why, stored))
    }

    fn will_need(&self, ids: &[BlockId]) {
        let absent: Vec<BlockId> = ids.iter().copied().filter(|id| !self.hoard.holds(id)).collect();
        if !absent.is_empty() {
            self.below.will_need(&absent);
        }
    }

    fn hint_length(&self) -> u64 {
        self.below.hint_length()
    }

    fn is_near(&self, id: &BlockId) -> bool {
        self.hoard.holds(id) || self.below.is_near(id)
    }
}

impl PageSource for HoardFirst {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        match self.hoard.holds(id) {
            true => self.hoard.page(id).or_else(|_| self.below.page(id)),
            false => self.below.page(id),
        }
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        let absent: Vec<BlockId> = ids.iter().copied().filter(|id| !self.hoard.holds(id)).collect();
        if !absent.is_empty() {
            self.below.will_need_pages(&absent);
        }
    }
}
