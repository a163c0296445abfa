//! The label of a physical volume: who it is, and where its metadata and its data are.
//!
//! One of the first four sectors has the label header, which has a checksum of the rest of the sector. Behind it is the header
//! of the physical volume: UUID, length, the place of the data, the areas for metadata, and, in an extension, the areas for a
//! boot loader. Lists of areas end with an empty one.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use crate::checksum::crc32_lvm;
use crate::fields::{has, le32, le64};

const SECTOR: usize = 512;
/// Sectors that may have the label.
const SECTORS: usize = 4;
/// The versions of the extension of the header that are known.
const EXTENSION_VERSION_MAX: u32 = 2;
/// The flag of the extension: a group uses the volume.
const EXTENSION_FLAGS_KNOWN: u32 = 1;

/// The contents of a label. All places are offsets on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// The sector of the label.
    pub(super) sector: Extent,
    /// The volume's UUID without hyphens.
    pub(super) uuid: String,
    /// Its length in bytes.
    pub(super) length: u64,
    /// Where its data begins.
    pub(super) data: u64,
    /// The areas for metadata.
    pub(super) metadata: Vec<Extent>,
    /// The areas for a boot loader.
    pub(super) boot: Vec<Extent>,
}

impl Label {
    /// Reads the label of the volume that is `extent` of the disk.
    ///
    /// # Errors
    /// `Corrupt` if there is none, if there are several, or if it is not understood; errors of reading the disk.
    pub(super) fn read(disk: &dyn DiskRead, extent: Extent) -> Result<Self> {
        let mut bytes = [0; SECTOR * SECTORS];
        if extent.length < bytes.len() as u64 {
            return Err(Error::corrupt("it has no room for a label"));
        }
        disk.read_exact_at(&mut bytes, extent.offset)
            .context(|| format!("reading the label of a physical volume at offset {}", extent.offset))?;
        let mut labels =
            bytes.chunks_exact(SECTOR).enumerate().filter(|(_, sector)| has(sector, 0, b"LABELONE"));
        match (labels.next(), labels.next()) {
            (Some((number, sector)), None) => Self::parse(sector, number as u64),
            (Some(_), Some(_)) => Err(Error::corrupt("it has several labels")),
            (None, _) => Err(Error::corrupt("it has no label")),
        }
    }

    fn parse(sector: &[u8], number: u64) -> Result<Self> {
        if le64(sector, 8) != number || !has(sector, 24, b"LVM2 001") {
            return Err(Error::corrupt("its label belongs to another place, or to another program"));
        }
        if crc32_lvm(&sector[20..]) != le32(sector, 16) {
            return Err(Error::corrupt("the checksum of its label is wrong"));
        }
        let start = le32(sector, 20) as usize;
        let header = sector.get(start..).filter(|header| start >= 32 && header.len() > 40);
        let header = header.ok_or_else(|| Error::corrupt("the header behind its label is missing"))?;
        let uuid =
            str::from_utf8(&header[..32]).ok().filter(|uuid| uuid.bytes().all(|b| b.is_ascii_graphic()));
        let uuid = uuid.ok_or_else(|| Error::corrupt("its UUID is invalid"))?.to_owned();
        let mut at = 40;
        let data = areas(header, &mut at)?;
        let metadata = areas(header, &mut at)?;
        let boot = match le32(header, at) {
            0 => Vec::new(),
            version
                if version > EXTENSION_VERSION_MAX || le32(header, at + 4) & !EXTENSION_FLAGS_KNOWN != 0 =>
            {
                return Err(Error::corrupt("its header has an extension that is not known"));
            }
            _ => {
                at += 8;
                areas(header, &mut at)?
            }
        };
        match data[..] {
            [data] => Ok(Self {
                sector: Extent::new(number * SECTOR as u64, SECTOR as u64),
                uuid,
                length: le64(header, 32),
                data: data.offset,
                metadata,
                boot,
            }),
            _ => Err(Error::corrupt(format!("it has {} areas for data", data.len()))),
        }
    }
}

/// The list of areas at `at`, which is moved behind it.
fn areas(header: &[u8], at: &mut usize) -> Result<Vec<Extent>> {
    let mut found = Vec::new();
    loop {
        if header.len() < *at + 16 {
            return Err(Error::corrupt("a list of areas in its header does not end"));
        }
        let (offset, length) = (le64(header, *at), le64(header, *at + 8));
        *at += 16;
        if offset == 0 {
            return Ok(found);
        }
        if offset.checked_add(length).is_none() {
            return Err(Error::corrupt("an area in its header is impossible"));
        }
        found.push(Extent::new(offset, length));
    }
}
