//! One file of the simulated disk: its bytes as programs see them, its durable bytes, and the operations in
//! between.

use super::crash::Choice;

/// The unit in which a write may be torn, in bytes.
const TORN_UNIT: u64 = 512;

/// An operation on a file that was not synced.
#[derive(Clone, Debug)]
enum Pending {
    Write { offset: u64, bytes: Vec<u8> },
    SetLength(u64),
    Punch { offset: u64, length: u64 },
}

/// The bytes of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct FileBytes {
    current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Durable bytes from when the file was longer. They may reappear when the file grows without its data.
    cut_off: Vec<u8>,
}

impl FileBytes {
    pub(super) fn length(&self) -> u64 {
        self.current.len() as u64
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.current.len());
        let count = buffer.len().min(self.current.len() - start);
        buffer[..count].copy_from_slice(&self.current[start..start + count]);
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        put(&mut self.current, bytes, offset);
        self.pending.push(Pending::Write { offset, bytes: bytes.to_vec() });
    }

    pub(super) fn set_length(&mut self, length: u64) {
        self.current.resize(length as usize, 0);
        self.pending.push(Pending::SetLength(length));
    }

    pub(super) fn punch(&mut self, offset: u64, length: u64) {
        fill_zeros(&mut self.current, offset, length);
        self.pending.push(Pending::Punch { offset, length });
    }

    pub(super) fn sync(&mut self) {
        // Replay the pending operations. The current bytes may contain data that a failed sync has discarded.
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::SetLength(length) => self.set_durable_length(length),
                Pending::Write { offset, bytes } => put(&mut self.durable, &bytes, offset),
                Pending::Punch { offset, length } => fill_zeros(&mut self.durable, offset, length),
            }
        }
    }

    /// A failed sync: the pending data counts as clean and stays readable, but will never reach the disk
    /// (design: durable).
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Makes data that a failed sync discarded unreadable.
    pub(super) fn drop_cache(&mut self) {
        self.current.clone_from(&self.durable);
        for pending in &self.pending {
            match pending {
                Pending::SetLength(length) => self.current.resize(*length as usize, 0),
                Pending::Write { offset, bytes } => put(&mut self.current, bytes, *offset),
                Pending::Punch { offset, length } => fill_zeros(&mut self.current, *offset, *length),
            }
        }
    }

    /// A power cut: the pending operations chosen by `choice` become durable, and programs see the durable
    /// bytes from now on.
    pub(super) fn crash(&mut self, choice: &mut Choice) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::SetLength(length) => {
                    if choice.keeps() {
                        self.set_durable_length(length);
                    }
                }
                Pending::Write { offset, bytes } => self.crash_write(offset, &bytes, choice),
                Pending::Punch { offset, length } => self.crash_punch(offset, length, choice),
            }
        }
        self.current.clone_from(&self.durable);
    }

    fn set_durable_length(&mut self, length: u64) {
        if length < self.durable.len() as u64 {
            put(&mut self.cut_off, &self.durable[length as usize..], length);
        }
        self.durable.resize(length as usize, 0);
    }

    fn crash_punch(&mut self, offset: u64, length: u64, choice: &mut Choice) {
        let end = offset.saturating_add(length).min(self.durable.len() as u64);
        if !choice.keeps() {
            return;
        }
        let is_torn = choice.tears();
        for (from, to) in torn_units(offset, end) {
            if !is_torn || choice.flips() {
                self.durable[from as usize..to as usize].fill(0);
            }
        }
    }

    fn crash_write(&mut self, offset: u64, bytes: &[u8], choice: &mut Choice) {
        let end = offset + bytes.len() as u64;
        if choice.keeps() {
            if !choice.tears() {
                put(&mut self.durable, bytes, offset);
                return;
            }
            for (from, to) in torn_units(offset, end) {
                if choice.flips() {
                    put(&mut self.durable, &bytes[(from - offset) as usize..(to - offset) as usize], from);
                }
            }
        }
        // The length may reach the disk without the data. Then the range contains zeros, garbage, or the
        // file's own old bytes from when it was longer.
        if end > self.durable.len() as u64 && choice.grows_without_data() {
            let old_length = self.durable.len();
            self.durable.resize(end as usize, 0);
            if choice.flips() {
                choice.fill_with_garbage(&mut self.durable[old_length..]);
            } else if choice.flips() {
                let known = (end as usize).min(self.cut_off.len());
                if let Some(own) = self.cut_off.get(old_length..known) {
                    self.durable[old_length..known].copy_from_slice(own);
                }
            }
        }
    }
}

fn put(into: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let start = offset as usize;
    let end = start + bytes.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[start..end].copy_from_slice(bytes);
}

fn fill_zeros(bytes: &mut [u8], offset: u64, length: u64) {
    let end = offset.saturating_add(length).min(bytes.len() as u64);
    if offset < end {
        bytes[offset as usize..end as usize].fill(0);
    }
}

/// The pieces of a range that reach the disk whole or not at all, as (start, end).
fn torn_units(offset: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let units = offset / TORN_UNIT..end.div_ceil(TORN_UNIT);
    units.map(move |unit| ((unit * TORN_UNIT).max(offset), ((unit + 1) * TORN_UNIT).min(end)))
}
