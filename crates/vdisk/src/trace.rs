//! A trace: a log of the requests to a disk with their times (`docs/formats/trace.md`). Encodes and decodes
//! it.
//!
//! It knows neither files nor clocks. A truncated trace is valid up to the last whole batch; any other damage
//! is an error. Lengths found in the input are checked before memory is allocated for them.

use std::io::Read;

use platter_image::fields::{array_at, u64_at};
use platter_image::{BlockId, Error, Extent, IoContext, Result, Score};
use twox_hash::XxHash3_64;

/// The most requests in a trace: 160 MiB, in the file and in memory.
pub const TRACE_REQUESTS_MAX: u64 = 4 << 20;
/// The most requests in a batch: 640 KiB.
pub(crate) const BATCH_REQUESTS_MAX: usize = 16 << 10;

const MAGIC: [u8; 4] = *b"PLtr";
const FORMAT_VERSION: u16 = 1;
const HEADER_LENGTH: usize = 64;
const BATCH_HEADER_LENGTH: usize = 16;
const REQUEST_LENGTH: usize = 40;
const CHECKSUM_LENGTH: usize = 8;

/// Which disk was traced, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHeader {
    /// The version that was served when recording began.
    pub base_score: Score,
    /// Length of the disk in bytes.
    pub disk_length: u64,
    /// The wall-clock time when recording began, for display. All other times are relative to it.
    pub began_unix_ms: i64,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Zero a range, or discard it.
    WriteZeroes,
    /// Make earlier writes durable.
    Flush,
}

/// One request as the disk received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedRequest {
    /// Its kind.
    pub kind: RequestKind,
    /// It was answered with an error.
    pub failed: bool,
    /// Its range in bytes; 0 bytes at offset 0 for a flush.
    pub range: Extent,
    /// Arrival, in nanoseconds since recording began.
    pub start_ns: u64,
    /// Service time in nanoseconds.
    pub service_ns: u64,
}

impl TracedRequest {
    /// When it was answered, in nanoseconds since recording began.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.service_ns)
    }
}

/// Encodes a trace: a header, batches, and an end marker.
pub(crate) struct Encoder {
    /// Checksum of the previous part. It seeds the next checksum, so a removed or repeated batch is detected.
    chain: u64,
}

impl Encoder {
    /// Begins a trace and appends its header to `out`.
    pub(crate) fn new(header: &TraceHeader, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&header.disk_length.to_le_bytes());
        out.extend_from_slice(&header.base_score.0.0);
        out.extend_from_slice(&header.began_unix_ms.to_le_bytes());
        let mut encoder = Self { chain: 0 };
        encoder.seal(start, out);
        debug_assert_eq!(out.len() - start, HEADER_LENGTH);
        encoder
    }

    /// Appends a batch; `lost` requests were not recorded since the batch before. A batch without requests
    /// marks the end.
    pub(crate) fn batch(&mut self, requests: &[TracedRequest], lost: u64, out: &mut Vec<u8>) {
        debug_assert!(requests.len() <= BATCH_REQUESTS_MAX);
        let start = out.len();
        out.extend_from_slice(&(requests.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&lost.to_le_bytes());
        for request in requests {
            let kind = match request.kind {
                RequestKind::Read => 1,
                RequestKind::Write => 2,
                RequestKind::WriteZeroes => 3,
                RequestKind::Flush => 4,
            };
            out.extend_from_slice(&[kind, u8::from(request.failed), 0, 0, 0, 0, 0, 0]);
            let range = request.range;
            for number in [range.offset, range.length, request.start_ns, request.service_ns] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        self.seal(start, out);
    }

    fn seal(&mut self, start: usize, out: &mut Vec<u8>) {
        self.chain = XxHash3_64::oneshot_with_seed(self.chain, &out[start..]);
        out.extend_from_slice(&self.chain.to_le_bytes());
    }
}

/// A decoded trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Which disk was traced.
    pub header: TraceHeader,
    /// The requests in order of arrival.
    pub requests: Vec<TracedRequest>,
    /// Requests that were not recorded because the buffer or the trace was full.
    pub lost: u64,
    /// The trace has its end marker. If not, the last requests are missing.
    pub is_whole: bool,
}

