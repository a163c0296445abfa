//! `platter cat`.

use std::io::{self, Write};
use std::process::ExitCode;

use platter_browse::read_file;
use platter_jobs::{Result, StoreLocation};

use super::Outcome;
use crate::arguments::Cat;

pub(crate) fn run(store: &StoreLocation, options: &Cat) -> Outcome {
    let mut output = Pipe { inner: io::stdout().lock(), is_closed: false };
    let done: Result<u64> = read_file(store, &options.location, &mut output);
    // The reader may have closed the pipe (`| head`).
    if output.is_closed {
        return Ok(ExitCode::SUCCESS);
    }
    done?;
    Ok(ExitCode::SUCCESS)
}

/// Standard output, which notes that nobody reads it any more.
struct Pipe<'a> {
    inner: io::StdoutLock<'a>,
    is_closed: bool,
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes);
        self.is_closed |= written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
