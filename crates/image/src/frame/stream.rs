//! The frame stream: how one machine requests frames from another by block ids, and how the frames are sent.
//! `docs/formats/frame-stream.md` has the layouts.
//!
//! It encodes and decodes streams, requests, and answers about needed blocks; it knows nothing of HTTP,
//! sockets or stores. A reader holds one record at a time and checks only lengths: the caller decodes each
//! frame and hashes its blocks before use (design: verify). It must never mention packs or offsets, which are
//! local to one machine.

use std::io::Read;

use super::format::{FrameHeader, HEADER_LENGTH};
use crate::{BlockId, Error, ErrorKind, Kind, Result, Score};

const STREAM_MAGIC: [u8; 4] = *b"PLfs";
const FORMAT_VERSION: u8 = 1;
/// Bytes of the head: magic, version, zeros.
const HEAD_LENGTH: usize = 8;
/// Bytes before the body of every record: type, zeros, length.
const RECORD_HEADER_LENGTH: usize = 8;
/// Bytes of a request before its ids: score, kind, flags.
const REQUEST_HEADER_LENGTH: usize = BlockId::LEN + 2;
/// The flag of a request that wants only the named blocks.
const EXACT: u8 = 1;

const FRAME: u8 = 1;
const END: u8 = 2;
const FAILURE: u8 = 3;

/// The most ids in one request for frames, and so the most ids reported as not found.
pub const REQUEST_IDS_MAX: usize = 4096;
/// The most bytes of a request for frames.
pub const REQUEST_LENGTH_MAX: usize = REQUEST_HEADER_LENGTH + REQUEST_IDS_MAX * BlockId::LEN;
/// The most ids in one question about needed blocks.
pub const NEED_IDS_MAX: usize = 65_536;
/// The most bytes of a stream that is the body of one upload request.
pub const UPLOAD_LENGTH_MAX: usize = 8 << 20;
/// The most bytes of a failure's message.
pub const FAILURE_WORDS_MAX: usize = 1024;

/// Appends the head of a stream.
pub fn write_head(out: &mut Vec<u8>) {
    out.extend_from_slice(&STREAM_MAGIC);
    out.extend_from_slice(&[FORMAT_VERSION, 0, 0, 0]);
}

/// Appends a stored frame: header and payload, at most [`super::STORED_LENGTH_MAX`] bytes.
pub fn write_frame(stored: &[u8], out: &mut Vec<u8>) {
    write_record(FRAME, stored, out);
}

/// Appends the end record: everything was sent except the blocks with these ids, at most [`REQUEST_IDS_MAX`],
/// which were not found.
pub fn write_end(not_found: &[BlockId], out: &mut Vec<u8>) {
    let not_found = &not_found[..not_found.len().min(REQUEST_IDS_MAX)];
    write_record_header(END, not_found.len() * BlockId::LEN, out);
    not_found.iter().for_each(|id| out.extend_from_slice(&id.0));
}

/// Appends a failure record, which ends the stream early. The error's sources are not sent: they describe the
/// sender's machine.
pub fn write_failure(error: &Error, out: &mut Vec<u8>) {
    let words = error.to_string();
    let ends = words.char_indices().map(|(at, character)| at + character.len_utf8());
    let words = &words[..ends.take_while(|end| *end <= FAILURE_WORDS_MAX).last().unwrap_or(0)];
    write_record_header(FAILURE, 1 + words.len(), out);
    out.push(error.kind().number());
    out.extend_from_slice(words.as_bytes());
}

fn write_record(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    write_record_header(kind, body.len(), out);
    out.extend_from_slice(body);
}

fn write_record_header(kind: u8, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&(length as u32).to_le_bytes());
}

/// Reads a stream, one frame at a time.
#[derive(Debug)]
pub struct FrameStreamReader<R> {
    from: R,
    /// How many more frames the stream may have.
    frames_left: usize,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Head,
    Records,
    Ended(Vec<BlockId>),
    Failed,
}

