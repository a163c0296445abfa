//! An NBD client for measurements: sends several requests at once, and reads replies as they arrive.
//!
//! Owns the connection and the unanswered requests. Its constants are its own and not those of the server's code. It
//! negotiates structured replies, as QEMU and the kernel do.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use platter_image::{Error, Extent, IoContext, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, SockAddr, Socket, Type};

/// The command of a request, with its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
    WriteZeroes = 6,
}

/// An answered request.
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    /// The bytes that were read.
    pub(crate) bytes: Vec<u8>,
    /// 0 is success.
    pub(crate) error: u32,
    pub(crate) latency: Duration,
}

struct Pending {
    command: Command,
    range: Extent,
    bytes: Vec<u8>,
    error: u32,
    sent: Instant,
}

/// A connection to one disk.
pub(crate) struct Client {
    input: BufReader<Socket>,
    output: Socket,
    pending: BTreeMap<u64, Pending>,
    spare: Vec<Vec<u8>>,
    pub(crate) length: u64,
    pub(crate) is_writable: bool,
}

const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
/// Most bytes of an option's reply.
const OPTION_REPLY_MAX: u32 = 64 << 10;

impl Client {
    /// Connects to `nbd+unix:///NAME?socket=PATH`, `nbd://ADDRESS:PORT/NAME`, or the path of a unix socket for the
    /// export with the empty name.
    pub(crate) fn connect(uri: &str) -> Result<Self> {
        let wrong = || Error::refused(format!("{uri}: unsupported NBD address"));
        let (address, name) = if let Some(rest) = uri.strip_prefix("nbd+unix:///") {
            let (name, path) = rest.split_once("?socket=").ok_or_else(wrong)?;
            (SockAddr::unix(Path::new(path)).context(|| uri.to_owned())?, name)
        } else if let Some(rest) = uri.strip_prefix("nbd://") {
            let (address, name) = rest.split_once('/').unwrap_or((rest, ""));
            let address: std::net::SocketAddr = address.parse().map_err(|_| wrong())?;
            (address.into(), name)
        } else {
            (SockAddr::unix(Path::new(uri)).context(|| uri.to_owned())?, "")
        };
        let context = || format!("connecting to {uri}");
        let socket = Socket::new(Domain::from(i32::from(address.family())), Type::STREAM, None);
        let socket = socket.context(context)?;
        socket.connect(&address).context(context)?;
        if address.is_ipv4() || address.is_ipv6() {
            socket.set_tcp_nodelay(true).context(context)?;
        }
        let output = socket.try_clone().context(context)?;
        let input = BufReader::with_capacity(256 << 10, socket);
        let (pending, spare) = (BTreeMap::new(), Vec::new());
        let mut client = Self { input, output, pending, spare, length: 0, is_writable: false };
        client.negotiate(name)?;
        Ok(client)
    }

    fn negotiate(&mut self, name: &str) -> Result<()> {
        if self.take::<16>()? != *b"NBDMAGICIHAVEOPT" {
            return Err(Error::corrupt("not an NBD server, or a very old one"));
        }
        self.take::<2>()?;
        self.send(&3_u32.to_be_bytes())?;
        // If the server refuses, its replies are simple ones.
        let _ = self.option(OPTION_STRUCTURED_REPLY, &[])?;
        let wish = [&(name.len() as u32).to_be_bytes(), name.as_bytes(), &[0, 0]].concat();
        let answer = self.option(OPTION_GO, &wish)?;
        let info = answer.map_err(|why| Error::refused(format!("the server refuses {name:?}: {why}")))?;
        let info: [u8; 12] =
            info.try_into().map_err(|_| Error::corrupt("the server did not send the disk's length"))?;
        self.length = info[2..10].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        self.is_writable = info[11] & 2 == 0;
        Ok(())
    }

    /// Sends an option. Returns the server's information about the disk, or its reason for refusing.
    fn option(&mut self, code: u32, data: &[u8]) -> Result<std::result::Result<Vec<u8>, String>> {
        let length = (data.len() as u32).to_be_bytes();
        self.send(&[b"IHAVEOPT", &code.to_be_bytes()[..], &length, data].concat())?;
        let mut told = Vec::new();
        loop {
            self.take::<12>()?;
            let kind = self.u32()?;
            let length = self.u32()?;
            if length > OPTION_REPLY_MAX {
                return Err(Error::corrupt(format!("an option's reply of {length} bytes")));
            }
            let mut data = vec![0; length as usize];
            self.fill(&mut data)?;
            match kind {
                REPLY_ACK => return Ok(Ok(told)),
                // Information of kind 0 contains length and flags.
                REPLY_INFO if data.starts_with(&[0, 0]) => told = data,
                _ if kind >> 31 == 1 => return Ok(Err(String::from_utf8_lossy(&data).into_owned())),
                _ => {}
            }
        }
    }

