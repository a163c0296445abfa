//! Makes a boot set from what a boot read of a version: pages and blocks of its recipe, in order of first use. Blocks
//! that the guest had written before are left out.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;

use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Error, Extent, Result, Score};
use platter_records::{BootBlock, BootSet, BootSetRecord, VersionName};
use platter_vdisk::{RangeSet, RequestKind, Source, Trace, TracedRequest};

/// A block extends at most this far before and after a piece of it.
const REACH: u64 = 64 << 10;

/// Facts of a boot other than its reads.
#[derive(Clone, Debug, Default)]
pub(super) struct BootFacts {
    pub(super) marker: String,
    pub(super) command: String,
    pub(super) accelerator: String,
    pub(super) time_unix_ms: i64,
    /// Duration until the marker; `None`: that of the trace.
    pub(super) duration_ms: Option<u64>,
    pub(super) tool_version: String,
    /// Number of observed boots; 0 for a manual recording.
    pub(super) boots: u32,
    /// The node that observed it, if any.
    pub(super) nodes: Vec<String>,
}

/// The reads of a boot.
#[derive(Clone, Debug)]
pub(super) struct BootReads {
    pub(super) score: Score,
    /// Ranges of the disk, in reading order.
    pub(super) ranges: Vec<Extent>,
    pub(super) requests: u64,
    pub(super) bytes_read: u64,
    pub(super) duration_ms: u64,
}

impl BootReads {
    /// Returns the reads in a trace.
    fn of(trace: &Trace) -> Self {
        let (mut ranges, mut written) = (Vec::new(), RangeSet::default());
        let (mut requests, mut bytes_read) = (0, 0_u64);
        for request in trace.requests.iter().filter(|request| !request.failed) {
            match request.kind {
                RequestKind::Read => {
                    requests += 1;
                    bytes_read = bytes_read.saturating_add(request.range.length);
                    ranges.extend(written.absent(request.range));
                }
                RequestKind::Write | RequestKind::WriteZeroes => written.add(request.range),
                RequestKind::Flush => {}
            }
        }
        let begin = trace.requests.first().map_or(0, |request| request.start_ns);
        let end = trace.requests.iter().map(TracedRequest::end_ns).max().unwrap_or(begin);
        let duration_ms = (end - begin) / 1_000_000;
        Self { score: trace.header.base_score, ranges, requests, bytes_read, duration_ms }
    }
}

/// Makes the boot set of a version from a trace of its disk.
///
/// # Errors
/// `Refused` when the trace is of another disk, or has no reads; `Missing` or `Corrupt` when a page cannot be read.
pub(super) fn boot_set_of(
    trace: &Trace,
    version: &VersionName,
    facts: BootFacts,
    source: &dyn Source,
) -> Result<BootSet> {
    let disk_length = Recipe::open(trace.header.base_score, source)?.root().disk_length;
    if disk_length != trace.header.disk_length {
        return Err(Error::refused(format!(
            "the trace is of a disk of {} bytes, but {version} has {disk_length}",
            trace.header.disk_length
        )));
    }
    boot_set_of_reads(BootReads::of(trace), version, facts, source)
}

/// Makes the boot set of a version from the reads of a boot.
///
/// # Errors
/// `Refused` when there are none; `Missing` or `Corrupt` when a page cannot be read.
pub(super) fn boot_set_of_reads(
    reads: BootReads,
    version: &VersionName,
    facts: BootFacts,
    source: &dyn Source,
) -> Result<BootSet> {
    let pages = SeenPages::new(source);
    let recipe = Recipe::open(reads.score, &pages)?;
    let mut blocks = FirstUse::default();
    for range in reads.ranges {
        blocks.read(&recipe, &pages, range)?;
    }
    let blocks = blocks.finish();
    if blocks.is_empty() {
        return Err(Error::refused(format!("nothing of {version} was read: this was not a boot")));
    }
    let pages = pages.finish();
    let record = BootSetRecord {
        version: version.clone(),
        score: reads.score,
        marker: facts.marker,
        command: facts.command,
        accelerator: facts.accelerator,
        time_unix_ms: facts.time_unix_ms,
        duration_ms: facts.duration_ms.unwrap_or(reads.duration_ms),
        requests: reads.requests,
        bytes_read: reads.bytes_read,
        pages: pages.len() as u32,
        blocks: blocks.len() as u32,
        bytes: pages.iter().chain(&blocks).map(BootBlock::length).sum(),
        tool_version: facts.tool_version,
        boots: facts.boots,
        nodes: facts.nodes,
    };
    Ok(BootSet { record, pages, blocks })
}

/// Blocks in the order of their first reads.
#[derive(Default)]
struct FirstUse {
    order: Vec<BootBlock>,
    /// Their positions in `order`.
    known: HashMap<BlockId, usize>,
}

