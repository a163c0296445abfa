//! The overlay as a block device: routes reads, writes and zeroing to the overlay's file, its log and the
//! base.
//!
//! Data is written to the file before the record that makes it visible. A block that is not settled is never
//! overwritten in place. Durability and recovery are decided in `log` and `state`.

use std::ops::Range;
use std::sync::atomic::Ordering;

use platter_image::{Error, Extent, IoContext, Result};

use super::cipher::SECTOR;
use super::format::{BLOCK, HEADER_LENGTH, Record, block_checksum};
use super::log::present_records;
use super::state::BlockState;
use super::{Overlay, REGION};
use crate::block_device::{Allocation, BlockDevice};

impl Overlay {
    /// Syncs if any of these blocks is unsettled. Called before the blocks are changed.
    fn settle(&self, blocks: &Range<u64>) -> Result<()> {
        if !self.states().any_unsettled(blocks.clone()) {
            return Ok(());
        }
        let _alone = self.gate.write();
        if self.states().any_unsettled(blocks.clone()) {
            self.settles.fetch_add(1, Ordering::Relaxed);
            self.sync_alone()?;
        }
        Ok(())
    }

    fn record(&self, record: &Record) -> Result<()> {
        self.recorded.store(true, Ordering::Release);
        self.log.lock().append(&*self.file, record)
    }

