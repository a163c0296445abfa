//! A client that sends whatever the test wants, valid or not. It has its own constants and does not use those of the
//! server's code.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;

pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 2;
pub(crate) const DF: u16 = 4;
pub(crate) const REQ_ONE: u16 = 8;
pub(crate) const FAST_ZERO: u16 = 16;

pub(crate) const ACK: u32 = 1;

/// A chunk; a simple reply appears as a chunk of kind 0 with its error number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) is_structured: bool,
    pub(crate) is_last: bool,
    pub(crate) kind: u16,
    pub(crate) error: u32,
    pub(crate) cookie: u64,
    pub(crate) payload: Vec<u8>,
}

pub(crate) struct RawClient {
    pub(crate) stream: UnixStream,
}

impl RawClient {
    /// Connects and answers the greeting.
    pub(crate) fn connect(path: &Path) -> Self {
        Self::greeted(UnixStream::connect(path).unwrap())
    }

    /// Connects over TCP.
    pub(crate) fn connect_tcp(address: SocketAddr) -> Self {
        // The type does not matter: reading and writing work on any socket.
        Self::greeted(UnixStream::from(OwnedFd::from(TcpStream::connect(address).unwrap())))
    }

    fn greeted(stream: UnixStream) -> Self {
        let mut client = Self { stream };
        client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(client.bytes(18), b"NBDMAGICIHAVEOPT\0\x03");
        client.send(&3u32.to_be_bytes());
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().unwrap())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().unwrap())
    }

    /// Whether the server has closed the connection without sending anything more.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn send_option(&mut self, code: u32, data: &[u8]) {
        let length = (data.len() as u32).to_be_bytes();
        self.send(&[b"IHAVEOPT", &code.to_be_bytes()[..], &length, data].concat());
    }

    /// Sends an option. Returns kind and data of all replies, up to the acknowledgement or error.
    pub(crate) fn option(&mut self, code: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(code, data);
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.u64(), 0x0003_e889_0455_65a9);
            assert_eq!(self.u32(), code);
            let kind = self.u32();
            let length = self.u32() as usize;
            replies.push((kind, self.bytes(length)));
            if kind == ACK || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    pub(crate) fn structured_reply(&mut self) {
        assert_eq!(self.option(8, b""), [(ACK, Vec::new())]);
    }

    pub(crate) fn set_context(&mut self, export: &str, query: &str) -> Vec<(u32, Vec<u8>)> {
        self.option(10, &context_query(export, &[query]))
    }

    pub(crate) fn go(&mut self, export: &str) -> Vec<(u32, Vec<u8>)> {
        let replies = self.option(7, &info_request(export, &[3]));
        assert_eq!(replies.last().unwrap().0, ACK);
        replies
    }

    pub(crate) fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&request_bytes(command, flags, cookie, offset, length));
    }

    /// Receives the next reply, without the payload of a simple reply to a read.
    pub(crate) fn reply(&mut self) -> Reply {
        match self.u32() {
            0x6744_6698 => {
                let error = self.u32();
                let cookie = self.u64();
                Reply { is_structured: false, is_last: true, kind: 0, error, cookie, payload: Vec::new() }
            }
            0x668e_33ef => {
                let (flags, kind) = (self.u16(), self.u16());
                let cookie = self.u64();
                let length = self.u32() as usize;
                let payload = self.bytes(length);
                let error =
                    if kind >> 15 == 1 { u32::from_be_bytes(payload[..4].try_into().unwrap()) } else { 0 };
                Reply { is_structured: true, is_last: flags & 1 == 1, kind, error, cookie, payload }
            }
            magic => panic!("a reply begins with {magic:#x}"),
        }
    }

    /// Sends a request without payload. Returns all chunks of its reply, which must come next.
    pub(crate) fn ask(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> Vec<Reply> {
        let cookie = offset ^ 0xc00_c1e0_0000_0000;
        self.request(command, flags, cookie, offset, length);
        let mut chunks = Vec::new();
        loop {
            let reply = self.reply();
            assert_eq!(reply.cookie, cookie);
            chunks.push(reply);
            if chunks.last().unwrap().is_last {
                return chunks;
            }
        }
    }

    /// Error number of a request without payload; 0 is success.
    pub(crate) fn error_of(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> u32 {
        self.ask(command, flags, offset, length).last().unwrap().error
    }

    /// Error number of a write.
    pub(crate) fn write(&mut self, flags: u16, offset: u64, bytes: &[u8]) -> u32 {
        self.request(WRITE, flags, 77, offset, bytes.len() as u32);
        self.send(bytes);
        let reply = self.reply();
        assert_eq!(reply.cookie, 77);
        reply.error
    }
}

pub(crate) fn request_bytes(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

fn counted(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

pub(crate) fn info_request(export: &str, wishes: &[u16]) -> Vec<u8> {
    let mut data = counted(export);
    data.extend_from_slice(&(wishes.len() as u16).to_be_bytes());
    wishes.iter().for_each(|wish| data.extend_from_slice(&wish.to_be_bytes()));
    data
}

pub(crate) fn context_query(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = counted(export);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend_from_slice(&counted(query)));
    data
}

/// Decodes a structured reply to a read: for each piece its offset, its bytes (`None` for a hole), and its length.
pub(crate) fn pieces(chunks: &[Reply]) -> Vec<(u64, Option<Vec<u8>>, usize)> {
    let piece = |chunk: &Reply| {
        let offset = u64::from_be_bytes(chunk.payload[..8].try_into().unwrap());
        let rest = &chunk.payload[8..];
        match chunk.kind {
            1 => (offset, Some(rest.to_vec()), rest.len()),
            2 => (offset, None, u32::from_be_bytes(rest.try_into().unwrap()) as usize),
            kind => panic!("a chunk of kind {kind}"),
        }
    };
    chunks.iter().map(piece).collect()
}

/// Decodes a reply to a block status request: length and state of each extent.
pub(crate) fn states(chunks: &[Reply]) -> Vec<(u32, u32)> {
    let [chunk] = chunks else { panic!("one chunk, not {}", chunks.len()) };
    assert_eq!((chunk.kind, &chunk.payload[..4]), (5, &[0, 0, 0, 1][..]));
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    chunk.payload[4..].chunks_exact(8).map(|pair| (number(&pair[..4]), number(&pair[4..]))).collect()
}
