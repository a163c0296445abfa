//! A live disk's trace: recording it, and a summary.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_image::{Extents, IoContext, Result, Score};
use platter_vdisk::{BlockDevice, Record, Recording, RequestKind, Trace, TraceHeader, TracedRequest};
use platter_vfs::{OpenMode, OsVfs, Vfs};
use serde::Serialize;

use platter_fetch::unix_ms;

/// The result of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct RecordReport {
    /// The disk's name.
    pub disk: String,
    /// The trace's file.
    pub file: PathBuf,
    /// Recorded requests.
    pub requests: u64,
    /// Requests that were not recorded.
    pub lost: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
}

/// Records one disk.
pub(super) struct Recorder {
    disk: String,
    file: PathBuf,
    recording: Arc<Recording>,
}

impl Recorder {
    /// Starts a trace in a new file.
    ///
    /// # Errors
    /// `Io`, also when the file exists.
    pub(super) fn start(file: &Path, disk: String, base_score: Score, disk_length: u64) -> Result<Self> {
        let opened =
            OsVfs.open(file, OpenMode::CreateNew).context(|| format!("making {}", file.display()))?;
        let header = TraceHeader { base_score, disk_length, began_unix_ms: unix_ms() };
        Ok(Self { disk, file: file.to_owned(), recording: Recording::start(opened, &header)? })
    }

    /// Wraps the disk for another client, whose requests are then recorded.
    pub(super) fn over(&self, disk: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(Record::new(disk, self.recording.clone()))
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// `Io`: the trace then lacks its end.
    pub(super) fn finish(&self) -> Result<RecordReport> {
        let counts =
            self.recording.finish().map_err(|error| error.within(self.file.display().to_string()))?;
        Ok(RecordReport {
            disk: self.disk.clone(),
            file: self.file.clone(),
            requests: counts.requests,
            lost: counts.lost,
            bytes_read: counts.bytes_read,
            bytes_written: counts.bytes_written,
        })
    }
}

/// Summary of a trace. Times are in seconds or, if the name says so, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSummary {
    /// The version that was served at the start.
    pub base: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Start of the recording.
    pub began_unix_ms: i64,
    /// Time from the first request's arrival to the last reply.
    pub seconds: f64,
    /// Number of requests of each kind.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// See `reads`.
    pub zeroes: u64,
    /// See `reads`.
    pub flushes: u64,
    /// Number of failed requests of any kind.
    pub failed: u64,
    /// Requests that were not recorded.
    pub lost: u64,
    /// Whether the trace is complete.
    pub whole: bool,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes of the disk that were read at least once.
    pub distinct_bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Total duration of all reads.
    pub read_service_seconds: f64,
    /// Median duration of reads.
    pub read_p50_us: f64,
    /// 99th percentile of the duration of reads.
    pub read_p99_us: f64,
    /// Reads by size: each entry counts reads of at most this many bytes, and more than the previous entry's.
    pub read_sizes: Vec<ReadSize>,
}

/// Number of reads of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReadSize {
    /// A power of two.
    pub bytes_max: u64,
    /// Reads.
    pub reads: u64,
}

/// Summarizes a trace.
///
/// # Errors
/// `Corrupt` when the file is not a trace, or damaged; `Refused` when a newer Platter made it; `Io`.
pub fn trace_summary(file: &Path) -> Result<TraceSummary> {
    let opened = File::open(file).context(|| format!("opening {}", file.display()))?;
    let trace = Trace::read(opened).map_err(|error| error.within(file.display().to_string()))?;
    Ok(summary(&trace))
}

fn summary(trace: &Trace) -> TraceSummary {
    let requests = &trace.requests;
    let of = |kind: RequestKind| requests.iter().filter(move |request| request.kind == kind);
    let count = |kind| of(kind).count() as u64;
    // A trace is only protected by checksums, so it may contain any numbers.
    let bytes = |kind| of(kind).fold(0, |sum: u64, request| sum.saturating_add(request.range.length));
    let begin = requests.first().map_or(0, |request| request.start_ns);
    let end = requests.iter().map(TracedRequest::end_ns).max().unwrap_or(begin);
    let mut service: Vec<u64> = of(RequestKind::Read).map(|request| request.service_ns).collect();
    service.sort_unstable();
    let quantile = |part: f64| {
        let at = (service.len() as f64 * part).ceil() as usize;
        service.get(at.saturating_sub(1)).map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    let mut sizes = BTreeMap::new();
    for request in of(RequestKind::Read) {
        *sizes.entry(request.range.length.checked_next_power_of_two().unwrap_or(u64::MAX)).or_default() += 1;
    }
    let ranges = of(RequestKind::Read).map(|request| request.range).filter(|range| range.length > 0);
    TraceSummary {
        base: trace.header.base_score.to_string(),
        disk_bytes: trace.header.disk_length,
        began_unix_ms: trace.header.began_unix_ms,
        seconds: (end - begin) as f64 / 1e9,
        reads: count(RequestKind::Read),
        writes: count(RequestKind::Write),
        zeroes: count(RequestKind::WriteZeroes),
        flushes: count(RequestKind::Flush),
        failed: requests.iter().filter(|request| request.failed).count() as u64,
        lost: trace.lost,
        whole: trace.is_whole,
        bytes_read: bytes(RequestKind::Read),
        distinct_bytes_read: Extents::from_unsorted(ranges.collect()).total(),
        bytes_written: bytes(RequestKind::Write),
        read_service_seconds: service.iter().map(|ns| *ns as f64 / 1e9).sum(),
        read_p50_us: quantile(0.5),
        read_p99_us: quantile(0.99),
        read_sizes: sizes.into_iter().map(|(bytes_max, reads)| ReadSize { bytes_max, reads }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use platter_image::{BlockId, Extent};

    use super::*;

    #[test]
    fn a_trace_is_summarized() {
        let read = |offset, length, start_ns| TracedRequest {
            kind: RequestKind::Read,
            failed: false,
            range: Extent::new(offset, length),
            start_ns,
            service_ns: 2000,
        };
        let flush = TracedRequest { kind: RequestKind::Flush, failed: true, ..read(0, 0, 9_000) };
        let trace = Trace {
            header: TraceHeader {
                base_score: Score(BlockId([1; 32])),
                disk_length: 1 << 20,
                began_unix_ms: 5,
            },
            requests: vec![read(0, 4096, 1000), read(2048, 4096, 2000), read(9000, 512, 3000), flush],
            lost: 3,
            is_whole: true,
        };
        let told = summary(&trace);
        assert_eq!((told.reads, told.writes, told.zeroes, told.flushes), (3, 0, 0, 1));
        assert_eq!((told.failed, told.lost), (1, 3));
        assert_eq!((told.bytes_read, told.distinct_bytes_read), (8704, 6656));
        assert_eq!(
            ((told.seconds * 1e9).round(), (told.read_service_seconds * 1e9).round()),
            (10_000.0, 6_000.0)
        );
        assert_eq!((told.read_p50_us, told.read_p99_us), (2.0, 2.0));
        let sizes: Vec<_> = told.read_sizes.iter().map(|size| (size.bytes_max, size.reads)).collect();
        assert_eq!(sizes, [(512, 1), (4096, 2)]);
    }
}
