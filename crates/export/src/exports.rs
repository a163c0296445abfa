//! Looks up the disks that a server exports, by name.

use std::sync::Arc;

use platter_image::Result;
use platter_vdisk::BlockDevice;

/// The exported disks, by name. Names have at most 4096 bytes.
pub trait Exports: Send + Sync {
    /// All names, for clients that list exports.
    fn list(&self) -> Vec<String>;

    /// The disk with this name. All clients share it and see each other's writes.
    ///
    /// # Errors
    /// `Missing` when there is none; `Refused` when this client may not use it; other errors when it cannot be opened.
    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>>;

    /// Description of the disk for people.
    fn describe(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }
}
