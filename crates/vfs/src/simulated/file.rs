//! One file of the simulated disk: its bytes as programs see them, as they are durable, and what lies between.

use super::crash::Choice;

/// The unit in which a write may be torn, in bytes.
const TORN_UNIT: u64 = 512;

/// Something done to a file and not synced.
#[derive(Clone, Debug)]
enum Pending {
    Write { offset: u64, bytes: Vec<u8> },
    SetLength(u64),
}

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct FileBytes {
    current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
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

    pub(super) fn sync(&mut self) {
        // Not a copy of what programs see: that may hold what a failed sync has forgotten.
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::SetLength(length) => self.durable.resize(length as usize, 0),
                Pending::Write { offset, bytes } => put(&mut self.durable, &bytes, offset),
            }
        }
    }

    /// A failed sync: what was pending counts as clean, stays readable, and will never reach the disk (trust F6).
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Power is cut: of the pending operations, those that `choice` keeps become durable; programs see the durable
    /// bytes from now on.
    pub(super) fn crash(&mut self, choice: &mut Choice) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::SetLength(length) => {
                    if choice.keeps() {
                        self.durable.resize(length as usize, 0);
                    }
                }
                Pending::Write { offset, bytes } => self.crash_write(offset, &bytes, choice),
            }
        }
        self.current.clone_from(&self.durable);
    }

    fn crash_write(&mut self, offset: u64, bytes: &[u8], choice: &mut Choice) {
        let end = offset + bytes.len() as u64;
        if choice.keeps() {
            if !choice.tears() {
                put(&mut self.durable, bytes, offset);
                return;
            }
            for start in (offset / TORN_UNIT..end.div_ceil(TORN_UNIT)).map(|unit| unit * TORN_UNIT) {
                let (from, to) = (start.max(offset), (start + TORN_UNIT).min(end));
                if choice.flips() {
                    put(&mut self.durable, &bytes[(from - offset) as usize..(to - offset) as usize], from);
                }
            }
        }
        // The length may reach the disk without the data: then zeros stand there, or what was there before.
        if end > self.durable.len() as u64 && choice.grows_without_data() {
            let old_length = self.durable.len();
            self.durable.resize(end as usize, 0);
            if choice.flips() {
                choice.fill_with_garbage(&mut self.durable[old_length..]);
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
