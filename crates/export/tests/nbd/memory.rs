//! A disk in memory with holes, bad places, slow places, places behind a gate, and a log of operations.

use parking_lot::{Condvar, Mutex, RwLock};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use platter_export::Exports;
use platter_image::{Error, Extent, Extents, Result};
use platter_vdisk::{Allocation, BlockDevice};

/// An operation in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Write(u64, u64),
    Zero(u64, u64),
    Flush,
}

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) bytes: RwLock<Vec<u8>>,
    pub(crate) holes: RwLock<Extents>,
    pub(crate) is_read_only: bool,
    /// Reads here fail: damaged. Writes here fail: no space.
    pub(crate) bad: Extents,
    /// Reads here take longer than the server waits before it uses workers.
    pub(crate) slow: Extents,
    /// Reads here wait until the gate is open.
    pub(crate) gated: Extents,
    /// Whether the disk announces which reads will wait.
    pub(crate) tells: bool,
    pub(crate) is_open: Mutex<bool>,
    pub(crate) opened: Condvar,
    pub(crate) log: Mutex<Vec<Done>>,
    /// Bytes read.
    pub(crate) bytes_read: AtomicU64,
}

/// The contents of a new disk, outside its holes.
pub(crate) fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8 + 1
}

pub(crate) fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (offset..offset + length as u64).map(byte_at).collect()
}

impl Memory {
    pub(crate) fn new(length: usize, holes: &[Extent]) -> Self {
        let mut bytes = pattern(0, length);
        for hole in holes {
            bytes[hole.offset as usize..hole.end() as usize].fill(0);
        }
        let holes = RwLock::new(holes.iter().copied().collect());
        Self { bytes: RwLock::new(bytes), holes, ..Self::default() }
    }

    pub(crate) fn open_gate(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    pub(crate) fn log(&self) -> Vec<Done> {
        self.log.lock().clone()
    }
}

fn touches(set: &Extents, offset: u64, length: usize) -> bool {
    set.clip(Extent::new(offset, length as u64)).next().is_some()
}

impl BlockDevice for Memory {
    fn length(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn is_writable(&self) -> bool {
        !self.is_read_only
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.bytes_read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        if touches(&self.slow, offset, buffer.len()) {
            thread::sleep(Duration::from_millis(3));
        }
        if touches(&self.gated, offset, buffer.len()) {
            let mut is_open = self.is_open.lock();
            // Bounded, so that a test that fails before it opens the gate ends.
            let patience = Duration::from_secs(20);
            self.opened.wait_while_for(&mut is_open, |is_open| !*is_open, patience);
        }
        if touches(&self.bad, offset, buffer.len()) {
            return Err(Error::corrupt(format!("the block at {offset} is damaged")));
        }
        let bytes = self.bytes.read();
        buffer.copy_from_slice(&bytes[offset as usize..offset as usize + buffer.len()]);
        Ok(())
    }

    fn is_near(&self, range: Extent) -> Option<bool> {
        self.tells.then(|| !touches(&self.gated, range.offset, range.length as usize))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if touches(&self.bad, offset, bytes.len()) {
            let full = Error::io("writing the overlay", io::Error::from(io::ErrorKind::StorageFull));
            return Err(full.within("writing a disk"));
        }
        self.bytes.write()[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        let written: Extents = std::iter::once(Extent::new(offset, bytes.len() as u64)).collect();
        let mut holes = self.holes.write();
        *holes = holes.subtract(&written);
        self.log.lock().push(Done::Write(offset, bytes.len() as u64));
        Ok(())
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.bytes.write()[range.offset as usize..range.end() as usize].fill(0);
        let mut holes = self.holes.write();
        *holes = holes.iter().copied().chain([range]).collect();
        self.log.lock().push(Done::Zero(range.offset, range.length));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.log.lock().push(Done::Flush);
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        let holes = self.holes.read().clone();
        let mut at = range.offset;
        for hole in holes.clip(range) {
            let goes_on = (at == hole.offset || visit(Extent::between(at, hole.offset), Allocation::Data))
                && visit(hole, Allocation::Zero);
            if !goes_on {
                return Ok(());
            }
            at = hole.end();
        }
        if at < range.end() {
            visit(Extent::between(at, range.end()), Allocation::Data);
        }
        Ok(())
    }
}

/// Disks by name.
pub(crate) struct Disks(pub(crate) Vec<(&'static str, Arc<Memory>)>);

impl Exports for Disks {
    fn list(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        if name == "secret" {
            return Err(Error::refused("not allowed"));
        }
        let found = self.0.iter().find(|(own, _)| *own == name);
        let (_, disk) = found.ok_or_else(|| Error::missing(format!("there is no {name}")))?;
        Ok(Arc::clone(disk) as Arc<dyn BlockDevice>)
    }

    fn describe(&self, name: &str) -> Option<String> {
        Some(format!("the disk {name}"))
    }
}
