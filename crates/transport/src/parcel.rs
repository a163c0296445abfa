//! Sends bytes and open files to another process, over a unix socket.
//!
//! Owns the frame: `length[8] descriptors[4] 0[4]`, little-endian, with the descriptors attached to its first byte, and then
//! the bytes. A receiver never holds more than the caller allows.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use platter_image::{Error, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

const HEADER_BYTES: usize = 16;
/// Maximum number of file descriptors in one parcel.
pub const PARCEL_DESCRIPTORS_MAX: usize = 16;

/// Bytes and open files.
#[derive(Debug, Default)]
pub struct Parcel {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The open files.
    pub descriptors: Vec<OwnedFd>,
}

impl Parcel {
    /// Sends the parcel.
    ///
    /// # Errors
    /// `Io`; `Transient` after the socket's write timeout.
    pub fn send(&self, to: &UnixStream) -> Result<()> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        header[8..12].copy_from_slice(&(self.descriptors.len() as u32).to_le_bytes());
        let descriptors: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PARCEL_DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(Error::bug("too many descriptors in a parcel"));
        }
        let sent = sendmsg(to, &[IoSlice::new(&header)], &mut control, SendFlags::NOSIGNAL);
        let sent = sent.map_err(|error| failed(error.into(), "sending to"))?;
        let mut to = to;
        let rest = to.write_all(&header[sent..]).and_then(|()| to.write_all(&self.bytes));
        rest.map_err(|error| failed(error, "sending to"))
    }

    /// Receives a parcel of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// `Transient` when the other process disconnects, or after the socket's read timeout; `Corrupt`; `Io`.
    pub fn receive(from: &UnixStream, bytes_max: usize) -> Result<Self> {
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PARCEL_DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header)];
        let received = recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
        let received = received.map_err(|error| failed(error.into(), "hearing from"))?.bytes;
        let descriptors: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        let mut from = from;
        from.read_exact(&mut header[received..]).map_err(|error| failed(error, "hearing from"))?;
        let (length, rest) = header.split_at(8);
        let length = length.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
        let count = rest[..4].try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX);
        if length > bytes_max as u64 || count as usize != descriptors.len() {
            return Err(Error::corrupt(format!("a parcel of {length} bytes and {count} descriptors")));
        }
        let mut bytes = vec![0; length as usize];
        from.read_exact(&mut bytes).map_err(|error| failed(error, "hearing from"))?;
        Ok(Self { bytes, descriptors })
    }
}

fn failed(error: io::Error, doing: &str) -> Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => Error::transient("the other process went away"),
        TimedOut | WouldBlock => Error::transient("the other process did not answer in time"),
        _ => Error::io(format!("{doing} the other process"), error),
    }
}
