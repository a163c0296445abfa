//! Reads a version for a sender of this machine (`platter cast --node`), which asks over the control socket: fills the cache with the
//! whole disk, plans its chunks, and sends those that the sender asks for.
//!
//! No chunk has a block that the version does not need: the cache also holds blocks that others may not read. The disk stays pinned,
//! and its frames stay as they were planned, until the sender has gone.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use platter_api::FillStatus;
use platter_image::recipe::PageSource;
use platter_image::{
    BlockId, BlockPlace, Error, ErrorKind, FrameAddress, FrameIndex, FrameSource, IoContext, Lease, Result,
};
use platter_records::Resolved;

use super::control::{Answer, CastNews, NodeCastRequest, Planned, table_of, write_line};
use super::fills::HeldDisk;
use super::served::Served;
use platter_fetch::{HeldFrames, StoreLocation};
use platter_jobs::{ChunkSource, Others, SessionDescription, check_audience_of_cast, describe_cast};

/// Interval of reports while the cache is filled.
const NEWS_EVERY: Duration = Duration::from_millis(500);
/// Interval of checks whether this process is to end.
const LOOK: Duration = Duration::from_millis(500);
/// Longest time for the sender to take a line or a chunk.
const TAKE_TIME: Duration = Duration::from_secs(60);
/// How often a cast is planned: each time, frames that turn out to be damaged are fetched again.
const ROUNDS_MAX: u32 = 64;

/// Answers a request for a cast, until the sender has gone.
///
/// # Errors
/// `Missing` when there is no such version, or a block is nowhere; `Refused` without an origin and a cache, when more machines could read
/// the cast than the origin allows, or when the cache cannot hold the disk; `Transient` when the origin is down and something is
/// missing, or this process is to end.
pub(super) fn answer(served: &Arc<Served>, request: &NodeCastRequest, stream: &UnixStream) -> Result<Answer> {
    let resolved = allowed(served, request)?;
    stream.set_write_timeout(Some(TAKE_TIME)).context(|| "preparing a connection".into())?;
    let disk = served.fills.hold(resolved.score)?;
    let mut rounds = ROUNDS_MAX;
    loop {
        fill(served, &disk, &request.version, stream)?;
        let frames = disk.frames();
        rounds -= 1;
        match send(served, &frames, (&resolved, request.segment_data_max), stream) {
            // The cache has dropped what turned out to be damaged.
            Err(Failed::Planning(error)) if error.kind() == ErrorKind::Transient && rounds > 0 => {}
            Err(Failed::Planning(error) | Failed::Sending(error)) => return Err(error),
            Ok(()) => return Ok(Answer::Cast(CastNews::Ended)),
        }
    }
}

/// Resolves the version, if it may be cast.
fn allowed(served: &Served, request: &NodeCastRequest) -> Result<Resolved> {
    let StoreLocation::Remote(origin) = served.request().place.store() else {
        return Err(Error::refused(
            "the process there reads no origin, but a store of this machine: cast with --store",
        ));
    };
    check_audience_of_cast(served.store().domain()?, &origin.server, request.has_key, request.readable)?;
    served.opener.sources.resolve(&request.version)
}

/// Makes the cache hold all of the disk, and tells the sender how far that is.
fn fill(served: &Served, disk: &HeldDisk<'_>, version: &str, stream: &UnixStream) -> Result<()> {
    let mut told = None;
    let filled = disk.fill(&mut |status| {
        check_goes_on(served)?;
        if told.is_none_or(|told: Instant| told.elapsed() >= NEWS_EVERY) {
            told = Some(Instant::now());
            say(stream, CastNews::Filling(status.clone()))?;
        }
        Ok(())
    });
    filled.map_err(|error| {
        let FillStatus { blocks, held, .. } = disk.status();
        let is_lack = matches!(error.kind(), ErrorKind::Missing | ErrorKind::Transient);
        match blocks {
            _ if served.stop().load(Ordering::Relaxed) || !is_lack => error,
            0 => error.within(format!("the node lacks pages of the recipe of {version}")),
            _ if held < blocks => {
                error.within(format!("the node lacks {} of the {blocks} blocks of {version}", blocks - held))
            }
            _ => error,
        }
    })
}

