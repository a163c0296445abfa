//! Frame streams and requests for frames: reading at once and in small pieces has the same result, and writing them
//! again gives the same bytes.

#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use platter_image::frame::STORED_LENGTH_MAX;
use platter_image::frame::stream::{
    FrameStreamReader, FramesRequest, REQUEST_IDS_MAX, need_from_bytes, need_to_bytes, write_end,
    write_frame, write_head,
};
use platter_image::{ErrorKind, Result};

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let frames_max = usize::from(*choice);
    let whole = outcome(bytes, frames_max);
    assert_eq!(outcome(Pieces { rest: bytes, length: frames_max % 7 + 1 }, frames_max), whole);
    if let Ok(written) = whole {
        assert!(bytes.starts_with(&written), "written again, it is another stream");
    }
    if let Ok(request) = FramesRequest::parse(bytes) {
        assert_eq!(request.to_bytes(), bytes);
    }
    if let Ok(needed) = need_from_bytes(bytes, frames_max) {
        assert_eq!(need_to_bytes(&needed), bytes);
    }
});

/// The stream, written again, or the error of reading it.
fn outcome(from: impl Read, frames_max: usize) -> Result<Vec<u8>, ErrorKind> {
    let mut reader = FrameStreamReader::new(from, frames_max);
    let (mut stored, mut written, mut frames) = (Vec::new(), Vec::new(), 0);
    write_head(&mut written);
    loop {
        match reader.next_frame(&mut stored) {
            Ok(Some(header)) => {
                frames += 1;
                assert!(frames <= frames_max);
                assert!(stored.len() == header.stored_length() && stored.len() <= STORED_LENGTH_MAX);
                write_frame(&stored, &mut written);
            }
            Ok(None) => break,
            Err(error) => {
                // The other side may report a bug; this side must not have one.
                let told = error.to_string().starts_with("the other side failed");
                assert!(told || error.kind() != ErrorKind::Bug, "input broke an invariant: {error}");
                assert!(reader.next_frame(&mut stored).is_err(), "read on after an error");
                return Err(error.kind());
            }
        }
    }
    let not_found = reader.not_found().expect("ended");
    assert!(not_found.len() <= REQUEST_IDS_MAX);
    write_end(not_found, &mut written);
    Ok(written)
}

/// A reader that returns a few bytes at a time.
struct Pieces<'a> {
    rest: &'a [u8],
    length: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.length.min(buffer.len());
        self.rest.read(&mut buffer[..length])
    }
}