    /// Records that the checksums of these blocks become unknown. Called before blocks in the file are
    /// overwritten.
    fn note_changing(&self, blocks: Range<u64>) -> Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            let (is_known, next) = {
                let states = self.states();
                let is_known = |block: u64| states.checksum(block).is_some();
                let first = is_known(block);
                (first, (block + 1..blocks.end).find(|next| is_known(*next) != first).unwrap_or(blocks.end))
            };
            if is_known {
                self.record(&Record::Changing { first: block, count: next - block })?;
                self.states_mut().forget_checksums(block..next);
            }
            block = next;
        }
        Ok(())
    }

    /// Reads a range of blocks that were written. They may be zeros since.
    fn read_written(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        if self.cipher.is_plain() {
            return self.read_present(bytes, offset);
        }
        let (mut rest, mut offset) = (bytes, offset);
        while !rest.is_empty() {
            let length = (REGION - offset % REGION).min(rest.len() as u64);
            let (piece, after) = rest.split_at_mut(length as usize);
            let _no_writer = self.stripe(offset).read();
            self.read_beside_writers(piece, offset)?;
            (rest, offset) = (after, offset + length);
        }
        Ok(())
    }

    /// Reads a range while nobody else writes its region.
    fn read_beside_writers(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.runs(Extent::new(offset, buffer.len() as u64), &mut |state, run| {
            let bytes = &mut buffer[(run.offset - offset) as usize..][..run.length as usize];
            match state {
                BlockState::Absent => self.base().read(bytes, run.offset)?,
                BlockState::Zero => bytes.fill(0),
                BlockState::Present => self.read_present(bytes, run.offset)?,
            }
            Ok(true)
        })
    }

    /// Reads blocks from the file. They are read whole, so that all checksums are checked.
    fn read_present(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let blocks = around(offset, bytes.len() as u64, BLOCK);
        // Encrypted are whole sectors, also past the end of a disk.
        let unit = if self.cipher.is_plain() { 1 } else { SECTOR };
        let whole = Extent::between(blocks.offset, blocks.end().min(self.length.next_multiple_of(unit)));
        if whole == Extent::between(offset, end) {
            self.read_stored(bytes, offset)?;
            return self.cipher.decrypt(bytes, offset);
        }
        let mut stored = vec![0; whole.length as usize];
        self.read_stored(&mut stored, whole.offset)?;
        self.cipher.decrypt(&mut stored, whole.offset)?;
        bytes.copy_from_slice(&stored[(offset - whole.offset) as usize..][..bytes.len()]);
        Ok(())
    }

    /// Reads what the file has, and checks the blocks that are read whole against their checksums.
    fn read_stored(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let first = offset.div_ceil(BLOCK);
        let whole = (bytes.len() as u64).saturating_sub(first * BLOCK - offset);
        let is_to_end = offset + bytes.len() as u64 >= self.length;
        let count = if is_to_end { whole.div_ceil(BLOCK) } else { whole / BLOCK };
        let expected: Vec<Option<u32>> = {
            let states = self.states();
            (first..first + count).map(|block| states.checksum(block)).collect()
        };
        self.file
            .read_exact_at(bytes, HEADER_LENGTH + offset)
            .context(|| format!("reading an overlay at offset {offset}"))?;
        let whole = bytes.get((first * BLOCK - offset) as usize..).unwrap_or_default();
        for ((block, expected), contents) in (first..).zip(expected).zip(whole.chunks(BLOCK as usize)) {
            let Some(expected) = expected else { continue };
            // A concurrent writer first marks the checksum as unknown; then old and new contents are both
            // valid.
            if self.checksum_of(contents, block)? != expected
                && self.states().checksum(block) == Some(expected)
            {
                return Err(Error::corrupt(format!(
                    "the overlay's block at offset {} is damaged: its checksum does not match",
                    block * BLOCK
                )));
            }
        }
        Ok(())
    }

    /// Writes bytes that lie in one region.
    fn write_piece(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        // It may sync the file, so it is done before readers have to wait; somebody else may have written since.
        self.settle(&blocks)?;
        let _one = self.stripe(offset).write();
        self.settle(&blocks)?;
        let _shared = self.gate.read();
        self.check()?;
        self.written.store(true, Ordering::Release);
        let put = |bytes: &[u8], offset: u64| {
            self.file
                .write_all_at(bytes, HEADER_LENGTH + offset)
                .context(|| format!("writing an overlay at offset {offset}"))
        };
        let all_settled = {
            let states = self.states();
            blocks.clone().all(|block| states.is_settled(block))
        };
        let unit = match all_settled {
            true if self.cipher.is_plain() => 1,
            true => SECTOR,
            false => BLOCK,
        };
        let whole = around(offset, bytes.len() as u64, unit);
        let mut filled = Vec::new();
        let bytes = if whole == Extent::between(offset, end) {
            bytes
        } else {
            // Read the rest of the first and last unit; past the end of the disk they are filled with zeros.
            filled.resize(whole.length as usize, 0);
            for start in [whole.offset, (whole.end() - unit).max(whole.offset)] {
                let at = (start - whole.offset) as usize;
                let length = unit.min(self.length - start) as usize;
                self.read_beside_writers(&mut filled[at..at + length], start)?;
            }
            filled[(offset - whole.offset) as usize..][..bytes.len()].copy_from_slice(bytes);
            &filled
        };
        let stored = self.cipher.encrypt(bytes, whole.offset)?;
        self.note_changing(blocks.clone())?;
        put(&stored, whole.offset)?;
        if all_settled {
            self.in_place.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.note_present(blocks, &stored)
    }

    /// The checksum of a block as it is stored; the last, shorter block of a disk is padded with zeros.
    fn checksum_of(&self, stored: &[u8], block: u64) -> Result<u32> {
        if stored.len() as u64 == BLOCK {
            return Ok(block_checksum(stored));
        }
        let rest = vec![0; BLOCK as usize - stored.len()];
        let rest = self.cipher.encrypt(&rest, block * BLOCK + stored.len() as u64)?;
        Ok(block_checksum(&[stored, &rest].concat()))
    }

    /// Records the written blocks, which makes them visible to readers. Settled blocks need no record.
    fn note_present(&self, blocks: Range<u64>, bytes: &[u8]) -> Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            let (settled, next) = {
                let states = self.states();
                let settled = states.is_settled(block);
                let differs = |next: &u64| *next == blocks.end || states.is_settled(*next) != settled;
                (settled, (block + 1..=blocks.end).find(differs).unwrap_or(blocks.end))
            };
            if !settled {
                let range =
                    ((block - blocks.start) * BLOCK) as usize..((next - blocks.start) * BLOCK) as usize;
                let checksums: Vec<u32> = bytes[range].chunks(BLOCK as usize).map(block_checksum).collect();
                for record in present_records(block, &checksums) {
                    self.record(&record)?;
                }
                let mut states = self.states_mut();
                states.set(block..next, BlockState::Present);
                states.set_checksums(block, &checksums);
            }
            block = next;
        }
        Ok(())
    }

    /// Turns whole blocks of one region into zeros.
    fn zero_piece(&self, blocks: Range<u64>) -> Result<()> {
        let _one = self.stripe(blocks.start * BLOCK).write();
        self.settle(&blocks)?;
        let _shared = self.gate.read();
        self.check()?;
        let mut block = blocks.start;
        while block < blocks.end {
            let (state, next) = self.states().run(block, blocks.end);
            let is_zero = match state {
                BlockState::Zero => true,
                BlockState::Absent => self.base_is_zero(block * BLOCK..(next * BLOCK).min(self.length))?,
                BlockState::Present => false,
            };
            if !is_zero {
                self.written.store(true, Ordering::Release);
                self.record(&Record::Zero { first: block, count: next - block })?;
                self.states_mut().set(block..next, BlockState::Zero);
                if state == BlockState::Present {
                    self.file
                        .punch(HEADER_LENGTH + block * BLOCK, (next - block) * BLOCK)
                        .context(|| "freeing space in an overlay".to_owned())?;
                }
            }
            block = next;
        }
        Ok(())
    }

    fn base_is_zero(&self, range: Range<u64>) -> Result<bool> {
        let mut is_zero = true;
        self.base().extents(Extent::between(range.start, range.end), &mut |_, allocation| {
            is_zero &= allocation == Allocation::Zero;
            is_zero
        })?;
        Ok(is_zero)
    }

    /// Calls `act` with the state and byte range of each run in `range`, until it returns `false`.
    fn runs(&self, range: Extent, act: &mut dyn FnMut(BlockState, Extent) -> Result<bool>) -> Result<()> {
        let end_block = range.end().div_ceil(BLOCK);
        let mut offset = range.offset;
        while offset < range.end() {
            let (state, next) = self.states().run(offset / BLOCK, end_block);
            let end = (next * BLOCK).min(range.end());
            if !act(state, Extent::between(offset, end))? {
                return Ok(());
            }
            offset = end;
        }
        Ok(())
    }
}

