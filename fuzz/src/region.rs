//! Examines a filesystem that fills a disk, as a capture does.

use platter_filesystem::{ExamineOptions, Owners, Trust, examine};
use platter_image::{ErrorKind, Extent};

/// Panics if the region that results breaks its promises, or if anything but a filesystem that needs recovery is refused.
pub fn examine_region(disk: &Vec<u8>, force: bool) {
    let extent = Extent::new(0, disk.len() as u64);
    let owners = Owners::find(disk, extent).expect("memory can be read");
    match examine(disk, extent, &owners, Trust::Sole, ExamineOptions { force, all: false }) {
        Ok(contents) => contents.into_region(extent).check().expect("a region keeps its promises"),
        Err(error) => assert!(error.kind() == ErrorKind::Refused && !force, "{error}"),
    }
}
