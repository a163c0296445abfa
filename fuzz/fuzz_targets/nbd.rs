//! NBD: the input is what a client sends. It goes to the parsers and the negotiation alone, then over a socket to a
//! real server, which must end the connection, send complete replies, and send no more than was requested.

#![no_main]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use platter_export::Exports;
use platter_export::nbd::wire::{OptionHeader, OptionRequest, Request};
use platter_export::nbd::{NbdOptions, NbdServer, Negotiation, Step};
use platter_fuzz::bug_free;
use platter_image::{Error, Extent, Result};
use platter_transport::Listener;
use platter_vdisk::{Allocation, BlockDevice};

const DISK_BYTES: u64 = 1 << 20;
const RUN_BYTES: u64 = 64 << 10;
/// The socket's buffer holds this much, so everything can be sent before anything is read.
const INPUT_BYTES_MAX: usize = 16 << 10;

/// Alternating runs of data and holes, independent of writes.
struct Stripes;

impl BlockDevice for Stripes {
    fn length(&self) -> u64 {
        DISK_BYTES
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        assert!(offset + buffer.len() as u64 <= DISK_BYTES);
        buffer.fill(7);
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        assert!(offset + bytes.len() as u64 <= DISK_BYTES);
        Ok(())
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        assert!(range.end() <= DISK_BYTES);
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        assert!(range.end() <= DISK_BYTES);
        let mut at = range.offset;
        while at < range.end() {
            let end = ((at / RUN_BYTES + 1) * RUN_BYTES).min(range.end());
            let is_hole = (at / RUN_BYTES) % 2 == 1;
            let allocation = if is_hole { Allocation::Zero } else { Allocation::Data };
            if !visit(Extent::between(at, end), allocation) {
                break;
            }
            at = end;
        }
        Ok(())
    }
}

struct OneDisk;

impl Exports for OneDisk {
    fn list(&self) -> Vec<String> {
        vec!["disk".into()]
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        if name == "disk" { Ok(Arc::new(Stripes)) } else { Err(Error::missing("there is one disk")) }
    }
}

/// The server's threads start and end beside those of the fuzzer, which would report memory of an ending thread as a
/// leak.
// SAFETY: nothing else in the program has this name; the address sanitizer calls it for its options.
#[cfg(fuzzing)]
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const std::ffi::c_char {
    c"detect_leaks=0".as_ptr()
}

fuzz_target!(|input: &[u8]| {
    let Some((choices, stream)) = input.split_first() else { return };
    let stream = &stream[..stream.len().min(INPUT_BYTES_MAX)];
    negotiate(stream);
    for bytes in stream.windows(28).take(64) {
        bug_free(Request::parse(bytes.try_into().unwrap()));
    }
    let mut sent = Vec::new();
    if choices & 1 != 0 {
        sent.extend_from_slice(b"\0\0\0\x03");
    }
    if choices & 2 != 0 {
        sent.extend_from_slice(b"IHAVEOPT\0\0\0\x08\0\0\0\0");
        sent.extend_from_slice(
            b"IHAVEOPT\0\0\0\x0a\0\0\0\x1b\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation",
        );
    }
    if choices & 4 != 0 {
        sent.extend_from_slice(b"IHAVEOPT\0\0\0\x07\0\0\0\x0a\0\0\0\x04disk\0\0");
    }
    sent.extend_from_slice(stream);
    converse(&sent);
});

/// Passes the options in `stream` to the parser and to the negotiation.
fn negotiate(stream: &[u8]) {
    let Some((flags, mut rest)) = stream.split_first_chunk() else { return };
    let Some(mut negotiation) = bug_free(Negotiation::new(&OneDisk, u32::from_be_bytes(*flags))) else {
        return;
    };
    let mut replies = Vec::new();
    while let Some((header, behind)) = rest.split_first_chunk() {
        let Some(header) = bug_free(OptionHeader::parse(header)) else { return };
        let Some((data, behind)) = behind.split_at_checked(header.length as usize) else { return };
        bug_free(OptionRequest::parse(header.code, data));
        replies.clear();
        match bug_free(negotiation.handle(header.code, data, &mut replies)) {
            Some(Step::Continue) => assert!(!replies.is_empty(), "no reply to an option"),
            _ => return,
        }
        rest = behind;
    }
}

/// Sends everything, closes its side, and reads everything.
fn converse(sent: &[u8]) {
    let mut stream = UnixStream::connect(server()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    // The server may have closed the connection.
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    // Every request has 28 bytes and asks for at most the whole disk; replies to options are shorter.
    let most = (sent.len() as u64 / 28 + 1) * (DISK_BYTES + 4096) + 4096;
    let mut received = 0;
    let mut bytes = vec![0; 1 << 16];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => received += count as u64,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("the server does not end: {error}"),
        }
        assert!(received <= most, "more than was asked for");
    }
}

fn server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("platter-fuzz-nbd-{}", std::process::id()));
        let listener = Listener::unix(&path).expect("a socket");
        std::thread::spawn(move || {
            let options = NbdOptions { workers: 2, ..NbdOptions::default() };
            NbdServer::serve(listener, Arc::new(OneDisk), options, &AtomicBool::new(false))
                .expect("a server");
        });
        path
    })
}
