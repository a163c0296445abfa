//! One request or reply as a line of JSON on a socket.

use std::io::ErrorKind::{ConnectionReset, TimedOut, WouldBlock};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use platter_image::{Error, IoContext, Result};
use serde::{Deserialize, Serialize};

/// Most bytes of a line.
const LINE_LENGTH_MAX: u64 = 1 << 20;

pub(crate) fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// # Errors
/// `Transient` when nothing arrives in time, or the other process ends; `Corrupt` when the line is invalid; `Io`.
pub(crate) fn read_line<T: for<'de> Deserialize<'de>>(stream: &UnixStream) -> Result<T> {
    read_line_from(&mut BufReader::new(stream))
}

/// The same, for a line that others may follow.
///
/// # Errors
/// As [`read_line`].
pub(crate) fn read_line_from<T: for<'de> Deserialize<'de>>(stream: &mut impl BufRead) -> Result<T> {
    let mut line = Vec::new();
    let read = stream.take(LINE_LENGTH_MAX).read_until(b'\n', &mut line);
    match read {
        Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => {
            return Err(Error::transient("no data arrived from a control socket in time"));
        }
        Err(error) if error.kind() == ConnectionReset => return Err(ended()),
        read => read.context(|| "reading from a control socket".to_owned())?,
    };
    if line.last() != Some(&b'\n') && (line.len() as u64) < LINE_LENGTH_MAX {
        return Err(ended());
    }
    serde_json::from_slice(&line)
        .map_err(|error| Error::corrupt(format!("a control socket: {error}: another version of Platter?")))
}

/// The other process ended before it replied. No stored data is wrong.
pub(super) fn ended() -> Error {
    Error::transient("the process that serves the disk ended before it answered: try again")
}
