//! Puts the physical volumes of one disk together to volume groups, and says where the logical volumes lie.
//!
//! A group is understood if all its physical volumes are here, agree about it, and have what it describes. Otherwise each of
//! its physical volumes has a reason to be kept in full.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};

use super::group::Group;
use super::label::Label;
use super::metadata_area;
use crate::layout::Layout;
use crate::reader::check_fits;

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogicalVolume {
    /// The names of its group and its own.
    pub(crate) name: (String, String),
    /// Its places on the disk.
    pub(crate) layout: Layout,
    /// Why its contents cannot be read in these places: then they are kept in full.
    pub(crate) reason: Option<String>,
}

impl LogicalVolume {
    /// Its name in `/dev/mapper`: group and volume with a hyphen between them; hyphens of the names are doubled.
    pub(crate) fn device_name(&self) -> String {
        let (group, name) = &self.name;
        format!("{}-{}", group.replace('-', "--"), name.replace('-', "--"))
    }
}

/// A physical volume that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalVolume {
    /// Its place on the disk.
    pub(crate) extent: Extent,
    /// Its UUID, as LVM prints it.
    pub(crate) uuid: String,
    /// The part of it that is divided into extents.
    pub(crate) data: Extent,
}

/// The results for all physical volumes of a disk.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pub(crate) physical: Vec<PhysicalVolume>,
    pub(crate) logical: Vec<LogicalVolume>,
    /// Physical volumes that must be kept in full, with the reason.
    pub(crate) whole: Vec<(Extent, Error)>,
}

/// A physical volume with its text.
struct Read {
    extent: Extent,
    label: Label,
    text: Vec<u8>,
}

/// Assembles the physical volumes in these extents, which do not overlap.
///
/// # Errors
/// Errors of reading the disk.
pub(crate) fn assemble(disk: &dyn DiskRead, extents: &[Extent]) -> Result<Assembly> {
    let mut assembly = assemble_readable(disk, extents);
    match assembly.whole.iter().position(|(_, error)| error.kind() != ErrorKind::Corrupt) {
        Some(unread) => Err(assembly.whole.swap_remove(unread).1),
        None => Ok(assembly),
    }
}

/// As [`assemble`], but a physical volume that cannot be read counts as not understood.
pub(crate) fn assemble_readable(disk: &dyn DiskRead, extents: &[Extent]) -> Assembly {
    let mut assembly = Assembly::default();
    let mut read = Vec::new();
    for extent in extents {
        match read_physical(disk, *extent) {
            Ok(one) => read.push(one),
            Err(error) => assembly.whole.push((*extent, error)),
        }
    }
    // Copies of one text belong together. A group whose texts differ lacks a member in each of them.
    read.sort_by(|one, other| (&one.text, one.extent).cmp(&(&other.text, other.extent)));
    for members in read.chunk_by(|one, other| one.text == other.text) {
        if let Err(error) = assembly.add_group(members) {
            for member in members {
                assembly.whole.push((member.extent, Error::corrupt(error.to_string())));
            }
        }
    }
    assembly.physical.sort_by_key(|physical| physical.extent);
    assembly.logical.sort_by(|one, other| one.name.cmp(&other.name));
    assembly
}

impl Assembly {
    /// Adds the group that all these physical volumes describe.
    fn add_group(&mut self, members: &[Read]) -> Result<()> {
        let Some(first) = members.first() else { return Ok(()) };
        let group = Group::parse(&first.text)?;
        let mut physical = Vec::new();
        for described in &group.physical {
            let mut found = members.iter().filter(|member| member.label.uuid == described.uuid);
            let (member, other) = (found.next(), found.next());
            let (Some(member), None) = (member, other) else {
                return Err(Error::corrupt(match other {
                    Some(_) => format!("volume group {}: a physical volume is there twice", group.name),
                    None => format!(
                        "volume group {} has {} physical volumes, of which this disk has {} in the same state",
                        group.name,
                        group.physical.len(),
                        members.len()
                    ),
                }));
            };
            let inside = Extent::new(described.start, described.count * group.extent_length);
            check_areas(member, inside)?;
            let data = Extent::new(member.extent.offset + inside.offset, inside.length);
            physical.push(PhysicalVolume { extent: member.extent, uuid: hyphenated(&described.uuid), data });
        }
        if physical.len() != members.len() {
            return Err(Error::corrupt(format!(
                "volume group {} does not know a physical volume",
                group.name
            )));
        }
        let logical = group.volumes.iter().map(|volume| {
            let mut layout = Layout::default();
            for segment in &volume.segments {
                let place = |(index, first): &(usize, u64)| {
                    physical[*index].data.offset + first * group.extent_length
                };
                let length = segment.count.checked_mul(group.extent_length);
                let length = length.ok_or_else(|| Error::corrupt("a logical volume is too long"))?;
                layout.add(length, segment.stripe, segment.places.iter().map(place).collect())?;
            }
            let name = (group.name.clone(), volume.name.clone());
            Ok(LogicalVolume { name, layout, reason: volume.reason.clone() })
        });
        let logical = logical.collect::<Result<Vec<_>>>()?;
        self.physical.extend(physical);
        self.logical.extend(logical);
        Ok(())
    }
}

/// Reads the label and the metadata of a physical volume.
fn read_physical(disk: &dyn DiskRead, extent: Extent) -> Result<Read> {
    let label = Label::read(disk, extent)?;
    check_fits(label.length, extent)?;
    let mut texts = Vec::new();
    for area in &label.metadata {
        texts.push(metadata_area::read(disk, extent, *area)?);
    }
    let Some(text) = texts.pop() else {
        return Err(Error::corrupt("it has no metadata"));
    };
    if texts.iter().any(|other| *other != text) {
        return Err(Error::corrupt("its copies of the metadata differ"));
    }
    Ok(Read { extent, label, text })
}

/// Checks that the extents of a physical volume are where its label says, and touch nothing else.
fn check_areas(member: &Read, inside: Extent) -> Result<()> {
    let Read { extent, label, .. } = member;
    if inside.end() > extent.length || label.data != inside.offset {
        return Err(Error::corrupt("its label and its metadata contradict each other about its extents"));
    }
    let areas = label.metadata.iter().chain(&label.boot).chain([&label.sector]);
    let mut areas = areas.filter(|area| area.intersect(&inside).is_some());
    match areas.next() {
        Some(area) => Err(Error::corrupt(format!("its area at {} overlaps its extents", area.offset))),
        None => Ok(()),
    }
}

/// A UUID as LVM prints it.
fn hyphenated(uuid: &str) -> String {
    let parts = [0..6, 6..10, 10..14, 14..18, 18..22, 22..26, 26..32];
    parts.map(|part| uuid.get(part).unwrap_or_default().to_owned()).join("-")
}

impl PhysicalVolume {
    /// Its bytes outside of its extents.
    pub(crate) fn outside(&self) -> Extents {
        [
            Extent::between(self.extent.offset, self.data.offset),
            Extent::between(self.data.end(), self.extent.end()),
        ]
        .into_iter()
        .collect()
    }
}
