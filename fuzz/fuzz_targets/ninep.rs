//! 9P: the input is what a client sends. It goes to the parser alone, then over a socket to a real server, which must
//! end the connection and send complete messages within the negotiated size.

#![no_main]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use platter_export::ninep::wire::{HEADER_BYTES, Header, Request};
use platter_export::ninep::{NinepOptions, NinepServer};
use platter_export::tree::{Access, NAME_LENGTH_MAX, Node, NodeId, NodeKind, OpenFile, ROOT, Tree};
use platter_fuzz::bug_free;
use platter_image::{Error, Extent, Result};
use platter_transport::Listener;
use platter_vdisk::Allocation;

const MSIZE: u32 = 8192;
const FILE: NodeId = 2;
const FILE_BYTES: u64 = 1 << 16;
/// The socket's buffer holds this much, so everything can be sent before anything is read.
const INPUT_BYTES_MAX: usize = 16 << 10;

/// A tree that always has a file and a directory in the root; names that begin with `f` are the file's.
struct Always;

impl Always {
    fn check(name: &str) {
        assert!(!name.is_empty() && name.len() <= NAME_LENGTH_MAX && !name.contains('/'));
        assert!(name != "." && name != "..");
    }
}

impl Tree for Always {
    fn lookup(&self, _directory: NodeId, name: &str) -> Result<Node> {
        Self::check(name);
        self.node(if name.starts_with('f') { FILE } else { FILE + name.len() as u64 })
    }

    fn parent(&self, _directory: NodeId) -> Result<NodeId> {
        Ok(ROOT)
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        let file = NodeKind::File { length: FILE_BYTES, allocated: FILE_BYTES };
        let kind = if id == FILE { file } else { NodeKind::Directory };
        Ok(Node { id, kind, writable: true, modified_unix_ms: -1 })
    }

    fn list(&self, _directory: NodeId) -> Result<Vec<(String, Node)>> {
        (0..50).map(|n| Ok((format!("f{n}"), self.node(FILE)?))).collect()
    }

    fn open(&self, _id: NodeId, _access: Access) -> Result<Arc<dyn OpenFile>> {
        Ok(Arc::new(Bytes))
    }

    fn create(&self, _directory: NodeId, name: &str, _access: Access) -> Result<(Node, Arc<dyn OpenFile>)> {
        Self::check(name);
        Ok((self.node(FILE)?, Arc::new(Bytes)))
    }

    fn make_directory(&self, _directory: NodeId, name: &str) -> Result<Node> {
        Self::check(name);
        Err(Error::refused("there is one"))
    }

    fn remove_file(&self, _directory: NodeId, name: &str) -> Result<()> {
        Self::check(name);
        Ok(())
    }

    fn remove_directory(&self, _directory: NodeId, name: &str) -> Result<()> {
        Self::check(name);
        Err(Error::refused("it is not empty"))
    }

    fn rename(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<()> {
        Self::check(from.1);
        Self::check(to.1);
        Ok(())
    }
}

struct Bytes;

impl OpenFile for Bytes {
    fn length(&self) -> u64 {
        FILE_BYTES
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        assert!(offset + buffer.len() as u64 <= FILE_BYTES);
        buffer.fill(7);
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        assert!(bytes.len() < MSIZE as usize && offset.checked_add(bytes.len() as u64).is_some());
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Data);
        Ok(())
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
    if let Some((header, body)) = stream.split_first_chunk::<HEADER_BYTES>() {
        bug_free(Request::parse(Header::parse(header).kind, body));
    }
    let mut sent = Vec::new();
    if choices & 1 != 0 {
        sent.extend_from_slice(b"\x15\0\0\0\x64\xff\xff\0\x20\0\0\x08\x009P2000.L");
        sent.extend_from_slice(b"\x17\0\0\0\x68\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0");
    }
    if choices & 2 != 0 {
        // Fid 1: the file, open for reading and writing. Fid 2: the root, open.
        sent.extend_from_slice(b"\x14\0\0\0\x6e\x01\0\0\0\0\0\x01\0\0\0\x01\0\x01\0f");
        sent.extend_from_slice(b"\x0f\0\0\0\x0c\x02\0\x01\0\0\0\x02\0\0\0");
        sent.extend_from_slice(b"\x11\0\0\0\x6e\x03\0\0\0\0\0\x02\0\0\0\0\0");
        sent.extend_from_slice(b"\x0f\0\0\0\x0c\x04\0\x02\0\0\0\0\0\0\0");
    }
    sent.extend_from_slice(stream);
    converse(&sent);
});

/// Sends everything, closes its side, and reads everything.
fn converse(sent: &[u8]) {
    let mut stream = UnixStream::connect(server()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    // The server may have closed the connection.
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut received = Vec::new();
    let mut bytes = vec![0; 1 << 16];
    // Every request has at least 7 bytes. If the client negotiated messages of up to a megabyte, there are few of them.
    let most = (sent.len() / 7 + 1) * (FILE_BYTES as usize + 4096);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the server does not end: {error}"),
        }
        assert!(received.len() <= most, "more than was asked for");
    }
    let mut rest = received.as_slice();
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        let header = Header::parse(header);
        assert!(header.size as usize >= HEADER_BYTES && header.kind.0 % 2 == 1, "{header:?}");
        rest = rest.get(header.size as usize..).expect("whole messages");
    }
    assert!(rest.is_empty(), "whole messages");
}

fn server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("platter-fuzz-ninep-{}", std::process::id()));
        let listener = Listener::unix(&path).expect("a socket");
        std::thread::spawn(move || {
            let options = NinepOptions { workers: 2, ..NinepOptions::default() };
            NinepServer::serve(listener, Arc::new(Always), options, &AtomicBool::new(false))
                .expect("a server");
        });
        path
    })
}
