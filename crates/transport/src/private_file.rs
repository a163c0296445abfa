//! Files that only their owner may read: keys and hashes of secrets.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use platter_image::{IoContext, Result};

/// Opens a file for writing, and makes it if it is missing.
///
/// # Errors
/// `Io`.
pub fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path).context(|| format!("{}: opening it", path.display()))
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