impl BlockDevice for Overlay {
    fn length(&self) -> u64 {
        self.length
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.check_range(offset, buffer.len() as u64)?;
        let range = Extent::new(offset, buffer.len() as u64);
        self.runs(range, &mut |state, run| {
            let bytes = &mut buffer[(run.offset - offset) as usize..][..run.length as usize];
            match state {
                BlockState::Absent => self.base().read(bytes, run.offset)?,
                BlockState::Zero => bytes.fill(0),
                BlockState::Present => self.read_written(bytes, run.offset)?,
            }
            Ok(true)
        })
    }

    /// `None` for written blocks: whether the page cache holds them is unknown.
    fn is_near(&self, range: Extent) -> Option<bool> {
        let mut near = Some(true);
        let walked = self.runs(range, &mut |state, run| {
            match state {
                BlockState::Absent if near == Some(true) => near = self.base().is_near(run),
                BlockState::Absent if self.base().is_near(run) == Some(false) => near = Some(false),
                BlockState::Present if near == Some(true) => near = None,
                _ => {}
            }
            Ok(near != Some(false))
        });
        walked.ok().and(near)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        let (mut rest, mut offset) = (bytes, offset);
        while !rest.is_empty() {
            let length = (REGION - offset % REGION).min(rest.len() as u64);
            let (piece, after) = rest.split_at(length as usize);
            self.write_piece(piece, offset)?;
            (rest, offset) = (after, offset + length);
        }
        Ok(())
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.check_range(range.offset, range.length)?;
        let whole = range.offset.div_ceil(BLOCK)..match range.end() {
            end if end == self.length => end.div_ceil(BLOCK),
            end => end / BLOCK,
        };
        if whole.is_empty() {
            return self.write(&vec![0; range.length as usize], range.offset);
        }
        let (start, end) = (whole.start * BLOCK, (whole.end * BLOCK).min(range.end()));
        self.write(&vec![0; (start - range.offset) as usize], range.offset)?;
        self.write(&vec![0; (range.end() - end) as usize], end)?;
        let mut block = whole.start;
        while block < whole.end {
            let next = ((block * BLOCK / REGION + 1) * REGION / BLOCK).min(whole.end);
            self.zero_piece(block..next)?;
            block = next;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let _alone = self.gate.write();
        self.check()?;
        if !self.written.load(Ordering::Acquire) {
            return Ok(());
        }
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.sync_alone()?;
        self.written.store(false, Ordering::Release);
        if self.recorded.swap(false, Ordering::AcqRel) {
            let mut log = self.log.lock();
            log.append(&*self.file, &Record::Flushed)?;
            self.states_mut().flushed();
        }
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.check_range(range.offset, range.length)?;
        self.runs(range, &mut |state, run| match state {
            BlockState::Present => Ok(visit(run, Allocation::Data)),
            BlockState::Zero => Ok(visit(run, Allocation::Zero)),
            BlockState::Absent => {
                let mut goes_on = true;
                self.base().extents(run, &mut |extent, allocation| {
                    goes_on = visit(extent, allocation);
                    goes_on
                })?;
                Ok(goes_on)
            }
        })
    }
}

/// The units of `unit` bytes that contain a range.
fn around(offset: u64, length: u64, unit: u64) -> Extent {
    Extent::between(offset / unit * unit, (offset + length).div_ceil(unit) * unit)
}