impl Trace {
    /// Decodes a trace.
    ///
    /// # Errors
    /// `Corrupt` when it is not a trace, is damaged, or has more than [`TRACE_REQUESTS_MAX`] requests;
    /// `Refused` when its format version is not supported; `Io`.
    pub fn read(mut from: impl Read) -> Result<Self> {
        let mut bytes = Vec::new();
        append(&mut from, HEADER_LENGTH, &mut bytes)?;
        let header = decode_header(&bytes)?;
        let mut chain = u64_at(&bytes, HEADER_LENGTH - CHECKSUM_LENGTH);
        let mut trace = Self { header, requests: Vec::new(), lost: 0, is_whole: false };
        while !trace.is_whole && trace.read_batch(&mut from, &mut bytes, &mut chain)? {}
        if append(&mut from, 1, &mut bytes)? {
            return Err(corrupt("data after the end marker"));
        }
        // Batches hold requests in the order of their answers.
        trace.requests.sort_by_key(|request| request.start_ns);
        Ok(trace)
    }

    /// Reads the next batch. Returns `false` if the input ends before the batch does.
    fn read_batch(&mut self, from: &mut impl Read, bytes: &mut Vec<u8>, chain: &mut u64) -> Result<bool> {
        bytes.clear();
        if !append(from, BATCH_HEADER_LENGTH, bytes)? {
            return Ok(false);
        }
        let (head, lost) = (u64_at(bytes, 0), u64_at(bytes, 8));
        let count = usize::try_from(head).ok().filter(|count| *count <= BATCH_REQUESTS_MAX);
        let count = count.ok_or_else(|| corrupt("a batch has an impossible length"))?;
        if self.requests.len() + count > TRACE_REQUESTS_MAX as usize {
            return Err(corrupt("too many requests"));
        }
        if !append(from, count * REQUEST_LENGTH + CHECKSUM_LENGTH, bytes)? {
            return Ok(false);
        }
        let end = bytes.len() - CHECKSUM_LENGTH;
        *chain = XxHash3_64::oneshot_with_seed(*chain, &bytes[..end]);
        if *chain != u64_at(bytes, end) {
            return Err(corrupt("checksum mismatch"));
        }
        let (records, _) = bytes[BATCH_HEADER_LENGTH..end].as_chunks::<REQUEST_LENGTH>();
        for record in records {
            self.requests.push(decode_request(record, self.header.disk_length)?);
        }
        self.lost = self.lost.saturating_add(lost);
        self.is_whole = count == 0;
        Ok(true)
    }
}

