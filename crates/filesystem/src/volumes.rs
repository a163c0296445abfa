//! Looks through physical volumes of LVM and members of RAID 1 at what is on them, and says what of them is kept.
//!
//! Of a member of a RAID 1, everything outside of its data is kept, and of the data what the reader of its contents keeps.
//! Of a physical volume, everything outside of the extents that LVM allocates is kept, and of each logical volume what the
//! reader of its contents keeps, translated to the places on the disk. Free extents are dropped. A logical volume whose
//! contents cannot be read in its places is kept in full, and so is a physical volume that is not understood.

use platter_image::chunking::FileRun;
use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};

use crate::examine::{Trust, examine_inside};
use crate::layout::VolumeDisk;
use crate::lvm::{self, LogicalVolume};
use crate::probe::Owners;
use crate::reader::distrusted;
use crate::{Contents, ExamineOptions, raid};

/// The name of the mark of a physical volume of LVM.
pub const PHYSICAL_VOLUME: &str = "LVM2_member";

/// The name of the mark of a member of a RAID of Linux.
pub(crate) const RAID_MEMBER: &str = "linux_raid_member";

/// So many volumes may be inside each other. Deeper ones are kept in full.
const DEPTH_MAX: u32 = 3;

/// Notes about logical volumes of one physical volume; further ones are only counted.
const NOTES_MAX: usize = 20;

/// Examines physical volumes of LVM on the same disk, which do not overlap and have no other owner. Groups may have several
/// of them. Returns their contents in the order of `extents`.
///
/// # Errors
/// `Refused` if a filesystem on a logical volume needs recovery, unless it is forced; errors of reading the disk.
pub fn examine_volumes(
    disk: &dyn DiskRead,
    extents: &[Extent],
    options: ExamineOptions,
) -> Result<Vec<Contents>> {
    examine_all(disk, extents, options, 0)
}

/// Examines one physical volume, which is inside of so many volumes.
///
/// # Errors
/// Those of [`examine_volumes`].
pub(crate) fn examine_physical(
    disk: &dyn DiskRead,
    extent: Extent,
    options: ExamineOptions,
    depth: u32,
) -> Result<Contents> {
    let contents = examine_all(disk, &[extent], options, depth)?.pop();
    contents.ok_or_else(|| Error::bug("a physical volume has no contents"))
}

/// Examines a member of a RAID 1, which is inside of so many volumes.
///
/// # Errors
/// Those of [`examine_volumes`].
pub(crate) fn examine_member(
    disk: &dyn DiskRead,
    extent: Extent,
    options: ExamineOptions,
    depth: u32,
) -> Result<Contents> {
    let data = match raid::data_area(disk, extent) {
        Ok(_) if depth >= DEPTH_MAX => Err(too_deep(depth)),
        Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
        data => data,
    };
    let data = match data {
        Ok(data) => data,
        Err(reason) => return Ok(distrusted(RAID_MEMBER, extent, &reason)),
    };
    let owners = Owners::find(disk, data)?;
    let inside = examine_inside(disk, data, &owners, Trust::Sole, options, depth + 1)?;
    let outside = [Extent::between(extent.offset, data.offset), Extent::between(data.end(), extent.end())];
    let allocated = inside.allocated.iter().copied().chain(outside).collect();
    Ok(Contents { filesystem: RAID_MEMBER.to_owned(), allocated, ..inside })
}

/// Whether `extent` is a member of a RAID 1 although it has other marks: its data begins where it begins itself, so marks of the
/// data are there, too.
///
/// # Errors
/// Errors of reading the disk.
pub(crate) fn is_member_with_contents(disk: &dyn DiskRead, extent: Extent, owners: &Owners) -> Result<bool> {
    if !owners.has(RAID_MEMBER) {
        return Ok(false);
    }
    let data = match raid::data_area(disk, extent) {
        Ok(data) => data,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(false),
        Err(error) => return Err(error),
    };
    let inside = Owners::find(disk, data)?;
    let others = owners.list().iter().filter(|owner| owner.name != RAID_MEMBER);
    Ok(!inside.has(RAID_MEMBER) && others.into_iter().all(|owner| inside.list().contains(owner)))
}

fn too_deep(depth: u32) -> Error {
    Error::corrupt(format!("it is inside of {depth} other volumes"))
}

