//! Who else than its owner may open what lies in a store's directory.
//!
//! Everything is made for its owner only. What is found wider was made by an older Platter, copied, or opened on purpose:
//! it is reported, and changed only when somebody asks for that. Sockets are left alone: their modes are configured.

use std::path::{Path, PathBuf};

use platter_image::{IoContext, Result};

use crate::place::StorePlace;

/// How deep directories of a store are nested at most; what lies deeper is none of ours.
const DEPTH_MAX: u32 = 8;
/// How many files are named.
const NAMED_MAX: usize = 3;

/// Files and directories of a store that others may open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// How many.
    pub count: usize,
    /// The first of them, and what others may do with each: the last six bits of its mode.
    pub first: Vec<(PathBuf, u32)>,
}

impl StorePlace {
    /// What others than their owner may open.
    ///
    /// # Errors
    /// `Io`.
    pub fn exposure(&self) -> Result<Exposure> {
        self.walk_exposed(&|_| Ok(()))
    }

    /// Takes all of that from others; gives what it was.
    ///
    /// # Errors
    /// `Io`: only the owner may.
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
            // It went away meanwhile.
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

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, metadata, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{CheckOptions, Severity, Store, Verdict};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "modes are seen as other programs see them")]
    fn a_store_is_its_owners_only_and_what_is_wider_is_found_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        drop(Store::open_writer(&place).unwrap());
        assert_eq!(place.exposure().unwrap(), Exposure::default());
        for (name, mode) in [("", 0o755), ("packs", 0o750), ("catalog.sqlite", 0o644), ("store.json", 0o604)]
        {
            set_permissions(place.dir().join(name), Permissions::from_mode(mode)).unwrap();
        }
        let check =
            || Store::open_reader(&place).unwrap().check(CheckOptions::default(), &mut |_| {}).unwrap();
        let report = check();
        assert_eq!(report.verdict, Verdict::Exposed);
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!(finding.severity, Severity::Exposure);
        // The four, and what SQLite makes beside its file with the modes of that file.
        assert!(finding.what.contains("files and directories"), "{}", finding.what);
        assert!(place.close_to_others().unwrap().count >= 4);
        assert_eq!(metadata(place.dir()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(check().verdict, Verdict::Clean);
    }
}
