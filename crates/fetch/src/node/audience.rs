//! The reading rights under which a cache was filled. They decide whether the node may pass on what the cache holds.
//!
//! Nodes of one sharing group read exactly the same images, so they hide nothing from each other. That holds only while
//! a cache has nothing from before, when its node had another access token. A small file in the cache's directory names
//! the group under whose rights everything in it came; without that file nothing is known. Must never let a node share
//! blocks that its group may not read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platter_client::SharingRights;
use platter_image::{Error, IoContext, Result};
use platter_vfs::{Vfs, read_whole, replace};

const FILE: &str = "sharing-group";
/// Longest content of the file, in bytes.
const FILE_LENGTH_MAX: u64 = 64;

/// The rights under which the cache in one directory was filled.
pub struct Audience {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    /// The group that the file named when the cache was opened.
    group: Option<String>,
    was_empty: bool,
    /// Whether the file says what is true from now on.
    is_settled: AtomicBool,
}

impl Audience {
    /// Of the cache in that directory.
    pub fn open(vfs: Arc<dyn Vfs>, dir: &Path, is_empty: bool) -> Self {
        let path = dir.join(FILE);
        let content = read_whole(&*vfs, &path, FILE_LENGTH_MAX).ok().flatten();
        let group = content.and_then(|content| String::from_utf8(content).ok());
        let group = group.map(|text| text.trim_end().to_owned());
        Self { vfs, path, group, was_empty: is_empty, is_settled: AtomicBool::new(false) }
    }

    /// Whether the node may share what the cache holds with this group.
    ///
    /// # Errors
    /// `Refused` when the cache may hold blocks that the group may not read.
    pub fn check(&self, rights: SharingRights) -> Result<()> {
        let group = text(rights.group);
        if !rights.all_images && !self.was_empty && self.group.as_ref() != Some(&group) {
            let dir = self.path.parent().unwrap_or(&self.path).display();
            return Err(Error::refused(format!(
                "the cache in {dir} was filled with another access token, or without sharing: other nodes may not have \
                 what it holds. Use another directory, or remove this one"
            )));
        }
        Ok(())
    }

    /// Starts sharing with this group.
    ///
    /// # Errors
    /// As [`Audience::check`]; `Io`.
    pub(super) fn share_with(&self, rights: SharingRights) -> Result<()> {
        self.check(rights)?;
        self.is_settled.store(true, Ordering::SeqCst);
        let group = text(rights.group);
        replace(&*self.vfs, &self.path, format!("{group}\n").as_bytes())
            .context(|| format!("writing {}", self.path.display()))
    }

    /// Prepares for a frame that is added to the cache. While the node does not share, nobody says under which rights
    /// the frame came, so the cache no longer belongs to a group.
    ///
    /// # Errors
    /// `Io` when the group's name cannot be removed: the frame must not be added.
    pub(super) fn before_filling(&self) -> Result<()> {
        if self.is_settled.load(Ordering::SeqCst) {
            return Ok(());
        }
        if self.group.is_some() {
            let dir = self.path.parent().unwrap_or(&self.path);
            let removed = self.vfs.remove(&self.path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
            let removed = removed.and_then(|()| self.vfs.sync_dir(dir));
            removed.context(|| format!("removing {}", self.path.display()))?;
        }
        self.is_settled.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// A group as the origin and the file write it: 32 hexadecimal digits.
fn text(group: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(group))
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;
    use platter_vfs::simulated::SimulatedDisk;

    use super::*;

    const LAB: SharingRights = SharingRights { group: [1; 16], all_images: false };
    const SALES: SharingRights = SharingRights { group: [2; 16], all_images: false };
    const ALL: SharingRights = SharingRights { group: [3; 16], all_images: true };

    #[test]
    fn a_cache_is_shared_only_with_the_group_under_whose_rights_it_was_filled() {
        let disk: Arc<dyn Vfs> = Arc::new(SimulatedDisk::new(1));
        let open = |is_empty| Audience::open(disk.clone(), Path::new("/"), is_empty);
        let refused = |audience: &Audience, rights| {
            audience.share_with(rights).is_err_and(|error| error.kind() == ErrorKind::Refused)
        };
        // An empty cache belongs to nobody.
        open(true).share_with(LAB).unwrap();
        open(false).share_with(LAB).unwrap();
        assert!(refused(&open(false), SALES));
        // A node that reads every image may hold anything; afterwards no smaller group may have it.
        open(false).share_with(ALL).unwrap();
        assert!(refused(&open(false), LAB));
        open(false).share_with(ALL).unwrap();
        // Emptied by hand, it can belong to another group.
        open(true).share_with(SALES).unwrap();
        open(false).share_with(SALES).unwrap();
        // Filled without sharing, it belongs to nobody any more.
        let unshared = open(false);
        unshared.before_filling().unwrap();
        assert!(refused(&open(false), SALES));
        // Frames that arrived between opening the cache and sharing came under the same token.
        open(true).share_with(SALES).unwrap();
        let late = open(false);
        late.before_filling().unwrap();
        late.share_with(SALES).unwrap();
        late.before_filling().unwrap();
        open(false).share_with(SALES).unwrap();
    }
}