fn decode_header(bytes: &[u8]) -> Result<TraceHeader> {
    if bytes.len() < HEADER_LENGTH || bytes[..4] != MAGIC {
        return Err(corrupt("not a trace"));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != FORMAT_VERSION {
        return Err(Error::refused(format!(
            "the trace has format version {version}, this Platter supports version {FORMAT_VERSION}"
        )));
    }
    let end = HEADER_LENGTH - CHECKSUM_LENGTH;
    if XxHash3_64::oneshot_with_seed(0, &bytes[..end]) != u64_at(bytes, end) {
        return Err(corrupt("header checksum mismatch"));
    }
    Ok(TraceHeader {
        disk_length: u64_at(bytes, 8),
        base_score: Score(BlockId(array_at(bytes, 16))),
        began_unix_ms: u64_at(bytes, 48) as i64,
    })
}

fn decode_request(bytes: &[u8; REQUEST_LENGTH], disk_length: u64) -> Result<TracedRequest> {
    let kind = match bytes[0] {
        1 => RequestKind::Read,
        2 => RequestKind::Write,
        3 => RequestKind::WriteZeroes,
        4 => RequestKind::Flush,
        unknown => return Err(corrupt(&format!("unknown request kind {unknown}"))),
    };
    let range = Extent::new(u64_at(bytes, 8), u64_at(bytes, 16));
    let ends = range.offset.checked_add(range.length);
    if bytes[1] > 1 || bytes[2..8] != [0; 6] || ends.is_none_or(|end| end > disk_length) {
        return Err(corrupt(&format!(
            "invalid request for {} bytes at offset {}",
            range.length, range.offset
        )));
    }
    let (start_ns, service_ns) = (u64_at(bytes, 24), u64_at(bytes, 32));
    Ok(TracedRequest { kind, failed: bytes[1] == 1, range, start_ns, service_ns })
}

/// Appends the next `length` bytes of `from`, or fewer at its end. Returns whether all were there.
fn append(from: &mut impl Read, length: usize, bytes: &mut Vec<u8>) -> Result<bool> {
    let count = from.take(length as u64).read_to_end(bytes).context(|| "reading a trace".into())?;
    Ok(count == length)
}

fn corrupt(what: &str) -> Error {
    Error::corrupt(format!("trace: {what}"))
}

#[cfg(test)]
mod tests {
    use platter_image::{ErrorKind, Kind};
    use proptest::prelude::*;

    use super::*;

    const HEADER: TraceHeader =
        TraceHeader { base_score: Score(BlockId([2; 32])), disk_length: 512 * 9, began_unix_ms: 3 };

    fn request(kind: RequestKind, offset: u64, length: u64, start_ns: u64) -> TracedRequest {
        let range = Extent::new(offset, length);
        TracedRequest { kind, failed: kind == RequestKind::Write, range, start_ns, service_ns: 7 }
    }

    /// Two batches and an end marker; the third request arrived first.
    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&HEADER, &mut bytes);
        let first = [request(RequestKind::Read, 512, 4096, 20), request(RequestKind::Flush, 0, 0, 30)];
        encoder.batch(&first, 5, &mut bytes);
        let second = [request(RequestKind::Write, 0, 512, 10), request(RequestKind::WriteZeroes, 1, 2, 40)];
        encoder.batch(&second, 0, &mut bytes);
        encoder.batch(&[], 1, &mut bytes);
        bytes
    }

    #[test]
    fn the_format_is_frozen_and_requests_are_in_order_of_arrival() {
        let bytes = sample();
        let golden = BlockId::of(Kind::Data, &bytes).to_string();
        assert_eq!(golden, GOLDEN, "the format is frozen: a change needs a new version");
        let trace = Trace::read(&bytes[..]).unwrap();
        let starts: Vec<u64> = trace.requests.iter().map(|request| request.start_ns).collect();
        assert_eq!(
            (trace.header, trace.lost, trace.is_whole, starts),
            (HEADER, 6, true, vec![10, 20, 30, 40])
        );
        assert_eq!(trace.requests[1], request(RequestKind::Read, 512, 4096, 20));
        assert_eq!(trace.requests[3], request(RequestKind::WriteZeroes, 1, 2, 40));
    }

    const GOLDEN: &str = "040548d9735efe7901aa66586a334acf42e69d79f2779a17542519387ba2a1f6";

    #[test]
    fn a_truncated_trace_is_valid_up_to_its_last_whole_batch() {
        let bytes = sample();
        let batch = BATCH_HEADER_LENGTH + 2 * REQUEST_LENGTH + CHECKSUM_LENGTH;
        for end in 0..bytes.len() {
            let trace = Trace::read(&bytes[..end]);
            match end {
                0..HEADER_LENGTH => assert_eq!(trace.unwrap_err().kind(), ErrorKind::Corrupt),
                _ => {
                    let trace = trace.unwrap();
                    assert_eq!(trace.requests.len(), 2 * ((end - HEADER_LENGTH) / batch), "{end}");
                    assert!(!trace.is_whole);
                }
            }
        }
    }

    #[test]
    fn a_missing_batch_or_data_after_the_end_is_corrupt() {
        let bytes = sample();
        let batch = BATCH_HEADER_LENGTH + 2 * REQUEST_LENGTH + CHECKSUM_LENGTH;
        let without = [&bytes[..HEADER_LENGTH], &bytes[HEADER_LENGTH + batch..]].concat();
        assert_eq!(Trace::read(&without[..]).unwrap_err().kind(), ErrorKind::Corrupt);
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Trace::read(&longer[..]).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_request_past_the_end_is_corrupt_and_a_later_format_is_refused() {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&HEADER, &mut bytes);
        encoder.batch(&[request(RequestKind::Read, 4096, 513, 0)], 0, &mut bytes);
        assert_eq!(Trace::read(&bytes[..]).unwrap_err().kind(), ErrorKind::Corrupt);
        bytes[4] = 2;
        assert_eq!(Trace::read(&bytes[..]).unwrap_err().kind(), ErrorKind::Refused);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), flip in any::<prop::sample::Index>()) {
            let _ = Trace::read(&bytes[..]);
            let mut sample = sample();
            let at = flip.index(sample.len());
            sample[at] ^= 1;
            // A changed count may point past the end; the trace then looks truncated.
            prop_assert!(Trace::read(&sample[..]).map_or(true, |trace| !trace.is_whole));
        }
    }
}