fn examine_all(
    disk: &dyn DiskRead,
    extents: &[Extent],
    options: ExamineOptions,
    depth: u32,
) -> Result<Vec<Contents>> {
    if depth >= DEPTH_MAX {
        let reason = too_deep(depth);
        return Ok(extents.iter().map(|extent| distrusted(PHYSICAL_VOLUME, *extent, &reason)).collect());
    }
    let assembly = lvm::assemble(disk, extents)?;
    let mut kept = VolumeResults::default();
    for volume in &assembly.logical {
        kept.add(disk, volume, options, depth)?;
    }
    let kept = kept.finish();
    let contents = extents.iter().map(|extent| {
        if let Some((_, reason)) = assembly.whole.iter().find(|(whole, _)| whole == extent) {
            return Ok(distrusted(PHYSICAL_VOLUME, *extent, reason));
        }
        let physical = assembly.physical.iter().find(|physical| physical.extent == *extent);
        let physical = physical.ok_or_else(|| Error::bug("a physical volume was not assembled"))?;
        let clip = |set: &Extents| set.clip(*extent).collect::<Extents>();
        let first = kept.files.partition_point(|file| file.extent().offset < extent.offset);
        let end = kept.files.partition_point(|file| file.extent().offset < extent.end());
        let allocated = kept.allocated.clip(*extent).chain(physical.outside().iter().copied()).collect();
        Ok(Contents {
            filesystem: PHYSICAL_VOLUME.to_owned(),
            uuid: Some(physical.uuid.clone()),
            allocated,
            zeroed: clip(&kept.zeroed),
            files: kept.files[first..end].to_vec(),
            notes: kept.notes_of(*extent),
            ..Contents::default()
        })
    });
    contents.collect()
}

/// The kept parts of logical volumes, as offsets on the disk.
#[derive(Default)]
struct VolumeResults {
    allocated: Vec<Extent>,
    zeroed: Vec<Extent>,
    files: Vec<FileRun>,
    /// Notes, each with the first place of its volume.
    notes: Vec<(u64, String)>,
}

/// The same, in order.
struct Sorted {
    allocated: Extents,
    zeroed: Extents,
    files: Vec<FileRun>,
    notes: Vec<(u64, String)>,
}

impl VolumeResults {
    fn add(
        &mut self,
        disk: &dyn DiskRead,
        volume: &LogicalVolume,
        options: ExamineOptions,
        depth: u32,
    ) -> Result<()> {
        let LogicalVolume { name: (group, name), layout, reason } = volume;
        let places = layout.places();
        let Some(first) = places.as_slice().first().map(|first| first.offset) else { return Ok(()) };
        let name = format!("logical volume {group}/{name}");
        if let Some(reason) = reason {
            self.allocated.extend(&places);
            self.notes.push((first, format!("{name} is stored in full: {reason}")));
            return Ok(());
        }
        let inner = VolumeDisk::new(disk, layout.clone());
        let extent = Extent::new(0, inner.length());
        let owners = Owners::find(&inner, extent)?;
        let contents = examine_inside(&inner, extent, &owners, Trust::Sole, options, depth + 1)
            .map_err(|error| error.within(&name))?;
        self.allocated.extend(&layout.translate(&contents.allocated));
        self.zeroed.extend(&layout.translate(&contents.zeroed));
        self.files.extend(layout.translate_files(&contents.files));
        self.notes.extend(contents.notes.into_iter().map(|note| (first, format!("{name}: {note}"))));
        Ok(())
    }

    fn finish(mut self) -> Sorted {
        self.files.sort_unstable();
        Sorted {
            allocated: Extents::from_unsorted(self.allocated),
            zeroed: Extents::from_unsorted(self.zeroed),
            files: self.files,
            notes: self.notes,
        }
    }
}

impl Sorted {
    /// The notes of volumes that begin in `extent`.
    fn notes_of(&self, extent: Extent) -> Vec<String> {
        let is_here = |place: &u64| (extent.offset..extent.end()).contains(place);
        let here = self.notes.iter().filter(|(place, _)| is_here(place)).map(|(_, note)| note);
        let mut notes: Vec<String> = here.clone().take(NOTES_MAX).cloned().collect();
        let more = here.count().saturating_sub(NOTES_MAX);
        if more > 0 {
            notes.push(format!("there are {more} more notes about logical volumes"));
        }
        notes
    }
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
