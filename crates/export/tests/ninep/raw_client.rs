//! A client that sends whatever the test wants, valid or not. It has its own constants and does not use those of the
//! server's code.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const STATFS: u8 = 8;
pub(crate) const LOPEN: u8 = 12;
pub(crate) const LCREATE: u8 = 14;
pub(crate) const SYMLINK: u8 = 16;
pub(crate) const RENAME: u8 = 20;
pub(crate) const READLINK: u8 = 22;
pub(crate) const GETATTR: u8 = 24;
pub(crate) const SETATTR: u8 = 26;
pub(crate) const XATTRWALK: u8 = 30;
pub(crate) const READDIR: u8 = 40;
pub(crate) const FSYNC: u8 = 50;
pub(crate) const LOCK: u8 = 52;
pub(crate) const GETLOCK: u8 = 54;
pub(crate) const MKDIR: u8 = 72;
pub(crate) const RENAMEAT: u8 = 74;
pub(crate) const UNLINKAT: u8 = 76;
pub(crate) const VERSION: u8 = 100;
pub(crate) const AUTH: u8 = 102;
pub(crate) const ATTACH: u8 = 104;
pub(crate) const FLUSH: u8 = 108;
pub(crate) const WALK: u8 = 110;
pub(crate) const READ: u8 = 116;
pub(crate) const WRITE: u8 = 118;
pub(crate) const CLUNK: u8 = 120;
pub(crate) const REMOVE: u8 = 122;

pub(crate) const EPERM: u32 = 1;
pub(crate) const ENOENT: u32 = 2;
pub(crate) const EIO: u32 = 5;
pub(crate) const EBADF: u32 = 9;
pub(crate) const EBUSY: u32 = 16;
pub(crate) const EEXIST: u32 = 17;
pub(crate) const ENOTDIR: u32 = 20;
pub(crate) const EISDIR: u32 = 21;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const EMFILE: u32 = 24;
pub(crate) const EFBIG: u32 = 27;
pub(crate) const ENOSPC: u32 = 28;
pub(crate) const ENAMETOOLONG: u32 = 36;
pub(crate) const ENOTEMPTY: u32 = 39;
pub(crate) const EPROTO: u32 = 71;
pub(crate) const EILSEQ: u32 = 84;
pub(crate) const EOPNOTSUPP: u32 = 95;
pub(crate) const ESHUTDOWN: u32 = 108;

pub(crate) const RDONLY: u32 = 0;
pub(crate) const WRONLY: u32 = 1;
pub(crate) const RDWR: u32 = 2;
pub(crate) const EXCL: u32 = 0o200;
pub(crate) const TRUNC: u32 = 0o1000;
pub(crate) const DIRECTORY: u32 = 0o200_000;

pub(crate) const NO_TAG: u16 = u16::MAX;
pub(crate) const NO_FID: u32 = u32::MAX;

/// A field of a message's body.
pub(crate) enum Field<'a> {
    Byte(u8),
    Short(u16),
    Int(u32),
    Long(u64),
    Text(&'a str),
    Raw(&'a [u8]),
}

pub(crate) use Field::{Byte, Int, Long, Raw, Short, Text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) kind: u8,
    pub(crate) tag: u16,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The error number of an error reply.
    pub(crate) fn error(&self) -> Option<u32> {
        (self.kind == 7).then(|| u32::from_le_bytes(self.body[..].try_into().unwrap()))
    }

    /// The data of a reply to a read.
    pub(crate) fn data(&self) -> &[u8] {
        let count = u32::from_le_bytes(self.body[..4].try_into().unwrap());
        assert_eq!(count as usize, self.body.len() - 4);
        &self.body[4..]
    }
}

