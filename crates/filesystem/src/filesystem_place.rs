//! Where filesystems are: in partitions, on logical volumes, and in the data of members of RAID 1.

use platter_image::{DiskRead, ErrorKind, Extent, Result};

use crate::files::FileTree;
use crate::layout::{Layout, VolumeDisk};
use crate::lvm;
use crate::open_files::open_files;
use crate::probe::{Found, Owners};
use crate::raid;
use crate::volume_files::VolumeFiles;
use crate::volumes::{PHYSICAL_VOLUME, RAID_MEMBER, is_member_with_contents};

/// A place that may have a filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemPlace {
    /// The index of the partition that it is in, in the list that was searched; of its first byte, if it is in several.
    pub partition: usize,
    /// The name of the logical volume, as in `/dev/mapper`; `None` if it is none.
    pub volume: Option<String>,
    /// What was found there.
    pub found: Found,
    layout: Layout,
}

impl FilesystemPlace {
    /// Finds all places in these partitions: each partition itself, or instead of it the data of a member of a RAID 1, or
    /// logical volumes. What is kept in full in a capture because it is not understood is a place itself.
    ///
    /// # Errors
    /// Errors of reading the disk.
    pub fn find(disk: &dyn DiskRead, partitions: &[Extent]) -> Result<Vec<Self>> {
        let (mut places, mut physical) = (Vec::new(), Vec::new());
        for (partition, extent) in partitions.iter().enumerate() {
            let (extent, found) = inside(disk, *extent)?;
            match found {
                Found::Filesystem(PHYSICAL_VOLUME) => physical.push((partition, extent)),
                found => places.push(Self::of_extent(partition, extent, found)?),
            }
        }
        let extents: Vec<Extent> = physical.iter().map(|(_, extent)| *extent).collect();
        let assembly = lvm::assemble(disk, &extents)?;
        for (whole, _) in &assembly.whole {
            for (partition, extent) in physical.iter().filter(|(_, extent)| extent == whole) {
                places.push(Self::of_extent(*partition, *extent, Found::Filesystem(PHYSICAL_VOLUME))?);
            }
        }
        for volume in assembly.logical.into_iter().filter(|volume| volume.reason.is_none()) {
            let Some(first) = volume.layout.first() else { continue };
            let holds = |extent: &Extent| (extent.offset..extent.end()).contains(&first);
            let Some((partition, _)) = physical.iter().find(|(_, extent)| holds(extent)) else { continue };
            let inner = VolumeDisk::new(disk, volume.layout.clone());
            let found = Owners::find(&inner, Extent::new(0, inner.length()))?.found();
            let name = Some(volume.device_name());
            places.push(Self { partition: *partition, volume: name, found, layout: volume.layout });
        }
        places.sort_by(|one, other| (one.partition, &one.volume).cmp(&(other.partition, &other.volume)));
        Ok(places)
    }

    fn of_extent(partition: usize, extent: Extent, found: Found) -> Result<Self> {
        let mut layout = Layout::default();
        layout.add(extent.length, 0, vec![extent.offset])?;
        Ok(Self { partition, volume: None, found, layout })
    }

    /// Its first byte on the disk; no two places have the same.
    pub fn offset(&self) -> u64 {
        self.layout.first().unwrap_or_default()
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.layout.length()
    }

    /// Whether its bytes are at the same places as those of `other`, on another disk.
    pub fn is_where(&self, other: &Self) -> bool {
        self.layout == other.layout
    }

    /// The disk that the place is: offsets count from its start.
    pub fn disk<'d>(&self, disk: &'d dyn DiskRead) -> VolumeDisk<'d> {
        VolumeDisk::new(disk, self.layout.clone())
    }

    /// Opens the files of the filesystem; `None` if files of this kind cannot be read. Places that the files tell are those on
    /// `disk`.
    ///
    /// # Errors
    /// Those of [`open_files()`].
    pub fn open<'d>(&self, disk: &'d dyn DiskRead) -> Option<Result<Box<dyn FileTree + 'd>>> {
        match self.layout.extent() {
            Some(extent) => open_files(&self.found, disk, extent),
            None => VolumeFiles::open(&self.found, disk, &self.layout)
                .map(|opened| opened.map(|files| Box::new(files) as Box<dyn FileTree + 'd>)),
        }
    }
}

/// What is in a partition: the data of a member of a RAID 1, or the partition itself.
fn inside(disk: &dyn DiskRead, extent: Extent) -> Result<(Extent, Found)> {
    let owners = Owners::find(disk, extent)?;
    let found = owners.found();
    let is_member = match &found {
        Found::Filesystem(name) => *name == RAID_MEMBER,
        Found::Ambiguous(_) => is_member_with_contents(disk, extent, &owners)?,
        _ => false,
    };
    if !is_member {
        return Ok((extent, found));
    }
    match raid::data_area(disk, extent) {
        Ok(data) => Ok((data, Owners::find(disk, data)?.found())),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok((extent, found)),
        Err(error) => Err(error),
    }
}
