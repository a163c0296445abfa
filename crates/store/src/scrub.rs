//! Scrubbing: reads the pack back that was not read for the longest time, one at a time, so that damage is found while other
//! copies still exist. What it finds is quarantined at once. `check --read-data` reads packs in the same way (`read_back`).
//!
//! The position is durable without a format of its own: every pack that was read back is recorded as such (`health`), and the
//! next scrub, also of another process, continues with the oldest. An interrupted scrub repeats at most one pack.

use std::collections::BTreeMap;

use platter_image::{BlockId, Error, ErrorKind, Result};
use platter_records::{PackCount, PackId, StoreHealth};

use crate::catalog::{PackRow, PackState};
use crate::clock::now_unix_ms;
use crate::health::{Condition, Health, Observation};
use crate::read_back::{BadFrame, Depth, PackToRead, Step, read_back};
use crate::store::Store;

/// A scrub of a store, in one process.
#[derive(Debug)]
pub struct Scrub {
    store: Store,
    /// Packs that could not be read, with the time of the attempt: they come last, and do not keep others from being read.
    failed: BTreeMap<PackId, i64>,
}

/// The pack that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextPack {
    /// The pack.
    pub pack: PackId,
    /// Its length in bytes.
    pub bytes: u64,
    /// The length of all packs in bytes.
    pub all_bytes: u64,
}

/// The result of reading one pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// The pack.
    pub pack: PackId,
    /// Bytes that were read.
    pub bytes: u64,
    /// Number of frames that were newly found bad and quarantined.
    pub newly_bad: u64,
    /// Whether the pack was read to its end. If not, the next scrub reads it again.
    pub is_complete: bool,
    /// Why the pack could not be opened.
    pub trouble: Option<String>,
}

impl Scrub {
    /// Prepares a scrub.
    pub fn new(store: Store) -> Self {
        Self { store, failed: BTreeMap::new() }
    }

    /// Returns the pack that was not read for the longest time; packs that were never read come first. `None` if the store has
    /// no packs.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn next(&self) -> Result<Option<NextPack>> {
        let rows = self.store.readable_packs()?;
        let all_bytes = rows.iter().map(|row| row.length).sum();
        let oldest = rows.iter().min_by_key(|row| (self.read_at(row), row.id));
        Ok(oldest.map(|row| NextPack { pack: row.id, bytes: row.length, all_bytes }))
    }

    /// Returns when a pack was read or tried; 0 if never.
    fn read_at(&self, row: &PackRow) -> i64 {
        let tried = self.failed.get(&row.id).copied().unwrap_or(0);
        self.store.read_back_at(row).unwrap_or(0).max(tried)
    }

    /// Reads a pack back. `pause` is called after each piece and may wait; if it returns false, the reading ends.
    ///
    /// # Errors
    /// When the catalog cannot be read, or this process lacks what it needs to read the pack. Damage is no error.
    pub fn read(&mut self, pack: PackId, pause: &mut dyn FnMut() -> bool) -> Result<Scrubbed> {
        let shared = &self.store.0;
        shared.learn_health()?;
        let mut done = Scrubbed { pack, bytes: 0, newly_bad: 0, is_complete: false, trouble: None };
        let Some(row) = self.store.readable_packs()?.into_iter().find(|row| row.id == pack) else {
            return Ok(done);
        };
        let mut failure = None;
        let mut goes_on = true;
        let packs = [PackToRead { row, depth: Depth::Contents }];
        let observed =
            |offset, condition| Observation { pack, offset, condition, time_unix_ms: now_unix_ms() };
        let read = read_back(shared, packs.into_iter(), 1, |step| {
            match step {
                Step::Failed(_, error) => failure = Some(error),
                Step::Opened(_) => {}
                Step::Read(piece) => {
                    let mut bad = Vec::new();
                    piece.into_frames(|row, _, result| {
                        done.bytes += u64::from(row.packed_length);
                        if let Err(BadFrame { condition: Some(condition), .. }) = result {
                            bad.push(observed(row.offset, condition));
                        }
                    });
                    done.newly_bad += bad.len() as u64;
                    if !bad.is_empty() {
                        shared.quarantine(&bad);
                    }
                    goes_on = pause();
                }
                Step::Ended(_) => {
                    shared.quarantine(&[observed(row.length, Condition::ReadBack)]);
                    done.is_complete = true;
                }
            }
            // An error is the way to end the reading.
            if goes_on { Ok(()) } else { Err(Error::transient("interrupted")) }
        });
        if failure.is_some() || (read.is_err() && goes_on) {
            self.failed.insert(pack, now_unix_ms());
        }
        if let Some(error) = failure {
            // A collection may have deleted it meanwhile.
            if self.store.readable_packs()?.iter().any(|row| row.id == pack) {
                done.newly_bad += self.store.0.examine_pack(pack);
                done.trouble = Some(error.with_causes());
            }
        }
        match read {
            Err(error) if goes_on || error.kind() != ErrorKind::Transient => Err(error),
            _ => Ok(done),
        }
    }
}

impl Store {
    /// Returns what reads of the packs have shown.
    ///
    /// # Errors
    /// When the catalog or the record of pack health cannot be read.
    pub fn health(&self) -> Result<StoreHealth> {
        self.0.learn_health()?;
        // Read again, because another process may have lifted quarantines.
        let mut recorded = Health::default();
        recorded.learn(self.place(), self.id())?;
        let mut found = StoreHealth::default();
        for row in self.catalog()?.packs()? {
            match row.state {
                PackState::Live | PackState::Condemned => found.packs.add(row.length),
                PackState::Dead => found.trash.add(row.length),
                _ => {}
            }
        }
        for row in self.readable_packs()? {
            match self.read_back_at(&row) {
                Some(time) => {
                    let oldest = found.oldest_read_back_unix_ms.get_or_insert(time);
                    *oldest = time.min(*oldest);
                }
                None => found.never_read_back.add(row.length),
            }
            let bad = recorded.pack(row.id).map_or(0, |known| known.bad.len());
            found.quarantined_frames += bad as u64;
        }
        if found.never_read_back == PackCount::default() {
            found.all_read_since_unix_ms = found.oldest_read_back_unix_ms;
        }
        let is_recorded = |id: &&BlockId| {
            let frame = self.0.locate(id).ok().flatten().map(|place| place.frame);
            frame.is_some_and(|frame| {
                self.pack_id(frame).is_ok_and(|pack| recorded.bad(pack, frame.offset).is_some())
            })
        };
        found.quarantined_blocks = self.0.unsound().iter().filter(is_recorded).count() as u64;
        Ok(found)
    }

    /// Returns the packs that versions may need.
    fn readable_packs(&self) -> Result<Vec<PackRow>> {
        let mut rows = self.catalog()?.packs()?;
        rows.retain(|row| matches!(row.state, PackState::Live | PackState::Condemned));
        Ok(rows)
    }

    /// Returns when a pack was last read back completely, at its present length.
    fn read_back_at(&self, row: &PackRow) -> Option<i64> {
        let read = self.0.health().pack(row.id)?.read_back?;
        (read.length == row.length).then_some(read.time_unix_ms)
    }
}
