//! A virtual disk as surveys and captures see disks. Adds nothing but the size of a sector.

use platter_image::DiskRead;

use crate::BlockDevice;
use crate::damage::disk_error;

/// A virtual disk as surveys and captures see disks.
pub struct DiskView<'a> {
    /// The virtual disk.
    pub device: &'a dyn BlockDevice,
    /// Bytes of a sector.
    pub sector_size: u32,
}

impl DiskRead for DiskView<'_> {
    fn length(&self) -> u64 {
        self.device.length()
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.device.read(buffer, offset).map_err(disk_error)
    }
}