impl FirstUse {
    /// Notes a read of a part of the disk.
    fn read(&mut self, recipe: &Recipe<&SeenPages<'_>>, pages: &SeenPages<'_>, part: Extent) -> Result<()> {
        let before = self.order.len();
        for entry in recipe.entries(part) {
            if let State::Data { block, .. } = entry?.state {
                self.known.entry(block).or_insert_with(|| {
                    self.order.push(BootBlock::new(block, 1));
                    self.order.len() - 1
                });
            }
        }
        if self.order.len() == before {
            return Ok(());
        }
        // Lengths come from neighbouring entries. These page reads are not recorded, because a boot does not need them.
        let start = part.offset.saturating_sub(REACH);
        let end = (part.end() + REACH).min(recipe.root().disk_length);
        pages.set_noting(false);
        for entry in recipe.entries(Extent::between(start, end)) {
            let entry = entry?;
            let State::Data { block, offset } = entry.state else { continue };
            let Some(at) = self.known.get(&block).copied() else { continue };
            let length = u64::from(offset) + entry.extent.length;
            if length > self.order[at].length() {
                self.order[at] = BootBlock::new(block, length);
            }
        }
        pages.set_noting(true);
        Ok(())
    }

    fn finish(self) -> Vec<BootBlock> {
        self.order
    }
}

/// Pages of a source, each read once, and recorded in order of first use.
struct SeenPages<'a> {
    source: &'a dyn Source,
    state: Mutex<PagesState>,
}

#[derive(Default)]
struct PagesState {
    contents: HashMap<BlockId, Vec<u8>>,
    noted: HashMap<BlockId, ()>,
    order: Vec<BootBlock>,
    is_off: bool,
}

impl<'a> SeenPages<'a> {
    fn new(source: &'a dyn Source) -> Self {
        Self { source, state: Mutex::default() }
    }

    fn set_noting(&self, on: bool) {
        self.state().is_off = !on;
    }

    fn finish(&self) -> Vec<BootBlock> {
        std::mem::take(&mut self.state().order)
    }

    fn state(&self) -> MutexGuard<'_, PagesState> {
        self.state.lock()
    }
}

impl PageSource for SeenPages<'_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let known = self.state().contents.get(id).cloned();
        let bytes = match known {
            Some(bytes) => bytes,
            None => self.source.page(id)?,
        };
        let mut state = self.state();
        if !state.is_off && state.noted.insert(*id, ()).is_none() {
            state.order.push(BootBlock::new(*id, bytes.len() as u64));
        }
        state.contents.entry(*id).or_insert_with(|| bytes.clone());
        Ok(bytes)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.source.will_need_pages(ids);
    }
}

#[cfg(test)]
mod tests {
    use platter_store::{Store, StorePlace};
    use platter_vdisk::TraceHeader;

    use super::*;
    use crate::tests::capture_bytes;

    fn request(kind: RequestKind, offset: u64, length: u64) -> TracedRequest {
        let range = Extent::new(offset, length);
        TracedRequest { kind, failed: false, range, start_ns: 0, service_ns: 1 }
    }

    fn facts() -> BootFacts {
        BootFacts {
            marker: "test".into(),
            time_unix_ms: 1,
            tool_version: "test".into(),
            ..BootFacts::default()
        }
    }

    /// A disk of eight different blocks of 32 KiB, read in different orders.
    #[test]
    fn blocks_come_once_in_the_order_of_first_use() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path());
        Store::init(&place).unwrap();
        let grid = 32 << 10;
        let bytes: Vec<u8> =
            (0..8 * grid).map(|at| (at / grid * 31 + at % grid % 251 + 1) as u8 | 1).collect();
        capture_bytes(&place, "a", &bytes);
        let store = Store::open_reader(&place).unwrap();
        let version = store.resolve("a").unwrap().version.unwrap();
        let all: Vec<BlockId> = {
            let recipe = Recipe::open(version.record.score, &store).unwrap();
            let entries: Vec<_> = recipe.entries(Extent::new(0, bytes.len() as u64)).collect();
            let data = entries.into_iter().filter_map(|entry| match entry.unwrap().state {
                State::Data { block, .. } => Some(block),
                _ => None,
            });
            data.collect()
        };
        assert_eq!(all.len(), 8);
        let grid = grid as u64;
        let header = TraceHeader {
            base_score: version.record.score,
            disk_length: bytes.len() as u64,
            began_unix_ms: 1,
        };
        let requests = vec![
            request(RequestKind::Read, 5 * grid + 100, 1),
            request(RequestKind::Write, 7 * grid, grid),
            request(RequestKind::Read, 2 * grid - 512, 1024),
            request(RequestKind::Read, 7 * grid, grid),
            request(RequestKind::Flush, 0, 0),
            request(RequestKind::Read, 5 * grid, 2 * grid),
            TracedRequest { failed: true, ..request(RequestKind::Read, 0, 512) },
        ];
        let trace = Trace { header, requests, lost: 0, is_whole: true };
        let set = boot_set_of(&trace, &version.name, facts(), &store).unwrap();
        assert_eq!(set.blocks.iter().map(|it| it.id).collect::<Vec<_>>(), [5, 1, 2, 6].map(|at| all[at]));
        assert!(set.blocks.iter().all(|it| it.length() == grid), "with their full lengths");
        assert_eq!((set.record.requests, set.record.bytes_read), (4, 1 + 1024 + grid * 3));
        assert_eq!(set.pages[0].id, version.record.score.0);
        set.encode().unwrap();
        let nothing = Trace { requests: vec![request(RequestKind::Write, 0, grid)], ..trace.clone() };
        assert!(boot_set_of(&nothing, &version.name, facts(), &store).is_err());
        let header = TraceHeader { disk_length: 512, ..trace.header };
        assert!(boot_set_of(&Trace { header, ..trace }, &version.name, facts(), &store).is_err());
    }
}
