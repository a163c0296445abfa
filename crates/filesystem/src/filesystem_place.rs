//! Where filesystems are: in partitions, on logical volumes, and in the data of members of RAID 1.
//!
//! A [`FilesystemPlace`] names a place. What is in it is read only by [`FilesystemPlace::probe`], and volumes are searched for only
//! by [`logical_volumes`], so damage in one place does not affect the others.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Result};

use crate::files::FileTree;
use crate::label::label;
use crate::layout::{Layout, VolumeDisk};
use crate::lvm;
use crate::open_files::open_files;
use crate::probe::{Found, Owners, probe};
use crate::raid;
use crate::volume_files::VolumeFiles;
use crate::volumes::{PHYSICAL_VOLUME, RAID_MEMBER, is_member_with_contents};

/// A place that may have a filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesystemPlace {
    /// A partition, or a whole disk.
    Partition(Extent),
    /// A logical volume.
    Volume(VolumePlace),
}

/// The place of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlace {
    name: String,
    layout: Layout,
}

impl VolumePlace {
    /// Its name, as in `/dev/mapper`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The contents of a place: of the partition, the logical volume, or the data of a member of a RAID 1.
#[derive(Debug)]
pub struct PlaceContents {
    /// What was found.
    pub found: Found,
    /// Why the data of a member of a RAID was not searched.
    pub reason: Option<Error>,
    bytes: Bytes,
}

/// The bytes of the contents.
#[derive(Clone, Debug)]
enum Bytes {
    Extent(Extent),
    Layout(Layout),
}

impl FilesystemPlace {
    /// Its first byte on the disk.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Partition(extent) => extent.offset,
            Self::Volume(volume) => volume.layout.first().unwrap_or_default(),
        }
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Partition(extent) => extent.length,
            Self::Volume(volume) => volume.layout.length(),
        }
    }

    /// Finds out what is there.
    ///
    /// # Errors
    /// Errors of reading the disk.
    pub fn probe(&self, disk: &dyn DiskRead) -> Result<PlaceContents> {
        match self {
            Self::Partition(extent) => inside(disk, *extent),
            Self::Volume(volume) => {
                let (layout, reason) = (volume.layout.clone(), None);
                let inner = VolumeDisk::new(disk, layout.clone());
                let found = probe(&inner, Extent::new(0, inner.length()))?;
                Ok(PlaceContents { found, reason, bytes: Bytes::Layout(layout) })
            }
        }
    }
}

impl PlaceContents {
    /// Whether it is a physical volume of LVM.
    pub fn is_physical_volume(&self) -> bool {
        self.found == Found::Filesystem(PHYSICAL_VOLUME)
    }

    /// The label of the filesystem; `None` if it has none or cannot be read.
    pub fn label(&self, disk: &dyn DiskRead) -> Option<String> {
        let Found::Filesystem(name) = self.found else { return None };
        match &self.bytes {
            Bytes::Extent(extent) => label(disk, *extent, name),
            Bytes::Layout(layout) => {
                let inner = VolumeDisk::new(disk, layout.clone());
                label(&inner, Extent::new(0, inner.length()), name)
            }
        }
    }

    /// Opens the files of the filesystem; `None` if files of this kind cannot be read. Places that the files tell are those on
    /// `disk`.
    ///
    /// # Errors
    /// Those of [`open_files()`].
    pub fn open<'d>(&self, disk: &'d dyn DiskRead) -> Option<Result<Box<dyn FileTree + 'd>>> {
        let layout = match &self.bytes {
            Bytes::Extent(extent) => return open_files(&self.found, disk, *extent),
            Bytes::Layout(layout) => layout,
        };
        match layout.extent() {
            Some(extent) => open_files(&self.found, disk, extent),
            None => VolumeFiles::open(&self.found, disk, layout)
                .map(|opened| opened.map(|files| Box::new(files) as Box<dyn FileTree + 'd>)),
        }
    }
}

/// The logical volumes found on physical volumes. A number is an index in the list of physical volumes.
#[derive(Debug, Default)]
pub struct LogicalVolumes {
    /// The logical volumes that can be read in their places, each with the physical volume of its first byte, by name.
    pub volumes: Vec<(usize, VolumePlace)>,
    /// The names of the others in the same groups, each with the reason why its contents cannot be read.
    pub unreadable: Vec<(String, String)>,
    /// Physical volumes that were not looked through, each with the reason.
    pub failed: Vec<(usize, Error)>,
}

/// Searches physical volumes of one disk for logical volumes. It does not read what is on these. If one physical volume cannot be
/// read, the logical volumes of other groups are found.
pub fn logical_volumes(disk: &dyn DiskRead, physical: &[PlaceContents]) -> LogicalVolumes {
    let is_physical = |contents: &PlaceContents| match &contents.bytes {
        Bytes::Extent(extent) if contents.is_physical_volume() => Some(*extent),
        _ => None,
    };
    let extents: Vec<(usize, Extent)> =
        physical.iter().enumerate().filter_map(|(index, one)| Some((index, is_physical(one)?))).collect();
    let all: Vec<Extent> = extents.iter().map(|(_, extent)| *extent).collect();
    let index = |is_it: &dyn Fn(&Extent) -> bool| {
        let found = extents.iter().find(|(_, extent)| is_it(extent));
        found.map(|(index, _)| *index)
    };
    let assembly = lvm::assemble_readable(disk, &all);
    let failed = assembly.whole.into_iter();
    let failed = failed.filter_map(|(whole, error)| Some((index(&|extent| *extent == whole)?, error)));
    let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
    for mut volume in assembly.logical {
        match volume.reason.take() {
            None => readable.push(volume),
            Some(reason) => unreadable.push((volume.device_name(), reason)),
        }
    }
    let volumes = readable.into_iter().filter_map(|volume| {
        let first = volume.layout.first()?;
        let begins_in = index(&|extent| (extent.offset..extent.end()).contains(&first))?;
        Some((begins_in, VolumePlace { name: volume.device_name(), layout: volume.layout }))
    });
    LogicalVolumes { volumes: volumes.collect(), unreadable, failed: failed.collect() }
}

/// Examines a partition: the data of a member of a RAID 1, or the partition itself.
fn inside(disk: &dyn DiskRead, extent: Extent) -> Result<PlaceContents> {
    let owners = Owners::find(disk, extent)?;
    let found = owners.found();
    let is_member = match &found {
        Found::Filesystem(name) => *name == RAID_MEMBER,
        Found::Ambiguous(_) => is_member_with_contents(disk, extent, &owners)?,
        _ => false,
    };
    if !is_member {
        return Ok(PlaceContents { found, reason: None, bytes: Bytes::Extent(extent) });
    }
    match raid::data_area(disk, extent) {
        Ok(data) => {
            let found = probe(disk, data)?;
            Ok(PlaceContents { found, reason: None, bytes: Bytes::Extent(data) })
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            Ok(PlaceContents { found, reason: Some(error), bytes: Bytes::Extent(extent) })
        }
        Err(error) => Err(error),
    }
}
