//! The sender's side of a cast from a node: what is cast, and its chunks, which the node reads when they are sent.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use platter_api::FillStatus;
use platter_image::{Error, ErrorKind, IoContext, Result};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::control::{Answer, CastNews, NodeCastRequest, read_line_from, unexpected};
use super::list::processes_at;
use platter_jobs::{ChunkSource, SessionDescription};

/// Longest time for a node to send a chunk.
const CHUNK_TIME: Duration = Duration::from_secs(120);

/// A version that a node reads for a cast, which ends when this is dropped.
pub struct NodeCast {
    description: SessionDescription,
    /// After an error, what follows on the connection is unknown: every later reader gets the same error.
    stream: Mutex<Stream>,
}

type Stream = std::result::Result<BufReader<UnixStream>, Failure>;
/// Kind and messages of an error.
type Failure = (ErrorKind, Vec<String>);

/// Lets the node in this directory, or another process there, prepare a cast. Returns when it holds all of the version. `on_filling` gets
/// its progress.
///
/// # Errors
/// `Missing` when no process answers there; that process's errors.
pub fn cast_at(
    dir: &Path,
    request: &NodeCastRequest,
    on_filling: &mut dyn FnMut(&FillStatus),
) -> Result<NodeCast> {
    let process = processes_at(dir)?.into_iter().next();
    let process = process.ok_or_else(|| Error::bug("no process among those that answer"))?;
    let mut stream = BufReader::new(process.cast(request)?);
    let planned = loop {
        match next_news(&mut stream)? {
            CastNews::Filling(status) => on_filling(&status),
            CastNews::Planned(planned) => break planned,
            other => return Err(unexpected(&Answer::Cast(other))),
        }
    };
    let (mut table, count) = (Vec::new(), planned.numbers()?);
    while table.len() < count {
        match next_news(&mut stream)? {
            CastNews::Table(part) if !part.is_empty() => table.extend(part),
            other => return Err(unexpected(&Answer::Cast(other))),
        }
    }
    let description = planned.with_table(&table)?;
    stream.get_ref().set_read_timeout(Some(CHUNK_TIME)).context(|| "preparing a connection".into())?;
    Ok(NodeCast { description, stream: Mutex::new(Ok(stream)) })
}

fn next_news(stream: &mut BufReader<UnixStream>) -> Result<CastNews> {
    match read_line_from::<Answer>(stream)?.or_error()? {
        Answer::Cast(news) => Ok(news),
        other => Err(unexpected(&other)),
    }
}

impl NodeCast {
    /// What is cast.
    pub fn description(&self) -> &SessionDescription {
        &self.description
    }

    fn read_from(&self, stream: &mut BufReader<UnixStream>, index: u32) -> Result<Arc<[u8]>> {
        let length = self.description.chunk_lengths.get(index as usize).copied();
        let length = length.ok_or_else(|| Error::bug(format!("there is no chunk {index}")))?;
        // What a node that has ended said before can still be read.
        let asked = stream.get_mut().write_all(&index.to_le_bytes());
        let said = hear_length(stream)?;
        if said != length {
            return Err(Error::corrupt(format!("chunk {index} has {said} bytes instead of {length}")));
        }
        asked.map_err(gone)?;
        let mut bytes = vec![0; length as usize];
        stream.read_exact(&mut bytes).map_err(gone)?;
        Ok(bytes.into())
    }
}

/// Uses the connection. The first error is that of all later uses.
fn with_open<T>(
    stream: &mut Stream,
    use_it: impl FnOnce(&mut BufReader<UnixStream>) -> Result<T>,
) -> Result<T> {
    let open = stream.as_mut().map_err(|(kind, messages)| Error::from_messages(*kind, messages.clone()))?;
    let used = use_it(open);
    if let Err(error) = &used {
        *stream = Err((error.kind(), error.messages()));
    }
    used
}

fn gone(error: io::Error) -> Error {
    let what = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the node does not send what it was asked for",
        _ => "the node has ended, and with it the cast",
    };
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::transient(what),
        _ => Error::transient(what).with_source(error),
    }
}

/// Reads the length of a chunk.
///
/// # Errors
/// Why the node sends none.
fn hear_length(stream: &mut BufReader<UnixStream>) -> Result<u32> {
    let mut said = [0; 4];
    stream.read_exact(&mut said).map_err(gone)?;
    match u32::from_le_bytes(said) {
        0 => Err(match read_line_from::<Answer>(stream)?.or_error() {
            Ok(other) => unexpected(&other),
            Err(error) => error,
        }),
        length => Ok(length),
    }
}

/// Checks that a node that is asked for nothing says nothing.
///
/// # Errors
/// Why it has ended.
fn check_silent(stream: &mut BufReader<UnixStream>) -> Result<()> {
    let peeked = recv(stream.get_ref(), &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    if stream.buffer().is_empty() && matches!(peeked, Err(Errno::AGAIN | Errno::INTR)) {
        return Ok(());
    }
    hear_length(stream)?;
    Err(Error::corrupt("the node sends a chunk that it was not asked for"))
}

impl ChunkSource for NodeCast {
    fn read(&self, index: u32) -> Result<Arc<[u8]>> {
        with_open(&mut self.stream.lock(), |stream| self.read_from(stream, index))
    }

    fn check(&self) -> Result<()> {
        // While a chunk is read, whoever reads it notices.
        let Some(mut stream) = self.stream.try_lock() else { return Ok(()) };
        with_open(&mut stream, check_silent)
    }
}
