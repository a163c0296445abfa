//! The negotiation over a socket: reads options and writes replies, until both sides agree or the deadline passes.

use std::io::{self, IoSlice};
use std::time::Instant;

use platter_image::{Error, IoContext, Result};
use socket2::Socket;

use super::negotiate::{Agreed, Negotiation, Step};
use super::stream::Stream;
use super::tls::NbdTls;
use super::wire::{GREETING, OPTION_HEADER_BYTES, OptionHeader};
use crate::Exports;
use crate::peer::Peer;

/// Negotiates. With `tls`, TLS is mandatory. Returns `None` if the client ended the negotiation. Reads nothing beyond
/// the negotiation, and no plaintext after the client's request for TLS.
///
/// # Errors
/// `Corrupt` when the client violates the protocol; `Refused` when it has no valid certificate; `Transient` when it
/// disconnects or misses the deadline; `Io`.
pub(super) fn shake_hands(
    stream: &Stream,
    exports: &dyn Exports,
    tls: Option<&NbdTls>,
    deadline: Instant,
) -> Result<Option<Agreed>> {
    write(stream, &GREETING)?;
    let mut flags = [0; 4];
    read(stream, &mut flags, deadline)?;
    let mut negotiation = Negotiation::new(exports, u32::from_be_bytes(flags))?;
    if tls.is_some() {
        negotiation.require_tls();
    }
    let (mut data, mut replies) = (Vec::new(), Vec::new());
    loop {
        let mut header = [0; OPTION_HEADER_BYTES];
        read(stream, &mut header, deadline)?;
        let OptionHeader { code, length } = OptionHeader::parse(&header)?;
        data.resize(length as usize, 0);
        read(stream, &mut data, deadline)?;
        replies.clear();
        let step = negotiation.handle(code, &data, &mut replies)?;
        write(stream, &replies)?;
        match step {
            Step::Continue => {}
            Step::StartTls => {
                let tls = tls.ok_or_else(|| Error::bug("TLS was agreed on but is not configured"))?;
                stream.start_tls(tls, deadline)?;
            }
            Step::Transmit(agreed) => return Ok(Some(agreed)),
            Step::End => return Ok(None),
        }
    }
}

fn read(stream: &Stream, mut bytes: &mut [u8], deadline: Instant) -> Result<()> {
    while !bytes.is_empty() {
        let count = receive_until(stream.socket(), stream, bytes, deadline)?;
        bytes = &mut bytes[count..];
    }
    Ok(())
}

/// Reads at least one byte from `peer`, which uses `socket`.
///
/// # Errors
/// `Transient` when the client disconnects or misses the deadline; `Io`.
pub(super) fn receive_until(
    socket: &Socket,
    peer: &impl Peer,
    bytes: &mut [u8],
    deadline: Instant,
) -> Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(too_slow());
        }
        socket.set_read_timeout(Some(left)).context(|| "setting the read timeout".into())?;
        match peer.receive(bytes) {
            Ok(0) => return Err(Error::transient("the client disconnected during the negotiation")),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(too_slow()),
            Err(error) => return Err(Error::io("reading from the client", error)),
        }
    }
}

fn write(stream: &Stream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.send_slices(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(too_slow()),
            Err(error) => return Err(Error::io("writing to the client", error)),
        }
    }
    Ok(())
}

pub(super) fn too_slow() -> Error {
    Error::transient("the client took too long to negotiate")
}
