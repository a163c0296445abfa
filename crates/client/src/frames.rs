//! One request for frames: sent, and its answer taken as it comes.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use std::time::{Duration, Instant};

use platter_image::frame::stream::{FrameStreamReader, FramesRequest};
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{BlockId, Error, Result};

use super::client::Client;

/// A frame must have come so long after the one before it, or after the request was answered.
const FRAME_TIME_MAX: Duration = Duration::from_secs(60);

/// Sends one request and takes its frames as they come, decoded and hashed; gives what was not found.
///
/// # Errors
/// What the origin says; `Transient` when it is away; `Corrupt` when it lies; what `take` says.
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
        // Before anything of it is given out, whoever sent it (design: verify).
        let (header, _) = decoder.decode(&stored, Verify::Hashes).map_err(within)?;
        take(&header, &stored).map_err(within)?;
        until.set(Instant::now() + FRAME_TIME_MAX);
    }
    let not_found = reader.not_found().unwrap_or_default().to_vec();
    // Only a connection whose answer was read to its end is used again, and to open one takes several times as long as the
    // way is. What comes of it does not matter.
    let _ = limited.read(&mut [0]);
    Ok(not_found)
}

/// A stream whose reads fail after some time: one that comes a byte now and then is as good as silent.
struct Limited<R> {
    stream: R,
    until: Rc<Cell<Instant>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until.get() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it comes too slowly"));
        }
        self.stream.read(buffer)
    }
}