pub(crate) fn message(kind: u8, tag: u16, fields: &[Field<'_>]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, kind];
    bytes.extend_from_slice(&tag.to_le_bytes());
    for field in fields {
        match field {
            Byte(number) => bytes.push(*number),
            Short(number) => bytes.extend_from_slice(&number.to_le_bytes()),
            Int(number) => bytes.extend_from_slice(&number.to_le_bytes()),
            Long(number) => bytes.extend_from_slice(&number.to_le_bytes()),
            Text(text) => {
                bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
            Raw(raw) => bytes.extend_from_slice(raw),
        }
    }
    let size = bytes.len() as u32;
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes
}

pub(crate) struct RawClient {
    pub(crate) stream: UnixStream,
    tag: u16,
}

impl RawClient {
    pub(crate) fn connect(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).unwrap())
    }

    /// Connects over TCP.
    pub(crate) fn connect_tcp(address: SocketAddr) -> Self {
        // The type does not matter: reading and writing work on any socket.
        Self::over(UnixStream::from(OwnedFd::from(TcpStream::connect(address).unwrap())))
    }

    fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, tag: 0 }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Whether the server has closed the connection without sending anything more.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let mut header = [0; 7];
        self.stream.read_exact(&mut header).unwrap();
        let size = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        let mut body = vec![0; size - 7];
        self.stream.read_exact(&mut body).unwrap();
        Reply { kind: header[4], tag: u16::from_le_bytes([header[5], header[6]]), body }
    }

    /// Sends a request and returns its reply, which must come next and be of the matching kind or an error.
    pub(crate) fn ask(&mut self, kind: u8, fields: &[Field<'_>]) -> Reply {
        self.tag = (self.tag + 1) % 1000;
        let tag = self.tag;
        self.send(&message(kind, tag, fields));
        let reply = self.reply();
        assert_eq!(reply.tag, tag);
        assert!(reply.kind == kind + 1 || reply.kind == 7, "{reply:?}");
        reply
    }

    /// Sends a request that must succeed. Returns the reply's body.
    pub(crate) fn done(&mut self, kind: u8, fields: &[Field<'_>]) -> Vec<u8> {
        let reply = self.ask(kind, fields);
        assert_eq!(reply.error(), None, "a request of kind {kind}");
        reply.body
    }

    /// Error number of a request that must fail.
    pub(crate) fn error(&mut self, kind: u8, fields: &[Field<'_>]) -> u32 {
        let reply = self.ask(kind, fields);
        reply.error().unwrap_or_else(|| panic!("a request of kind {kind} succeeded: {reply:?}"))
    }

    /// Negotiates the version. Returns the message size.
    pub(crate) fn version(&mut self, msize: u32) -> u32 {
        self.send(&message(VERSION, NO_TAG, &[Int(msize), Text("9P2000.L")]));
        let reply = self.reply();
        assert_eq!((reply.kind, reply.tag), (VERSION + 1, NO_TAG));
        assert_eq!(reply.body[4..], *b"\x08\x009P2000.L");
        u32::from_le_bytes(reply.body[..4].try_into().unwrap())
    }

    pub(crate) fn attach(&mut self, fid: u32) -> Vec<u8> {
        self.done(ATTACH, &[Int(fid), Int(NO_FID), Text("root"), Text(""), Int(0)])
    }

    /// Walks to a new fid. Returns the reply.
    pub(crate) fn walk(&mut self, fid: u32, new: u32, names: &[&str]) -> Reply {
        let mut fields = vec![Int(fid), Int(new), Short(names.len() as u16)];
        fields.extend(names.iter().map(|name| Text(name)));
        self.ask(WALK, &fields)
    }

    /// Walks from fid 0 to the last name, and opens it.
    pub(crate) fn open(&mut self, new: u32, names: &[&str], flags: u32) -> Vec<u8> {
        let reply = self.walk(0, new, names);
        assert_eq!(reply.body[..2], (names.len() as u16).to_le_bytes(), "{reply:?}");
        self.done(LOPEN, &[Int(new), Int(flags)])
    }

    pub(crate) fn read(&mut self, fid: u32, offset: u64, count: u32) -> Vec<u8> {
        let reply = self.ask(READ, &[Int(fid), Long(offset), Int(count)]);
        assert_eq!(reply.error(), None);
        reply.data().to_vec()
    }

    pub(crate) fn write(&mut self, fid: u32, offset: u64, bytes: &[u8]) -> Reply {
        self.ask(WRITE, &[Int(fid), Long(offset), Int(bytes.len() as u32), Raw(bytes)])
    }

    /// Names and offsets of an open directory, starting at an offset.
    pub(crate) fn list(&mut self, fid: u32, offset: u64, count: u32) -> Vec<(String, u64)> {
        let reply = self.ask(READDIR, &[Int(fid), Long(offset), Int(count)]);
        assert_eq!(reply.error(), None);
        let mut rest = reply.data();
        assert!(rest.len() <= count as usize);
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let next = u64::from_le_bytes(rest[13..21].try_into().unwrap());
            let end = 24 + usize::from(u16::from_le_bytes(rest[22..24].try_into().unwrap()));
            assert_eq!(rest[21], if rest[0] == 0x80 { 4 } else { 8 });
            entries.push((String::from_utf8(rest[24..end].to_vec()).unwrap(), next));
            rest = &rest[end..];
        }
        entries
    }

    pub(crate) fn clunk(&mut self, fid: u32) {
        self.done(CLUNK, &[Int(fid)]);
    }
}
