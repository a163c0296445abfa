//! The negotiation over a socket: reads options, writes replies, until both sides agree or the time is over.

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

/// Negotiates; with `tls` there is nothing without it. `None`: the client said goodbye. Nothing is read that belongs to
/// the first request, nor anything in the clear that comes after the wish for TLS.
///
/// # Errors
/// `Corrupt` when the client breaks the protocol; `Refused` when it has no good certificate; `Transient` when it hangs up,
/// or is not done at the deadline; `Io`.
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
                let tls = tls.ok_or_else(|| Error::bug("TLS was agreed on and there is none"))?;
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

/// Some bytes of `peer`, which is over `socket`; never none.
///
/// # Errors
/// `Transient` when the client hangs up, or nothing has come at the deadline; `Io`.
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
        socket.set_read_timeout(Some(left)).context(|| "limiting the time of a read".into())?;
        match peer.receive(bytes) {
            Ok(0) => return Err(Error::transient("the client hung up before anything was agreed on")),
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
    Error::transient("the client took too long to agree on anything")
}
