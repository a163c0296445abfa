//! Finds files in a store's directory that users other than the owner can open.
//!
//! All files are created for their owner only. Wider modes come from an older Platter, from copying, or from a deliberate change.
//! They are reported, and changed only on request. Sockets are ignored: their modes are configured.

use std::path::{Path, PathBuf};

use platter_image::{IoContext, Result};

use crate::place::StorePlace;

/// Maximum depth of directories in a store. Deeper files are not ours.
const DEPTH_MAX: u32 = 8;
/// Maximum number of files that are named.
const NAMED_MAX: usize = 3;

/// Files and directories of a store that other users can open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Their number.
    pub count: usize,
    /// The first ones, each with what others may do with it: the last six bits of its mode.
    pub first: Vec<(PathBuf, u32)>,
}

impl StorePlace {
    /// Returns the files that users other than the owner can open.
    ///
    /// # Errors
    /// `Io`.
    pub fn exposure(&self) -> Result<Exposure> {
        self.walk_exposed(&|_| Ok(()))
    }

    /// Removes the access of other users from all of these files. Returns what was found before.
    ///
    /// # Errors
    /// `Io`, for example when the caller is not the owner.
    pub fn close_to_others(&self) -> Result<Exposure> {
        self.walk_exposed(&|path| {
            self.vfs().close_to_others(path).context(|| format!("{}: changing its mode", path.display()))
        })
    }

    fn walk_exposed(&self, found: &dyn Fn(&Path) -> Result<()>) -> Result<Exposure> {
        let mut exposure = Exposure::default();
        let mut directories = vec![(self.dir().to_owned(), 0)];
        self.look(self.dir(), found, &mut exposure)?;
        while let Some((dir, depth)) = directories.pop() {
            let entries = self.vfs().list(&dir).context(|| format!("listing {}", dir.display()))?;
            for entry in entries {
                let path = dir.join(&entry.name);
                self.look(&path, found, &mut exposure)?;
                if entry.is_dir && depth < DEPTH_MAX {
                    directories.push((path, depth + 1));
                }
            }
        }
        Ok(exposure)
    }

    fn look(&self, path: &Path, found: &dyn Fn(&Path) -> Result<()>, exposure: &mut Exposure) -> Result<()> {
        let others = match self.vfs().access_of_others(path) {
            // It was removed meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            others => others.context(|| format!("looking at the mode of {}", path.display()))?,
        };
        if others == 0 {
            return Ok(());
        }
        found(path)?;
        exposure.count += 1;
        if exposure.first.len() < NAMED_MAX {
            exposure.first.push((path.to_owned(), others));
        }
        Ok(())
    }
}
