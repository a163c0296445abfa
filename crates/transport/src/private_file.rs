//! Files that only their owner may read: keys and hashes of secrets.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use platter_image::{Error, IoContext, Result};
use rustix::fs::OFlags;

/// Opens a file for writing, and makes it if it is missing.
///
/// # Errors
/// `Io`.
pub fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    open_regular(&mut options, path)
}

/// The contents of a file, at most so many bytes of it; `None` if it does not exist.
///
/// # Errors
/// `Io`.
pub fn read(path: &Path, length_max: u64) -> Result<Option<Vec<u8>>> {
    let file = match open_regular(OpenOptions::new().read(true), path) {
        Err(error) if is_missing(&error) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    let read = file.take(length_max).read_to_end(&mut bytes);
    read.context(|| format!("{}: reading it", path.display()))?;
    Ok(Some(bytes))
}

/// Opens a regular file. Does not wait if somebody has put a pipe there.
fn open_regular(options: &mut OpenOptions, path: &Path) -> Result<File> {
    let opened = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let opened = opened.and_then(|file| match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file")),
    });
    opened.context(|| format!("{}: opening it", path.display()))
}

fn is_missing(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::NotFound)
}

/// Replaces the contents of a file atomically: after a crash it has the old contents or the new ones.
///
/// # Errors
/// `Io`.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let doing = |what: &'static str| move || format!("{}: {what}", path.display());
    let mut file = open(new)?;
    file.set_len(0)
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .context(doing("writing it anew"))?;
    fs::rename(new, path).context(doing("giving it its name"))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).context(doing("syncing its directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        assert_eq!(read(&file, 9).unwrap(), None);
        replace(&file, b"secret").unwrap();
        assert_eq!(read(&file, 3).unwrap().unwrap(), b"sec");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        assert!(read(&pipe, 9).is_err() && open(&pipe).is_err());
    }
}
