//! The replay client: it requests what the trace contains, in its order, and only from the right disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_image::{BlockId, ErrorKind, Extent, Score};
use platter_vdisk::{RequestKind, Trace, TraceHeader, TracedRequest};
use twox_hash::XxHash3_64;

use crate::client::Client;
use crate::memory::{Done, Memory};
use crate::replaying::{Options, replay, steps};
use crate::running_server::RunningServer;

const LENGTH: usize = 4 << 20;
const READS: Options = Options { think: 0.0, writes: false, score: None, also: Vec::new() };

fn request(kind: RequestKind, offset: u64, length: u64, start_ns: u64, service_ns: u64) -> TracedRequest {
    TracedRequest { kind, failed: false, range: Extent::new(offset, length), start_ns, service_ns }
}

fn trace(requests: Vec<TracedRequest>) -> Trace {
    let header =
        TraceHeader { base_score: Score(BlockId([7; 32])), disk_length: LENGTH as u64, began_unix_ms: 0 };
    Trace { header, requests, lost: 0, is_whole: true }
}

/// Three concurrent reads, one of them over a hole; then a write, and another read.
fn sample() -> Trace {
    trace(vec![
        request(RequestKind::Read, 513, 70_000, 0, 900),
        request(RequestKind::Read, 100_000, 1 << 20, 10, 500),
        request(RequestKind::Read, 3 << 20, 1 << 20, 20, 100),
        request(RequestKind::Write, 4096, 512, 1000, 50),
        request(RequestKind::Flush, 0, 0, 1010, 50),
        request(RequestKind::WriteZeroes, 8192, 512, 1020, 50),
        request(RequestKind::Read, 0, 16, 2000, 10),
    ])
}

fn disk() -> Arc<Memory> {
    Arc::new(Memory::new(LENGTH, &[Extent::new(300_000, 100_000), Extent::new(3 << 20, 4096)]))
}

fn client(server: &RunningServer) -> Client {
    Client::connect(&server.uri()).unwrap()
}

#[test]
fn a_replay_reads_what_the_trace_read() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let report = replay(&sample(), &mut client(&server), &READS).unwrap();
    assert_eq!((report.requests, report.failed, report.latencies_us.len()), (4, 0, 4));
    assert_eq!(report.bytes, 70_000 + (2 << 20) + 16);
    let contents = disk.contents();
    let reads = [513..70_513, 100_000..100_000 + (1 << 20), 3 << 20..4 << 20, 0..16];
    let digest = reads.into_iter().fold(0, |seed, range: std::ops::Range<usize>| {
        XxHash3_64::oneshot_with_seed(seed, &XxHash3_64::oneshot(&contents[range]).to_le_bytes())
    });
    assert_eq!(report.digest, digest, "every byte is in its place, including the zeros of holes");
    assert_eq!(disk.bytes_read.load(Ordering::Relaxed), report.bytes - 100_000);
    assert_eq!(disk.log(), []);
    server.finish();
}

#[test]
fn writes_are_replayed_on_request() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let report = replay(&sample(), &mut client(&server), &Options { writes: true, ..READS }).unwrap();
    assert_eq!((report.requests, report.failed), (7, 0));
    let mut log = disk.log();
    log.sort_by_key(|done| format!("{done:?}"));
    assert_eq!(log, [Done::Flush, Done::Write(4096, 512), Done::Zero(8192, 512)]);
    server.finish();
}

#[test]
fn a_trace_of_another_disk_is_not_replayed() {
    let disk = disk();
    let server = RunningServer::of(&disk);
    let kind = |trace: &Trace, options: &Options| {
        replay(trace, &mut client(&server), options).err().map(|error| error.kind())
    };
    let mut longer = sample();
    longer.header.disk_length += 512;
    assert_eq!(kind(&longer, &READS), Some(ErrorKind::Refused));
    let of = |byte: u8| Options { score: Some(Score(BlockId([byte; 32])).to_string()), ..READS };
    assert_eq!(kind(&sample(), &of(8)), Some(ErrorKind::Refused));
    assert_eq!(kind(&sample(), &of(7)), None);
    assert_eq!(disk.bytes_read.load(Ordering::Relaxed), 70_000 + (2 << 20) + 16 - 100_000);
    server.finish();
}

#[test]
fn a_request_waits_only_for_requests_that_were_answered_before_it() {
    let (steps, places) =
        steps(&sample(), &Options { think: 0.5, writes: true, score: None, also: Vec::new() }).unwrap();
    assert_eq!(steps.iter().map(|step| step.after).collect::<Vec<_>>(), [0, 0, 0, 3, 3, 3, 6]);
    assert_eq!(places, [2, 1, 0, 3, 4, 5, 6]);
    let thinks: Vec<_> = steps.iter().map(|step| step.think.as_nanos()).collect();
    assert_eq!(thinks, [0, 5, 10, 50, 55, 60, 465]);
}

#[test]
fn additional_ranges_are_read_after_the_trace() {
    let options = Options { writes: true, also: vec![Extent::new(0, 512); 2], ..READS };
    let (steps, places) = steps(&sample(), &options).unwrap();
    assert_eq!(steps.iter().map(|step| step.after).collect::<Vec<_>>()[6..], [6, 7, 7]);
    assert_eq!(places[7..], [7, 8]);
}