impl<R: Read> FrameStreamReader<R> {
    /// A reader of a stream with at most `frames_max` frames: the number of requested ids, because each frame
    /// contains at least one of them.
    pub fn new(from: R, frames_max: usize) -> Self {
        Self { from, frames_left: frames_max, state: State::Head }
    }

    /// Replaces `stored` by the next frame's stored bytes and returns its header; `None` at the end. The
    /// payload is not checked.
    ///
    /// # Errors
    /// `Transient` when the stream is truncated or cannot be read; `Corrupt` when it is not a frame stream or
    /// has too many frames; `Refused` when it has another version; the sender's error if it failed. After an
    /// error nothing more can be read.
    pub fn next_frame(&mut self, stored: &mut Vec<u8>) -> Result<Option<FrameHeader>> {
        stored.clear();
        if let State::Ended(_) = self.state {
            return Ok(None);
        }
        if self.state == State::Failed {
            return Err(Error::refused("a frame stream was read after an error"));
        }
        let began = self.state == State::Records;
        self.state = State::Failed;
        if !began {
            self.read_head()?;
        }
        let (kind, length) = self.read_record_header()?;
        match kind {
            FRAME => {
                let header = self.read_frame(length, stored)?;
                self.state = State::Records;
                Ok(Some(header))
            }
            END => {
                self.state = State::Ended(self.read_ids(length)?);
                Ok(None)
            }
            FAILURE => Err(self.read_failure(length)?),
            other => Err(corrupt(format!("unknown record type {other}"))),
        }
    }

    /// The requested ids that were not found; `None` before the end.
    pub fn not_found(&self) -> Option<&[BlockId]> {
        match &self.state {
            State::Ended(ids) => Some(ids),
            _ => None,
        }
    }

    /// The underlying reader.
    pub fn into_inner(self) -> R {
        self.from
    }

    fn read_head(&mut self) -> Result<()> {
        let mut head = [0; HEAD_LENGTH];
        self.fill(&mut head)?;
        if head[..4] != STREAM_MAGIC {
            return Err(corrupt(format!("wrong magic {:02x?}", &head[..4])));
        }
        if head[4] != FORMAT_VERSION {
            return Err(Error::refused(format!(
                "the peer sends frame streams of version {}, supported is version {FORMAT_VERSION}",
                head[4]
            )));
        }
        if head[5..] != [0; 3] { Err(corrupt("its head has unknown flags")) } else { Ok(()) }
    }

    fn read_record_header(&mut self) -> Result<(u8, usize)> {
        let mut header = [0; RECORD_HEADER_LENGTH];
        self.fill(&mut header)?;
        let [kind, zeros @ .., a, b, c, d] = header;
        if zeros != [0; 3] {
            return Err(corrupt("a record has unknown flags"));
        }
        Ok((kind, u32::from_le_bytes([a, b, c, d]) as usize))
    }

    fn read_frame(&mut self, length: usize, stored: &mut Vec<u8>) -> Result<FrameHeader> {
        if self.frames_left == 0 {
            return Err(corrupt("it has more frames than requested"));
        }
        self.frames_left -= 1;
        stored.resize(HEADER_LENGTH, 0);
        self.fill(stored)?;
        // From here on every length in the header, and their sum, is within its limit.
        let (_, stored_length) = FrameHeader::peek_lengths(stored)?;
        if stored_length != length {
            return Err(corrupt(format!(
                "a record of {length} bytes contains a frame of {stored_length} bytes"
            )));
        }
        stored.resize(stored_length, 0);
        self.fill(&mut stored[HEADER_LENGTH..])?;
        FrameHeader::parse(stored)
    }

