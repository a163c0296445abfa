//! Where a server finds the disks it serves: by name, when a client asks.

use std::sync::Arc;

use platter_image::Result;
use platter_vdisk::BlockDevice;

/// The disks that can be had, by name. Names are at most 4096 bytes.
pub trait Exports: Send + Sync {
    /// All names, for clients that ask what there is.
    fn list(&self) -> Vec<String>;

    /// The disk of that name. All that open it share it: what one wrote, the others read.
    ///
    /// # Errors
    /// `Missing` when there is none; `Refused` when this client may not have it; others when it cannot be opened.
    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>>;

    /// What a person should know of the disk of that name.
    fn describe(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }
}
