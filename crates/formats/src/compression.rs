//! Compressed streams.

use std::io::{self, Read};

use platter_image::Error;
use zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

/// Memory of the decoder of xz: enough for its highest level.
const XZ_MEMORY_KIB: u32 = 128 << 10;
const TOO_MUCH_MEMORY: &str = "the compressed stream needs more than 128 MiB of memory (`zstd --long` above 27, or a large dictionary of xz): \
                               unpack it with its own program, and give Platter the disk, also through a pipe (`-`)";
/// Bytes of compressed data that are read at once.
const INPUT_LENGTH: usize = 128 << 10;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// gzip (RFC 1952), also several members.
    Gzip,
    /// zstd (RFC 8878), also several frames.
    Zstd,
    /// xz, also several streams.
    Xz,
}

impl Compression {
    /// Each with the suffix of its files, and with the magic at the start of its streams.
    const ALL: [(Self, &'static str, &'static [u8]); 3] = [
        (Self::Gzip, "gz", b"\x1f\x8b\x08"),
        (Self::Zstd, "zst", b"\x28\xb5\x2f\xfd"),
        (Self::Xz, "xz", b"\xfd7zXZ\0"),
    ];

    /// The compression that a suffix stands for.
    pub(crate) fn of_suffix(suffix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| *known == suffix).map(|(compression, ..)| compression)
    }

    /// The compression of a stream that begins with these bytes.
    pub(crate) fn of_start(bytes: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(.., magic)| bytes.starts_with(magic))
            .map(|(compression, ..)| compression)
    }

    /// The decompressed stream.
    pub fn decompress<'s>(self, stream: Box<dyn Read + 's>) -> Box<dyn Read + 's> {
        let stream = io::BufReader::with_capacity(INPUT_LENGTH, stream);
        match self {
            Self::Gzip => Box::new(Judged(flate2::bufread::MultiGzDecoder::new(stream))),
            Self::Zstd => Box::new(Judged(Zstd::new(stream))),
            Self::Xz => Box::new(Judged(lzma_rust2::XzReader::new_mem_limit(stream, true, XZ_MEMORY_KIB))),
        }
    }
}

/// A decompressed stream whose damage is an error of kind `Corrupt`. Errors of the system stay as they are.
struct Judged<R>(R);

impl<R: Read> Read for Judged<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use io::ErrorKind::{InvalidData, InvalidInput, Other, OutOfMemory, UnexpectedEof};
        self.0.read(buffer).map_err(|error| {
            let is_carried = matches!(error.get_ref(), Some(inner) if inner.is::<Error>());
            let is_system = error.raw_os_error().is_some();
            let judged = match error.kind() {
                _ if is_carried || is_system => return error,
                OutOfMemory => Error::refused(TOO_MUCH_MEMORY),
                InvalidData | InvalidInput | Other | UnexpectedEof => {
                    Error::corrupt("the compressed stream is damaged")
                }
                _ => return error,
            };
            io::Error::other(judged.with_source(error))
        })
    }
}

fn zstd_error(code: usize) -> io::Error {
    let name = get_error_name(code);
    // The library exports no numbers of errors.
    let kind = match name.contains("too much memory") {
        true => io::ErrorKind::OutOfMemory,
        false => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, name)
}

/// A decompressed zstd stream. Its window is at most 128 MiB, the limit of the library.
struct Zstd<R> {
    stream: R,
    context: DCtx<'static>,
    input: Vec<u8>,
    /// The part of `input` that was not decompressed yet.
    left: std::ops::Range<usize>,
    /// Whether a frame has begun and not ended.
    is_inside: bool,
}

impl<R: Read> Zstd<R> {
    fn new(stream: R) -> Self {
        Self { stream, context: DCtx::create(), input: vec![0; INPUT_LENGTH], left: 0..0, is_inside: false }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut is_at_end = false;
            if self.left.is_empty() {
                let read = self.stream.read(&mut self.input)?;
                self.left = 0..read;
                is_at_end = read == 0;
            }
            let mut input = InBuffer::around(&self.input[self.left.clone()]);
            let mut output = OutBuffer::around(&mut *buffer);
            let hint = self.context.decompress_stream(&mut output, &mut input).map_err(zstd_error)?;
            let (used, written) = (input.pos(), output.pos());
            self.left.start += used;
            // After the last frame, an empty input begins no further one.
            if used > 0 || written > 0 {
                self.is_inside = hint != 0;
            }
            match written {
                0 if is_at_end && self.is_inside => return Err(io::ErrorKind::UnexpectedEof.into()),
                0 if !is_at_end && !buffer.is_empty() => {}
                written => return Ok(written),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::{ErrorKind, IoContext};
    use std::io::Write;

    #[test]
    fn a_damaged_stream_is_corrupt() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&[7; 5000]).unwrap();
        let gzip = gzip.finish().unwrap();
        let read = |compression: Compression, bytes: Vec<u8>| {
            let mut out = Vec::new();
            let read = compression.decompress(Box::new(io::Cursor::new(bytes))).read_to_end(&mut out);
            read.context(|| "unpacking".to_owned())
        };
        assert_eq!(read(Compression::Gzip, gzip.clone()).unwrap(), 5000);
        let mut changed = gzip.clone();
        let last = changed.len() - 6;
        changed[last] ^= 1;
        let streams = [
            (Compression::Gzip, gzip[..gzip.len() / 2].to_vec()),
            (Compression::Gzip, changed),
            (Compression::Gzip, vec![1; 100]),
            (Compression::Zstd, b"\x28\xb5\x2f\xfd none".to_vec()),
            (Compression::Xz, b"\xfd7zXZ\0 is not a stream of xz at all".to_vec()),
            (Compression::Xz, b"\xfd7z".to_vec()),
        ];
        for (compression, bytes) in streams {
            let error = read(compression, bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{compression:?}: {}", error.with_causes());
        }
    }

    #[test]
    fn an_error_of_the_system_is_no_damage() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(5))
            }
        }
        for (compression, ..) in Compression::ALL {
            let read = compression.decompress(Box::new(Failing)).read(&mut [0; 10]);
            assert_eq!(read.context(|| "unpacking".to_owned()).unwrap_err().kind(), ErrorKind::Io);
        }
    }
}