    fn read_ids(&mut self, length: usize) -> Result<Vec<BlockId>> {
        if length > REQUEST_IDS_MAX * BlockId::LEN {
            return Err(corrupt(format!("{length} bytes of missing ids are too many")));
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        ids(&bytes)
    }

    fn read_failure(&mut self, length: usize) -> Result<Error> {
        if length == 0 || length > 1 + FAILURE_WORDS_MAX {
            return Err(corrupt(format!("a failure record of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        let kind = ErrorKind::from_number(bytes[0]);
        let kind = kind.ok_or_else(|| corrupt(format!("a failure of unknown kind {}", bytes[0])))?;
        // The text will be printed, so replace control characters.
        let words: String = String::from_utf8_lossy(&bytes[1..])
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        Ok(Error::new(kind, format!("the peer reported: {words}")))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.from
            .read_exact(bytes)
            .map_err(|source| Error::transient("the frame stream ended early").with_source(source))
    }
}

/// A request for the frames with some blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramesRequest {
    /// The recipe that names the blocks, or whose pages they are.
    pub score: Score,
    /// What the ids name: data or pages.
    pub kind: Kind,
    /// Only the named blocks are wanted: a frame with many other blocks is not sent as stored.
    pub exact: bool,
    /// The wanted ids, at most [`REQUEST_IDS_MAX`].
    pub ids: Vec<BlockId>,
}

impl FramesRequest {
    /// Encodes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(REQUEST_HEADER_LENGTH + self.ids.len() * BlockId::LEN);
        out.extend_from_slice(&self.score.0.0);
        out.extend_from_slice(&[self.kind as u8, if self.exact { EXACT } else { 0 }]);
        self.ids.iter().for_each(|id| out.extend_from_slice(&id.0));
        out
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// `Corrupt` when it is not a valid request.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: String| Error::corrupt(format!("invalid request for frames: {what}"));
        let Some((head, rest)) = bytes.split_at_checked(REQUEST_HEADER_LENGTH) else {
            return Err(corrupt(format!("{} bytes, at least {REQUEST_HEADER_LENGTH} expected", bytes.len())));
        };
        if rest.len() > REQUEST_IDS_MAX * BlockId::LEN {
            return Err(corrupt(format!("more than {REQUEST_IDS_MAX} ids")));
        }
        let kind = Kind::from_u8(head[BlockId::LEN]).filter(|kind| matches!(kind, Kind::Data | Kind::Page));
        let kind = kind.ok_or_else(|| corrupt(format!("unknown kind {}", head[BlockId::LEN])))?;
        let exact = match head[BlockId::LEN + 1] {
            0 => false,
            EXACT => true,
            flags => return Err(corrupt(format!("unknown flags {flags:#04x}"))),
        };
        Ok(Self { score: Score(id(&head[..BlockId::LEN])), kind, exact, ids: ids(rest)? })
    }
}

/// The ids in `bytes`, one after another.
///
/// # Errors
/// `Corrupt` when the last one is truncated.
pub fn ids(bytes: &[u8]) -> Result<Vec<BlockId>> {
    if !bytes.len().is_multiple_of(BlockId::LEN) {
        return Err(Error::corrupt(format!(
            "{} bytes are not a whole number of ids of {} bytes",
            bytes.len(),
            BlockId::LEN
        )));
    }
    Ok(bytes.chunks_exact(BlockId::LEN).map(id).collect())
}

fn id(bytes: &[u8]) -> BlockId {
    let mut id = BlockId([0; BlockId::LEN]);
    id.0.copy_from_slice(bytes);
    id
}

/// Encodes the answer about needed blocks: one bit per id in order, the lowest bit of a byte first; the last
/// byte is padded with zeros.
pub fn need_to_bytes(needed: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    needed.chunks(8).map(byte).collect()
}

/// Decodes the answer for `count` ids.
///
/// # Errors
/// `Corrupt` when its length is wrong, or bits beyond the last id are set.
pub fn need_from_bytes(bytes: &[u8], count: usize) -> Result<Vec<bool>> {
    let bit = |n: usize| bytes[n / 8] >> (n % 8) & 1 == 1;
    if bytes.len() != count.div_ceil(8) || (count..bytes.len() * 8).any(bit) {
        return Err(Error::corrupt(format!(
            "an invalid answer of {} bytes about {count} blocks",
            bytes.len()
        )));
    }
    Ok((0..count).map(bit).collect())
}

fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("frame stream: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameDecoder, STORED_LENGTH_MAX, Verify};

    const FRAME_BYTES: &[u8] = include_bytes!("../../golden/frame-v1.bin");
    const GOLDEN: &[u8] = include_bytes!("../../golden/frame-stream-v1.bin");
    const GOLDEN_REQUEST: &[u8] = include_bytes!("../../golden/frames-request-v1.bin");

    fn not_found() -> [BlockId; 2] {
        [BlockId([0x11; 32]), BlockId([0x22; 32])]
    }

    fn stream() -> Vec<u8> {
        let mut out = Vec::new();
        write_head(&mut out);
        write_frame(FRAME_BYTES, &mut out);
        write_frame(FRAME_BYTES, &mut out);
        write_end(&not_found(), &mut out);
        out
    }

    /// Reads to the end or the first error. Returns the frames, and the ids that were not found.
    fn read(bytes: &[u8], frames_max: usize) -> Result<(Vec<Vec<u8>>, Vec<BlockId>)> {
        let mut reader = FrameStreamReader::new(bytes, frames_max);
        let (mut frames, mut stored) = (Vec::new(), Vec::new());
        while reader.next_frame(&mut stored)?.is_some() {
            frames.push(stored.clone());
            assert!(stored.capacity() <= 2 * STORED_LENGTH_MAX);
        }
        assert_eq!(reader.next_frame(&mut stored)?, None);
        Ok((frames, reader.not_found().unwrap().to_vec()))
    }

    fn kind_of(bytes: &[u8]) -> ErrorKind {
        read(bytes, 2).unwrap_err().kind()
    }

    /// Golden vectors: these bytes are frozen.
    #[test]
    fn bytes_are_frozen() {
        assert_eq!(stream(), GOLDEN);
        let (frames, missing) = read(GOLDEN, 2).unwrap();
        assert_eq!((frames.len(), missing), (2, not_found().to_vec()));
        FrameDecoder::new().unwrap().decode(&frames[0], Verify::Hashes).unwrap();
        let request = FramesRequest {
            score: Score(BlockId([7; 32])),
            kind: Kind::Page,
            exact: true,
            ids: not_found().to_vec(),
        };
        assert_eq!(request.to_bytes(), GOLDEN_REQUEST);
        assert_eq!(FramesRequest::parse(GOLDEN_REQUEST).unwrap(), request);
    }

    #[test]
    fn a_truncated_stream_is_an_error() {
        for length in 0..GOLDEN.len() {
            assert_eq!(kind_of(&GOLDEN[..length]), ErrorKind::Transient, "cut at {length}");
        }
    }

    /// Every bit outside the frames' payloads and the list of missing ids is checked.
    #[test]
    fn damage_is_detected() {
        let first_frame = HEAD_LENGTH + RECORD_HEADER_LENGTH;
        let list_end = FrameHeader::peek_lengths(FRAME_BYTES).unwrap().0;
        for bit in 0..(first_frame + list_end) * 8 {
            let mut bad = GOLDEN.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = read(&bad, 2).unwrap_err();
            let expected = match bit / 8 {
                4 => ErrorKind::Refused,
                _ => ErrorKind::Corrupt,
            };
            assert_eq!(error.kind(), expected, "bit {bit}: {error}");
        }
    }

    #[test]
    fn more_frames_than_asked_for_are_corrupt() {
        assert!(read(GOLDEN, 1).unwrap_err().to_string().contains("more frames"));
        assert!(read(GOLDEN, 0).is_err());
    }

    /// Large lengths with nothing behind them must not make the reader allocate.
    #[test]
    fn lengths_are_checked_before_anything_is_allocated() {
        for (kind, length) in
            [(FRAME, u32::MAX), (END, u32::MAX), (END, 33), (FAILURE, 0), (FAILURE, u32::MAX)]
        {
            let mut bytes = Vec::new();
            write_head(&mut bytes);
            bytes.extend_from_slice(&[kind, 0, 0, 0]);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.resize(bytes.len() + 64, 0);
            assert_eq!(kind_of(&bytes), ErrorKind::Corrupt, "type {kind}, {length} bytes");
        }
    }

    #[test]
    fn a_failure_record_round_trips() {
        for kind in (1..=6).filter_map(ErrorKind::from_number) {
            let mut bytes = Vec::new();
            write_head(&mut bytes);
            write_frame(FRAME_BYTES, &mut bytes);
            write_failure(&Error::new(kind, "pack\n\u{1b}[31m gone"), &mut bytes);
            let error = read(&bytes, 2).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert_eq!(error.to_string(), "the peer reported: pack  [31m gone");
        }
        let mut bytes = Vec::new();
        write_head(&mut bytes);
        write_failure(&Error::bug("é".repeat(FAILURE_WORDS_MAX)), &mut bytes);
        assert_eq!(kind_of(&bytes), ErrorKind::Bug);
    }

    #[test]
    fn nothing_is_read_after_an_error() {
        let mut bytes = GOLDEN.to_vec();
        bytes[HEAD_LENGTH] = 9;
        let mut reader = FrameStreamReader::new(&bytes[..], 9);
        let mut stored = Vec::new();
        for _ in 0..2 {
            assert!(reader.next_frame(&mut stored).is_err());
            assert_eq!(reader.not_found(), None);
        }
    }

    #[test]
    fn requests_are_bounded() {
        let request = |count| FramesRequest {
            score: Score(BlockId([0; 32])),
            kind: Kind::Data,
            exact: false,
            ids: vec![BlockId([1; 32]); count],
        };
        let most = request(REQUEST_IDS_MAX).to_bytes();
        assert_eq!(most.len(), REQUEST_LENGTH_MAX);
        assert_eq!(FramesRequest::parse(&most).unwrap().ids.len(), REQUEST_IDS_MAX);
        assert!(FramesRequest::parse(&request(REQUEST_IDS_MAX + 1).to_bytes()).is_err());
        assert!(FramesRequest::parse(&most[..most.len() - 1]).is_err());
        assert!(FramesRequest::parse(&most[..REQUEST_HEADER_LENGTH - 1]).is_err());
        for kind in [0, Kind::Version as u8, 4, 255] {
            let mut bad = most.clone();
            bad[BlockId::LEN] = kind;
            assert!(FramesRequest::parse(&bad).is_err(), "kind {kind}");
        }
        for flags in 0..=255 {
            let mut other = most.clone();
            other[BlockId::LEN + 1] = flags;
            match FramesRequest::parse(&other) {
                Ok(request) => assert!(flags <= EXACT && request.exact == (flags == EXACT)),
                Err(error) => assert!(flags > EXACT && error.kind() == ErrorKind::Corrupt, "flags {flags}"),
            }
        }
    }

    #[test]
    fn need_is_one_bit_per_id() {
        let needed: Vec<bool> = (0..19).map(|n| n % 3 == 0).collect();
        let bytes = need_to_bytes(&needed);
        assert_eq!(bytes, [0b0100_1001, 0b1001_0010, 0b0000_0100]);
        assert_eq!(need_from_bytes(&bytes, 19).unwrap(), needed);
        assert_eq!(need_from_bytes(&[], 0).unwrap(), Vec::<bool>::new());
        for (bytes, count) in [(&bytes[..2], 19), (&bytes[..], 16), (&bytes[..], 18), (&[0x80][..], 7)] {
            assert!(need_from_bytes(bytes, count).is_err(), "{count} in {bytes:x?}");
        }
    }
}
