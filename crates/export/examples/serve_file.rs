//! Serves a plain file over NBD, to compare the server's speed with that of other servers.
//!
//! `serve_file FILE SOCKET [write]` runs until it is killed. It does not report holes.

#![allow(clippy::print_stderr, reason = "a measuring program")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use platter_export::Exports;
use platter_export::nbd::{NbdEvent, NbdOptions, NbdServer};
use platter_image::{Error, Extent, IoContext, Result};
use platter_transport::Listener;
use platter_vdisk::{Allocation, BlockDevice};

struct FileDevice {
    file: File,
    length: u64,
    is_writable: bool,
}

impl BlockDevice for FileDevice {
    fn length(&self) -> u64 {
        self.length
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset).context(|| format!("reading at {offset}"))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).context(|| format!("writing at {offset}"))
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        const ZEROES: &[u8] = &[0; 1 << 16];
        let mut at = range.offset;
        while at < range.end() {
            let length = ZEROES.len().min((range.end() - at) as usize);
            self.write(&ZEROES[..length], at)?;
            at += length as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.file.sync_data().context(|| "syncing".into())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Data);
        Ok(())
    }
}

struct OneFile(Arc<FileDevice>);

impl Exports for OneFile {
    fn list(&self) -> Vec<String> {
        vec!["file".into()]
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        if name != "file" {
            return Err(Error::missing(format!("there is no {name}")));
        }
        Ok(Arc::clone(&self.0) as Arc<dyn BlockDevice>)
    }
}

fn serve(file: &Path, socket: &Path, is_writable: bool) -> Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .write(is_writable)
        .open(file)
        .context(|| format!("opening {}", file.display()))?;
    let length = file.metadata().context(|| "reading the file's length".into())?.len();
    let device = FileDevice { file, length, is_writable };
    let on_event = |event: &NbdEvent<'_>| {
        if !matches!(event, NbdEvent::Connected { .. } | NbdEvent::Opened { .. }) {
            eprintln!("{event:?}");
        }
    };
    let options = NbdOptions { on_event: Arc::new(on_event), ..NbdOptions::default() };
    let listener = Listener::unix(socket)?;
    NbdServer::serve(listener, Arc::new(OneFile(Arc::new(device))), options, &AtomicBool::new(false))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [file, socket] => serve(Path::new(file), Path::new(socket), false),
        [file, socket, "write"] => serve(Path::new(file), Path::new(socket), true),
        _ => Err(Error::refused("usage: serve_file FILE SOCKET [write]")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
