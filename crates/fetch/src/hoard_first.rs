//! A source with a hoard in front: hoarded blocks are read from the hoard, all others from below.
//!
//! Hints are passed on only while reads go below, and only then is looking far ahead worthwhile: a boot from the hoard
//! fetches nothing, although every reader looks ahead.
//!
//! A hoarded frame that is damaged, or was removed by an update, is rebuilt from below with the same blocks in the same
//! slots, so readers do not notice.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_image::frame::{Compressor, FrameBuilder, FrameDecoder, FrameHeader, RAW_LENGTH_MAX};
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, Domain, Error, FrameAddress, FrameIndex, FrameSource, Kind, Lease, Result, judged, lease,
};
use platter_store::Hoard;
use platter_vdisk::Source;

/// Marks the pack number of addresses in the hoard: sources number their packs from 0.
const OF_HOARD: u32 = 1 << 31;
/// Pause between checks whether another process has updated the hoard.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// A hoard in front of a source.
pub(crate) struct HoardFirst {
    hoard: Arc<Hoard>,
    below: Arc<dyn Source>,
    looked: Mutex<Instant>,
    /// Whether the last block or page that was read is not hoarded.
    reads_below: AtomicBool,
}

impl HoardFirst {
    /// Puts the hoard in front of this source.
    pub(crate) fn new(hoard: Arc<Hoard>, below: Arc<dyn Source>) -> Self {
        Self { hoard, below, looked: Mutex::new(Instant::now()), reads_below: AtomicBool::new(false) }
    }

    fn look_now_and_then(&self) {
        let mut looked = self.looked.lock();
        if looked.elapsed() >= LOOK_PAUSE {
            *looked = Instant::now();
            // After a failure, the previous view of the hoard stays valid.
            let _ = self.hoard.refresh();
        }
    }

    /// Notes whether the read block is hoarded, and returns its argument.
    fn note_read<T>(&self, hoarded: Option<T>) -> Option<T> {
        self.reads_below.store(hoarded.is_none(), Ordering::Relaxed);
        hoarded
    }

    /// Returns the hinted blocks that are not hoarded.
    fn absent(&self, ids: &[BlockId]) -> Vec<BlockId> {
        match self.reads_below.load(Ordering::Relaxed) {
            true => ids.iter().copied().filter(|id| !self.hoard.holds(id)).collect(),
            false => Vec::new(),
        }
    }

    /// Reads a whole frame of the hoard.
    fn hoarded(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.hoard.read_frame(address, stored)?;
        FrameHeader::parse(stored)?.payload(stored).map(drop)
    }

    /// Rebuilds the frame at an address from the source below.
    fn made_anew(&self, address: FrameAddress, why: Error, stored: &mut Vec<u8>) -> Result<()> {
        let Some(ids) = self.hoard.blocks_at(address) else { return Err(why) };
        let mut frame: Option<(Domain, FrameBuilder)> = None;
        let mut decoder = FrameDecoder::new()?;
        self.below.will_need(&ids);
        for id in &ids {
            let lease = lease(&*self.below, id)?;
            self.below.read_leased(&lease, stored)?;
            let decoded = decoder.decode_block(stored, Kind::Data, lease.place.slot, id);
            let contents = judged(&*self.below, lease.place.frame, decoded)?;
            let domain = FrameHeader::parse(stored)?.domain;
            let empty = || (domain, FrameBuilder::new(Kind::Data, domain, RAW_LENGTH_MAX));
            let (begun, frame) = frame.get_or_insert_with(empty);
            if *begun != domain || frame.is_full_for(contents.len()) {
                return Err(why);
            }
            frame.push(*id, contents);
        }
        let Some((_, frame)) = frame else { return Err(why) };
        *stored = frame.encode(&mut Compressor::new(1)?)?.stored;
        Ok(())
    }
}

impl FrameSource for HoardFirst {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        self.look_now_and_then();
        let hoarded = self.note_read(self.hoard.locate(id)?);
        let Some(mut place) = hoarded else { return self.below.lease(id) };
        place.frame.pack |= OF_HOARD;
        Ok(Some(Lease::in_place(place)))
    }

    fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
        let address = lease.place.frame;
        if !lease.is_in_place() || address.pack & OF_HOARD == 0 {
            return self.below.read_leased(lease, stored);
        }
        let address = FrameAddress { pack: address.pack & !OF_HOARD, ..address };
        self.hoarded(address, stored).or_else(|why| self.made_anew(address, why, stored))
    }

    fn read_on(&self, address: FrameAddress) -> Option<Vec<BlockId>> {
        match address.pack & OF_HOARD {
            0 => self.below.read_on(address),
            _ => self.hoard.read_on(FrameAddress { pack: address.pack & !OF_HOARD, ..address }),
        }
    }

    fn will_need(&self, ids: &[BlockId]) {
        let absent = self.absent(ids);
        if !absent.is_empty() {
            self.below.will_need(&absent);
        }
    }

    fn found_damaged(&self, address: FrameAddress) {
        // A hoarded frame is rebuilt from below whenever it is read.
        if address.pack & OF_HOARD == 0 {
            self.below.found_damaged(address);
        }
    }

    fn hint_length(&self) -> u64 {
        if self.reads_below.load(Ordering::Relaxed) { self.below.hint_length() } else { 0 }
    }

    fn is_near(&self, id: &BlockId) -> bool {
        self.hoard.holds(id) || self.below.is_near(id)
    }
}

