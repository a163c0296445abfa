//! Sends one request for frames, and passes on its frames as they arrive.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use std::time::{Duration, Instant};

use platter_image::frame::stream::{FrameStreamReader, FramesRequest};
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{BlockId, Error, ErrorKind, Result};

use super::client::Client;
use super::store_keys;

/// Longest time between two frames, or between the start of the response and its first frame.
const FRAME_TIME_MAX: Duration = Duration::from_secs(60);

/// Sends one request and passes its frames to `take` as they arrive, decoded and hashed. Returns the ids that were not
/// found.
///
/// # Errors
/// The origin's errors; `Transient` when it is down; `Corrupt` when it sends wrong data; the errors of `take`.
pub(super) fn fetch(
    client: &Client,
    asked: &FramesRequest,
    take: &mut dyn FnMut(&FrameHeader, &[u8]) -> Result<()>,
) -> Result<Vec<BlockId>> {
    let stream = client.post_for_stream("/api/v1/frames", &asked.to_bytes())?;
    let until = Rc::new(Cell::new(Instant::now() + FRAME_TIME_MAX));
    let mut limited = Limited { stream, until: until.clone() };
    let mut reader = FrameStreamReader::new(&mut limited, asked.ids.len());
    let mut decoder = FrameDecoder::new()?;
    let mut stored = Vec::new();
    let within = |error: Error| error.within(format!("{}: fetching frames", client.name()));
    while reader.next_frame(&mut stored).map_err(within)?.is_some() {
        // Verified before anything of it is passed on, whoever sent it (design: verify).
        let header = verified(client, &mut decoder, &stored).map_err(within)?;
        take(&header, &stored).map_err(within)?;
        until.set(Instant::now() + FRAME_TIME_MAX);
    }
    let not_found = reader.not_found().unwrap_or_default().to_vec();
    // A connection is only reused if its response was read to the end, and opening a new one takes several round trips.
    // The result of this read does not matter.
    let _ = limited.read(&mut [0]);
    Ok(not_found)
}

/// Decodes and hashes a frame. The first one of an encrypted store needs its keys.
fn verified(client: &Client, decoder: &mut FrameDecoder, stored: &[u8]) -> Result<FrameHeader> {
    let mut decode = || decoder.decode(stored, Verify::Hashes).map(|(header, _)| header);
    match decode() {
        Err(error) if error.kind() == ErrorKind::Refused => {
            store_keys::obtain(client, FrameHeader::parse(stored)?.domain)?;
            decode()
        }
        decoded => decoded,
    }
}

/// A stream whose reads fail after a deadline, because a stream of single bytes with long pauses is as good as silent.
struct Limited<R> {
    stream: R,
    until: Rc<Cell<Instant>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until.get() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "frames arrive too slowly"));
        }
        self.stream.read(buffer)
    }
}
