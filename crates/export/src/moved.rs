//! A session that was stopped between two requests and moves from one server to the next.
//!
//! Owns the part that all protocols share: the connection, its number, and bytes that were read ahead. The protocol's
//! own state travels as text.

use std::os::fd::OwnedFd;

use platter_image::{Error, IoContext, Result};
use platter_transport::Parcel;
use socket2::Socket;

/// Most bytes of a state: a 9P session has up to 32,768 fids, and the names of 256 directories.
const STATE_BYTES_MAX: usize = 256 << 20;
/// Most bytes that were read ahead: the largest request, and the size of one read.
const UNREAD_BYTES_MAX: usize = (32 << 20) + (128 << 10);
/// Number, length of the state.
const HEADER_BYTES: usize = 12;

/// The state from which a session continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The protocol's state, in the protocol's own form.
    pub state: String,
    /// Bytes of requests that were read but not started.
    pub unread: Vec<u8>,
}

/// A session that was stopped between two requests. No request is in flight.
#[derive(Debug)]
pub struct MovedSession {
    /// Number of its connection.
    pub(crate) connection: u64,
    pub(crate) socket: Socket,
    pub(crate) rest: Rest,
}

impl MovedSession {
    /// Returns a copy for another process.
    ///
    /// # Errors
    /// `Io` when there are too many open files.
    pub fn to_parcel(&self) -> Result<Parcel> {
        let socket = self.socket.try_clone().context(|| "duplicating a connection".into())?;
        Ok(Parcel { bytes: encode(self.connection, &self.rest), descriptors: vec![OwnedFd::from(socket)] })
    }

    /// Receives the result of [`MovedSession::to_parcel`].
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_parcel(parcel: Parcel) -> Result<Self> {
        let (connection, rest) = decode(&parcel.bytes)?;
        let [socket] = <[OwnedFd; 1]>::try_from(parcel.descriptors)
            .map_err(|_| Error::corrupt("a moved session must have exactly one connection"))?;
        Ok(Self { connection, socket: socket.into(), rest })
    }
}

fn encode(connection: u64, rest: &Rest) -> Vec<u8> {
    let length = (rest.state.len() as u32).to_le_bytes();
    [&connection.to_le_bytes()[..], &length, rest.state.as_bytes(), &rest.unread].concat()
}

/// Parses the bytes of a moved session.
///
/// # Errors
/// `Corrupt`.
pub fn decode(bytes: &[u8]) -> Result<(u64, Rest)> {
    let corrupt = || Error::corrupt("malformed session state: sent by another version of Platter?");
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(corrupt)?;
    let (connection, length) = header.split_at(8);
    let connection = u64::from_le_bytes(connection.try_into().map_err(|_| corrupt())?);
    let length = u32::from_le_bytes(length.try_into().map_err(|_| corrupt())?) as usize;
    let (state, unread) = rest.split_at_checked(length).ok_or_else(corrupt)?;
    if state.len() > STATE_BYTES_MAX || unread.len() > UNREAD_BYTES_MAX {
        return Err(corrupt());
    }
    let state = str::from_utf8(state).map_err(|_| corrupt())?.to_owned();
    Ok((connection, Rest { state, unread: unread.to_vec() }))
}

/// Serializes a protocol's state.
///
/// # Errors
/// `Bug` when it cannot be text.
pub(crate) fn to_text(state: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(state).map_err(|error| Error::bug(format!("a session's state: {error}")))
}

/// Parses the result of [`to_text`].
///
/// # Errors
/// `Corrupt`.
pub(crate) fn from_text<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    let read = serde_json::from_str(text);
    read.map_err(|error| Error::corrupt(format!("a session's state: {error}: another version of Platter?")))
}
