//! The negotiation over a socket: reads options, writes replies, until both sides agree or the time is over.

use std::io::{self, Read, Write};
use std::time::Instant;

use platter_image::{Error, IoContext, Result};
use socket2::Socket;

use super::negotiate::{Agreed, Negotiation, Step};
use super::wire::{GREETING, OPTION_HEADER_BYTES, OptionHeader};
use crate::Exports;

/// Negotiates. `None`: the client said goodbye. Nothing is read that belongs to the first request.
///
/// # Errors
/// `Corrupt` when the client breaks the protocol; `Transient` when it hangs up, or is not done at the deadline; `Io`.
pub(super) fn shake_hands(
    socket: &Socket,
    exports: &dyn Exports,
    deadline: Instant,
) -> Result<Option<Agreed>> {
    write(socket, &GREETING)?;
    let mut flags = [0; 4];
    read(socket, &mut flags, deadline)?;
    let mut negotiation = Negotiation::new(exports, u32::from_be_bytes(flags))?;
    let (mut data, mut replies) = (Vec::new(), Vec::new());
    loop {
        let mut header = [0; OPTION_HEADER_BYTES];
        read(socket, &mut header, deadline)?;
        let OptionHeader { code, length } = OptionHeader::parse(&header)?;
        data.resize(length as usize, 0);
        read(socket, &mut data, deadline)?;
        replies.clear();
        let step = negotiation.handle(code, &data, &mut replies)?;
        write(socket, &replies)?;
        match step {
            Step::Continue => {}
            Step::Transmit(agreed) => return Ok(Some(agreed)),
            Step::End => return Ok(None),
        }
    }
}

fn read(mut socket: &Socket, mut bytes: &mut [u8], deadline: Instant) -> Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(too_slow());
        }
        socket.set_read_timeout(Some(left)).context(|| "limiting the time of a read".into())?;
        match socket.read(bytes) {
            Ok(0) => return Err(Error::transient("the client hung up before anything was agreed on")),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(too_slow()),
            Err(error) => return Err(Error::io("reading from the client", error)),
        }
    }
    Ok(())
}

fn write(mut socket: &Socket, bytes: &[u8]) -> Result<()> {
    match socket.write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(too_slow()),
        result => result.context(|| "writing to the client".into()),
    }
}

fn too_slow() -> Error {
    Error::transient("the client took too long to agree on anything")
}