impl PageSource for HoardFirst {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        match self.note_read(self.hoard.locate(id)?) {
            Some(_) => self.hoard.page(id).or_else(|_| self.below.page(id)),
            None => self.below.page(id),
        }
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        let absent = self.absent(ids);
        if !absent.is_empty() {
            self.below.will_need_pages(&absent);
        }
    }
}

#[cfg(test)]
mod tests {
    use platter_image::frame::RAW_LENGTH_DEFAULT;
    use platter_image::{BlockPlace, Score};
    use platter_records::{BootBlock, BootSet, BootSetRecord, HoardMember, HoardSnapshot};
    use platter_store::{HoardWriter, StorePlace};

    use super::*;

    fn block(number: u8) -> (BlockId, Vec<u8>) {
        let contents = vec![number; 4096];
        (BlockId::of(Kind::Data, &contents), contents)
    }

    /// Returns any of its blocks in a frame of its own, and records hints.
    #[derive(Default)]
    struct Below {
        hinted: Mutex<Vec<BlockId>>,
    }

    impl FrameSource for Below {
        fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
            Ok(self.locate(id)?.map(Lease::in_place))
        }

        fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
            self.read_frame(lease.place.frame, stored)
        }

        fn read_on(&self, _address: FrameAddress) -> Option<Vec<BlockId>> {
            Some(vec![block(200).0])
        }

        fn will_need(&self, ids: &[BlockId]) {
            self.hinted.lock().extend_from_slice(ids);
        }

        fn hint_length(&self) -> u64 {
            1 << 20
        }
    }

    impl FrameIndex for Below {
        fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
            let number = (0..=255).find(|number| block(*number).0 == *id);
            let place = |number| {
                let frame = FrameAddress { pack: 0, offset: u64::from(number), length: 1 };
                BlockPlace { frame, slot: 0 }
            };
            Ok(number.map(place))
        }

        fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
            let (id, contents) = block(address.offset as u8);
            let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, RAW_LENGTH_DEFAULT);
            frame.push(id, &contents);
            *stored = frame.encode(&mut Compressor::new(1)?)?.stored;
            Ok(())
        }
    }

    impl PageSource for Below {
        fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
            if *id == page().0 { Ok(page().1) } else { Err(Error::missing("page")) }
        }
    }

    fn page() -> (BlockId, Vec<u8>) {
        (BlockId::of(Kind::Page, b"a page"), b"a page".to_vec())
    }

    /// A hoard of blocks 1 and 2.
    fn hoard(place: &StorePlace, below: &Below) -> Arc<Hoard> {
        let version: platter_records::VersionName =
            serde_json::from_str(r#"{"image":"a","number":1}"#).unwrap();
        let record = BootSetRecord {
            version: version.clone(),
            score: Score(page().0),
            marker: String::new(),
            command: String::new(),
            accelerator: String::new(),
            time_unix_ms: 1,
            duration_ms: 1,
            requests: 1,
            bytes_read: 1,
            pages: 1,
            blocks: 2,
            bytes: 512 + 8192,
            tool_version: String::new(),
            boots: 0,
            nodes: Vec::new(),
        };
        let blocks = [1, 2].map(|number| BootBlock::new(block(number).0, 4096)).to_vec();
        let set = BootSet { record: record.clone(), pages: vec![BootBlock::new(page().0, 6)], blocks };
        let mut writer = HoardWriter::open(place).unwrap();
        writer.add(&set, Domain::SHARED, below).unwrap();
        let member = HoardMember { version, boot_set: set.encode().unwrap().id, added: 1, record };
        let snapshot = HoardSnapshot { epoch: "e".into(), revision: 1, members: vec![member] };
        writer.finish(&snapshot).unwrap();
        Hoard::open(place).unwrap()
    }

    #[test]
    fn reading_ahead_continues_within_the_hoard() {
        let folder = tempfile::tempdir().unwrap();
        let below = Arc::new(Below::default());
        let source = HoardFirst::new(hoard(&StorePlace::on_system(folder.path()), &below), below);
        let frame_of = |number| source.lease(&block(number).0).unwrap().unwrap().place.frame;
        assert_eq!(source.read_on(frame_of(1)), Some(Vec::new()), "the hoard has one frame");
        assert_eq!(source.read_on(frame_of(3)), Some(vec![block(200).0]), "the source below has more");
    }

    #[test]
    fn hints_go_below_only_while_reads_do() {
        let folder = tempfile::tempdir().unwrap();
        let below = Arc::new(Below::default());
        let hoard = hoard(&StorePlace::on_system(folder.path()), &below);
        below.hinted.lock().clear();
        let source = HoardFirst::new(hoard, below.clone());
        let hint = || {
            source.will_need(&[2, 3, 4].map(|number| block(number).0));
            assert_eq!(source.hint_length() > 0, !below.hinted.lock().is_empty());
            std::mem::take(&mut *below.hinted.lock())
        };
        assert_eq!(hint(), [], "nothing was read below");
        source.page(&page().0).unwrap();
        source.lease(&block(1).0).unwrap().unwrap();
        assert_eq!(hint(), [], "what was read is hoarded");
        source.lease(&block(3).0).unwrap().unwrap();
        assert_eq!(hint(), [3, 4].map(|number| block(number).0), "hoarded blocks are left out");
        source.lease(&block(2).0).unwrap().unwrap();
        assert_eq!(hint(), []);
    }
}
