//! Files that only their owner reads: keys and hashes of secrets.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use platter_image::{IoContext, Result};

/// Opens a file to write, making it when it is missing.
///
/// # Errors
/// `Io`.
pub(crate) fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path).context(|| format!("{}: opening it", path.display()))
}

/// Writes a file anew, in one step that a crash cannot halve: what was there stays, or all of this is there.
///
/// # Errors
/// `Io`.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let doing = |what: &'static str| move || format!("{}: {what}", path.display());
    let mut file = open(&new)?;
    file.set_len(0)
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .context(doing("writing it anew"))?;
    fs::rename(&new, path).context(doing("giving it its name"))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).context(doing("syncing its directory"))
}