    /// Sends a request. The payload of a write consists of bytes 7.
    pub(crate) fn request(&mut self, cookie: u64, command: Command, range: Extent) -> Result<()> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        let payload = matches!(command, Command::Read | Command::Write);
        bytes.resize(if payload { range.length as usize } else { 0 }, 7);
        let mut header = [0; 28];
        header[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        header[6..8].copy_from_slice(&(command as u16).to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..24].copy_from_slice(&range.offset.to_be_bytes());
        header[24..].copy_from_slice(&(range.length as u32).to_be_bytes());
        let sent = Instant::now();
        self.send(&header)?;
        if command == Command::Write {
            self.send(&bytes)?;
            bytes.clear();
        }
        self.pending.insert(cookie, Pending { command, range, bytes, error: 0, sent });
        Ok(())
    }

    /// Number of unanswered requests.
    pub(crate) fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Waits up to `time` for a reply or a part of one.
    pub(crate) fn has_reply_within(&self, time: Duration) -> Result<bool> {
        if !self.input.buffer().is_empty() {
            return Ok(true);
        }
        let mut descriptors = [PollFd::new(&self.output, PollFlags::IN)];
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut descriptors, Some(&time)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::io("waiting for the server", error.into())),
        }
    }

    /// Waits for the next reply.
    pub(crate) fn reply(&mut self) -> Result<Reply> {
        loop {
            let (cookie, is_last) = match self.u32()? {
                0x6744_6698 => (self.simple_reply()?, true),
                0x668e_33ef => self.chunk()?,
                magic => return Err(Error::corrupt(format!("a reply begins with {magic:#x}"))),
            };
            if is_last {
                let Pending { bytes, error, sent, .. } = self.pending.remove(&cookie).ok_or_else(unasked)?;
                return Ok(Reply { cookie, bytes, error, latency: sent.elapsed() });
            }
        }
    }

    /// Recycles a reply's buffer.
    pub(crate) fn reuse(&mut self, bytes: Vec<u8>) {
        self.spare.push(bytes);
    }

    fn simple_reply(&mut self) -> Result<u64> {
        let error = self.u32()?;
        let cookie = self.u64()?;
        let pending = self.pending.get_mut(&cookie).ok_or_else(unasked)?;
        pending.error = error;
        if error == 0 && pending.command == Command::Read {
            read(&mut self.input, &mut pending.bytes)?;
        }
        Ok(cookie)
    }

    /// Receives a chunk. Returns its cookie, and whether it is the reply's last.
    fn chunk(&mut self) -> Result<(u64, bool)> {
        let (flags, kind) = (self.u16()?, self.u16()?);
        let cookie = self.u64()?;
        let length = self.u32()?;
        match kind {
            0 => {}
            1 if length >= 8 => {
                let offset = self.u64()?;
                let pending = self.pending.get_mut(&cookie).ok_or_else(unasked)?;
                read(&mut self.input, part(pending, offset, length - 8)?)?;
            }
            2 if length == 12 => {
                let (offset, length) = (self.u64()?, self.u32()?);
                let pending = self.pending.get_mut(&cookie).ok_or_else(unasked)?;
                part(pending, offset, length)?.fill(0);
            }
            _ if kind >> 15 == 1 && (4..OPTION_REPLY_MAX).contains(&length) => {
                let error = self.u32()?;
                self.fill(&mut vec![0; length as usize - 4])?;
                self.pending.get_mut(&cookie).ok_or_else(unasked)?.error = error;
            }
            _ => return Err(Error::corrupt(format!("a chunk of kind {kind} and {length} bytes"))),
        }
        Ok((cookie, flags & 1 == 1))
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        (&self.output).write_all(bytes).context(|| "writing to the server".into())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        read(&mut self.input, bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.take()?))
    }
}

fn read(input: &mut BufReader<Socket>, bytes: &mut [u8]) -> Result<()> {
    input.read_exact(bytes).context(|| "reading from the server".into())
}

/// Returns the part of the buffer for a chunk's bytes.
fn part(pending: &mut Pending, offset: u64, length: u32) -> Result<&mut [u8]> {
    let start = offset.checked_sub(pending.range.offset).and_then(|start| usize::try_from(start).ok());
    let part = start.and_then(|start| pending.bytes.get_mut(start..)?.get_mut(..length as usize));
    part.ok_or_else(|| Error::corrupt(format!("{length} bytes at {offset}, which were not requested")))
}

fn unasked() -> Error {
    Error::corrupt("a reply to an unknown request")
}
