//! The newest version of each image that this machine has accepted, in one file beside the trusted keys. So nobody can make the
//! machine go back to an older version that was signed once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_records::{ImageName, StoreId};
use platter_transport::private_file;
use rustix::fs::{FlockOperation, flock};

use crate::trusted_keys::read_text;

/// Name of the file.
const NAME: &str = "newest-seen.json";
/// Maximum length of the file in bytes: room for some 100,000 images.
const LENGTH_MAX: u64 = 32 << 20;

/// The file.
#[derive(Clone, Debug)]
pub(crate) struct NewestSeen {
    path: PathBuf,
}

/// The number of the newest version, by store and image: `STORE IMAGE`.
pub(crate) type Numbers = BTreeMap<String, u64>;

/// The key of an image.
pub(crate) fn entry(store: StoreId, image: &ImageName) -> String {
    format!("{store} {image}")
}

impl NewestSeen {
    /// The file in that directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self { path: directory.join(NAME) }
    }

    /// Records that a version was accepted, durably. Returns the number of a newer version that was accepted before; then nothing
    /// is recorded.
    ///
    /// # Errors
    /// `Corrupt` when the file is damaged; `Io`.
    pub(crate) fn accept(&self, store: StoreId, image: &ImageName, number: u64) -> Result<Option<u64>> {
        let lock = private_file::open(&self.path.with_extension("lock"))?;
        let locked = flock(&lock, FlockOperation::LockExclusive);
        locked.map_err(Into::into).context(|| format!("locking {}", self.path.display()))?;
        let mut numbers = self.read()?;
        let newest = numbers.entry(entry(store, image)).or_default();
        if *newest >= number {
            return Ok((*newest > number).then_some(*newest));
        }
        *newest = number;
        let text = serde_json::to_string_pretty(&numbers)
            .map_err(|error| Error::bug("a list of versions cannot be written as JSON").with_source(error))?;
        private_file::replace(&self.path, text.as_bytes())?;
        Ok(None)
    }

    /// Reads the file. A missing one is empty.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged; `Io`.
    pub(crate) fn read(&self) -> Result<Numbers> {
        let text = match read_text(&self.path, LENGTH_MAX) {
            Err(error) if error.kind() == ErrorKind::Missing => return Ok(Numbers::new()),
            text => text?,
        };
        serde_json::from_str(&text).map_err(|error| {
            Error::corrupt(format!(
                "{}, the list of the newest versions that this machine accepted, is damaged: restore it, or delete it \
                 if no older version can be offered to this machine",
                self.path.display()
            ))
            .with_source(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_version_is_recognized_after_a_restart_and_per_store() {
        let dir = tempfile::tempdir().unwrap();
        let image: ImageName = "lab/a".parse().unwrap();
        let (store, other) = (StoreId([1; 16]), StoreId([2; 16]));
        assert_eq!(NewestSeen::of(dir.path()).accept(store, &image, 7).unwrap(), None);
        let seen = NewestSeen::of(dir.path());
        assert_eq!(seen.accept(store, &image, 7).unwrap(), None, "the same again");
        assert_eq!(seen.accept(store, &image, 6).unwrap(), Some(7));
        assert_eq!(seen.accept(other, &image, 6).unwrap(), None, "another store");
        assert_eq!(seen.accept(store, &image, 9).unwrap(), None);
        assert_eq!(seen.accept(store, &image, 8).unwrap(), Some(9));
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let seen = NewestSeen::of(dir.path());
        std::fs::write(&seen.path, "{").unwrap();
        let error = seen.accept(StoreId([1; 16]), &"a".parse().unwrap(), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}
