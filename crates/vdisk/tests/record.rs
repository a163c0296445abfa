//! Recording: every request is in the trace as it was made, or is counted as lost, and no request waits for
//! the file.
#![expect(clippy::unwrap_used, reason = "a test may")]

use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use platter_image::{BlockId, Error, ErrorKind, Extent, Result, Score};
use platter_vdisk::{
    Allocation, BlockDevice, Record, Recording, RequestKind, Trace, TraceHeader, TracedRequest,
};
use platter_vfs::simulated::SimulatedDisk;
use platter_vfs::{OpenMode, Vfs, VfsFile};

const LENGTH: u64 = 1 << 30;
const PATH: &str = "/trace";

/// A disk of zeros whose second half cannot be read.
struct HalfBroken;

impl BlockDevice for HalfBroken {
    fn length(&self) -> u64 {
        LENGTH
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        if offset >= LENGTH / 2 {
            return Err(Error::corrupt("broken"));
        }
        buffer.fill(7);
        Ok(())
    }

    fn write(&self, _: &[u8], _: u64) -> Result<()> {
        Ok(())
    }

    fn write_zeroes(&self, _: Extent) -> Result<()> {
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Zero);
        Ok(())
    }
}

fn header() -> TraceHeader {
    TraceHeader { base_score: Score(BlockId([9; 32])), disk_length: LENGTH, began_unix_ms: 1 }
}

fn record(file: Box<dyn VfsFile>) -> (Record, Arc<Recording>) {
    let recording = Recording::start(file, &header()).unwrap();
    (Record::new(Arc::new(HalfBroken), recording.clone()), recording)
}

fn new_file(disk: &SimulatedDisk) -> Box<dyn VfsFile> {
    disk.open(Path::new(PATH), OpenMode::CreateNew).unwrap()
}

fn trace_of(disk: &SimulatedDisk) -> Trace {
    Trace::read(&disk.contents(Path::new(PATH)).unwrap()[..]).unwrap()
}

fn what(request: &TracedRequest) -> (RequestKind, u64, u64, bool) {
    (request.kind, request.range.offset, request.range.length, request.failed)
}

#[test]
fn the_trace_has_all_requests_in_order() {
    let files = SimulatedDisk::new(1);
    let (disk, recording) = record(new_file(&files));
    let mut buffer = vec![0; 70_000];
    disk.read(&mut buffer, 513).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 7), "the disk below must answer");
    disk.write(&buffer[..512], 4096).unwrap();
    disk.read(&mut buffer[..1], LENGTH / 2).unwrap_err();
    disk.write_zeroes(Extent::new(0, LENGTH)).unwrap();
    disk.flush().unwrap();
    let counts = recording.finish().unwrap();
    assert_eq!((counts.requests, counts.lost), (5, 0));
    assert_eq!((counts.bytes_read, counts.bytes_written), (70_001, 512));
    let trace = trace_of(&files);
    assert_eq!((trace.header, trace.lost, trace.is_whole), (header(), 0, true));
    assert_eq!(
        trace.requests.iter().map(what).collect::<Vec<_>>(),
        [
            (RequestKind::Read, 513, 70_000, false),
            (RequestKind::Write, 4096, 512, false),
            (RequestKind::Read, LENGTH / 2, 1, true),
            (RequestKind::WriteZeroes, 0, LENGTH, false),
            (RequestKind::Flush, 0, 0, false),
        ]
    );
    assert!(trace.requests.is_sorted_by_key(TracedRequest::end_ns), "the requests did not overlap");
    disk.flush().unwrap();
    assert_eq!(recording.finish().unwrap_err().kind(), ErrorKind::Bug);
}

#[test]
fn many_threads_lose_no_requests_while_the_buffer_has_room() {
    let files = SimulatedDisk::new(1);
    let (_, recording) = record(new_file(&files));
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let disk = Record::new(Arc::new(HalfBroken), recording.clone());
            scope.spawn(move || {
                for number in 0..500 {
                    disk.read(&mut [0; 8], (thread * 500 + number) * 8).unwrap();
                }
            });
        }
    });
    assert_eq!(recording.finish().unwrap().requests, 2000);
    let mut offsets: Vec<u64> =
        trace_of(&files).requests.iter().map(|request| request.range.offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, (0..2000).map(|number| number * 8).collect::<Vec<_>>());
}

/// A file whose writes, except that of the header, wait for the gate to open.
#[derive(Debug)]
struct Shut {
    file: Box<dyn VfsFile>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl VfsFile for Shut {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if offset > 0 {
            self.gate.1.wait_while(&mut self.gate.0.lock(), |is_open| !*is_open);
        }
        self.file.write_at(bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

#[test]
fn requests_do_not_wait_for_the_file_and_lost_ones_are_counted() {
    const ASKED: u64 = 50_000;
    let files = SimulatedDisk::new(1);
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (disk, recording) = record(Box::new(Shut { file: new_file(&files), gate: gate.clone() }));
    // The file is blocked: if a request waited for it, this loop would not end.
    for number in 0..ASKED {
        disk.read(&mut [0; 4], number * 4).unwrap();
    }
    *gate.0.lock() = true;
    gate.1.notify_all();
    let counts = recording.finish().unwrap();
    assert!(counts.lost > 0 && counts.requests > 0, "{counts:?}");
    assert_eq!(counts.requests + counts.lost, ASKED);
    let trace = trace_of(&files);
    assert_eq!((trace.requests.len() as u64, trace.lost), (counts.requests, counts.lost));
    assert!(trace.is_whole);
}

#[test]
fn a_write_error_is_returned_by_finish_and_fails_no_request() {
    let files = SimulatedDisk::new(1);
    let (disk, recording) = record(new_file(&files));
    files.set_capacity(4096);
    for number in 0..1000 {
        disk.read(&mut [0; 4], number * 4).unwrap();
    }
    assert_eq!(recording.finish().unwrap_err().kind(), ErrorKind::Io);
    disk.read(&mut [0; 4], 0).unwrap();
    assert!(!trace_of(&files).is_whole);
}