/// The frames of a disk that was filled, as long as the node is not to end.
struct Filled<'a> {
    served: &'a Served,
    frames: &'a HeldFrames,
}

impl FrameSource for Filled<'_> {
    fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
        self.frames.lease(id)
    }
}

impl FrameIndex for Filled<'_> {
    fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
        check_goes_on(self.served)?;
        self.frames.locate(id)?.ok_or_else(|| dropped(id)).map(Some)
    }

    fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
        self.frames.read_frame(address, stored)
    }
}

impl PageSource for Filled<'_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        check_goes_on(self.served)?;
        self.frames
            .page(id)
            .map_err(|error| if error.kind() == ErrorKind::Missing { dropped(id) } else { error })
    }
}

/// The error of a frame that another reader has found damaged since the disk was filled: it is fetched again.
fn dropped(id: &BlockId) -> Error {
    Error::transient(format!("the cache has dropped block {id}, which was damaged"))
}

/// Why a version was not sent.
enum Failed {
    /// Nothing was said about the plan.
    Planning(Error),
    Sending(Error),
}

/// Plans the chunks, and sends them as long as the sender asks.
fn send(
    served: &Served,
    frames: &HeldFrames,
    (resolved, segment_data_max): (&Resolved, u64),
    stream: &UnixStream,
) -> std::result::Result<(), Failed> {
    let frames = Filled { served, frames };
    let planned = describe_cast(&frames, resolved, segment_data_max, Others::Never);
    let (description, chunks) = planned.map_err(Failed::Planning)?;
    let send = || {
        say(stream, CastNews::Planned(Planned::of(&description)))?;
        table_of(&description).into_iter().try_for_each(|part| say(stream, CastNews::Table(part)))?;
        send_chunks(served, &description, &chunks, stream)
    };
    send().map_err(Failed::Sending)
}

fn send_chunks(
    served: &Served,
    description: &SessionDescription,
    chunks: &dyn ChunkSource,
    mut stream: &UnixStream,
) -> Result<()> {
    stream.set_read_timeout(Some(LOOK)).context(|| "preparing a connection".into())?;
    loop {
        match send_chunk(served, description, chunks, stream) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                // The line with the error follows.
                let _ = stream.write_all(&0_u32.to_le_bytes());
                return Err(error);
            }
        }
    }
}

/// Sends the chunk that the sender asks for next. Returns false when it has gone.
fn send_chunk(
    served: &Served,
    description: &SessionDescription,
    chunks: &dyn ChunkSource,
    mut stream: &UnixStream,
) -> Result<bool> {
    check_goes_on(served)?;
    let Some(index) = next_index(served, stream)? else { return Ok(false) };
    if index as usize >= description.chunk_lengths.len() {
        return Err(Error::refused(format!("the cast has no chunk {index}")));
    }
    let bytes = chunks.read(index)?;
    let sent = stream.write_all(&(bytes.len() as u32).to_le_bytes()).and_then(|()| stream.write_all(&bytes));
    Ok(sent.is_ok())
}

/// Waits for the number of a chunk; `None` when the sender has gone.
fn next_index(served: &Served, mut stream: &UnixStream) -> Result<Option<u32>> {
    let (mut number, mut filled) = ([0; 4], 0);
    while filled < number.len() {
        match stream.read(&mut number[filled..]) {
            Ok(0) => return Ok(None),
            Ok(read) => filled += read,
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {
                check_goes_on(served)?;
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(u32::from_le_bytes(number)))
}

fn check_goes_on(served: &Served) -> Result<()> {
    match served.stop().load(Ordering::Relaxed) {
        true => Err(Error::transient("the node is being ended, and with it the cast")),
        false => Ok(()),
    }
}

fn say(stream: &UnixStream, news: CastNews) -> Result<()> {
    write_line(stream, &Answer::Cast(news))
        .map_err(|error| Error::transient("the sender has gone").with_source(error))
}
