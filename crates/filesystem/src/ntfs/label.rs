//! The label of a volume: an attribute of one of its own records.

use platter_image::{DiskRead, Extent};

use super::attribute::VOLUME_NAME;
use super::boot_sector::BootSector;
use super::examine::VOLUME;
use super::master_table::MasterTable;
use crate::clusters::Clusters;
use crate::fields::le16;
use crate::reader::read_boot_sector;

/// The label of the volume at the start of an extent; `None` if it has none or cannot be read.
pub(crate) fn label(disk: &dyn DiskRead, extent: Extent) -> Option<String> {
    let boot = BootSector::parse(&read_boot_sector(disk, extent).ok()?).ok()?;
    let volume = Extent::new(extent.offset, boot.length);
    let clusters = Clusters::new(disk, volume, volume.offset, (boot.cluster_size, boot.clusters), 0).ok()?;
    let table = MasterTable::open(&clusters, &boot).ok()?;
    let mut buffer = Vec::new();
    let record = table.record(VOLUME, &mut buffer).ok()??;
    let name = record.find(VOLUME_NAME).ok()??.value().ok()??;
    let units = name.chunks_exact(2).map(|unit| le16(unit, 0)).take_while(|unit| *unit != 0);
    let text = String::from_utf16_lossy(&units.collect::<Vec<_>>());
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
