//! The contents of a target that an install would overwrite, shown to the user who must consent.
//!
//! They are read from the device that is held open, never by other programs. An unreadable part is shown as
//! such: a failing disk may be overwritten, too.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use platter_image::{DiskRead, Extent};

use super::kernel::{DeviceNumber, Machine};
use crate::install::EDGE_LENGTH;
use crate::partition::{PartitionTable, TableKind};
use platter_filesystem::{Owners, label};

/// The most partitions that are shown; the others are counted.
const PARTS_SHOWN_MAX: usize = 16;

/// The contents of a target. `Display` shows them in a few lines, without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetContents {
    /// The device or file.
    pub path: PathBuf,
    /// What the kernel reports about the device: model, serial number, the file behind a loop device.
    pub hardware: Vec<String>,
    /// Length in bytes.
    pub length: u64,
    /// Sector size in bytes; `None` for a file.
    pub sector_size: Option<u32>,
    /// `gpt`, `mbr` or `none`.
    pub table: &'static str,
    /// Its partitions; the whole disk as one part if there is no table.
    pub parts: Vec<PartContents>,
    /// The first MiB is zeros although the target has a length, as after an interrupted install.
    pub is_headless: bool,
}

/// The contents of one partition, or of a disk without partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartContents {
    /// The partition's number; `None` for the whole disk.
    pub number: Option<u32>,
    /// Its length in bytes.
    pub length: u64,
    /// The type and name in the partition table.
    pub announced: String,
    /// The filesystem or container found, if any.
    pub filesystem: Option<String>,
    /// Its label.
    pub label: Option<String>,
}

impl TargetContents {
    /// Examines an open device or file.
    pub(super) fn look(path: &Path, file: &File, length: u64, sector_size: Option<u32>) -> Self {
        let disk = OpenDisk { file, length: length / 512 * 512, sector_size: sector_size.unwrap_or(512) };
        let table = PartitionTable::read(&disk).unwrap_or_default();
        let whole = Extent::new(0, disk.length);
        let mut parts: Vec<PartContents> = Vec::new();
        for partition in table.partitions.iter().filter(|partition| !partition.container) {
            let (filesystem, label) = match partition.trusted {
                true => found(&disk, partition.extent, &[]),
                false => (None, None),
            };
            parts.push(PartContents {
                number: Some(partition.number),
                length: partition.extent.length,
                announced: [Some(partition.type_name), partition.name.as_deref()]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(", "),
                filesystem,
                label,
            });
        }
        // A filesystem may also start at the beginning of the disk, beside a stale table or its own.
        let (filesystem, label) = found(&disk, whole, table.kind.marks());
        if filesystem.is_some() {
            parts.insert(
                0,
                PartContents { length: disk.length, filesystem, label, ..PartContents::default() },
            );
        }
        Self {
            path: path.to_owned(),
            hardware: Vec::new(),
            length,
            sector_size,
            table: table.kind.name(),
            parts,
            is_headless: length > 0 && is_zero(file, length.min(EDGE_LENGTH)).unwrap_or(false),
        }
    }

    /// Adds what the kernel reports about a block device.
    pub(super) fn with_hardware(mut self, machine: &Machine, number: DeviceNumber) -> Self {
        let disk = machine.blocks.get(&number).and_then(|block| block.disk);
        let number = disk.unwrap_or(number);
        let of = PathBuf::from(format!("/sys/dev/block/{}:{}", number.0, number.1));
        let read = |name: &str| {
            let text = fs::read_to_string(of.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let model = [read("device/vendor"), read("device/model")];
        let model: Vec<String> = model.into_iter().flatten().filter(|part| !part.starts_with("0x")).collect();
        self.hardware.extend(Some(model.join(" ")).filter(|model| !model.is_empty()));
        let serial = read("device/serial").or_else(|| read("serial"));
        self.hardware.extend(serial.map(|serial| format!("serial {serial}")));
        self.hardware.extend(read("loop/backing_file").map(|file| format!("the file {file}")));
        self.hardware.extend(disk.map(|disk| format!("a partition of {}", machine.name(disk))));
        self
    }

    /// Whether there is a partition table, a filesystem, or the empty beginning that an interrupted install
    /// leaves.
    pub(super) fn is_disk(&self) -> bool {
        !self.parts.is_empty() || self.table == TableKind::Gpt.name() || self.is_headless
    }
}

impl fmt::Display for TargetContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", printable(&self.path.to_string_lossy()), size(self.length))?;
        for fact in &self.hardware {
            write!(f, ", {}", printable(fact))?;
        }
        match (self.table, self.parts.as_slice()) {
            ("none", []) if self.is_headless => {
                write!(f, "\n  begins with zeros: blank, or an interrupted install")?;
            }
            ("none", []) => write!(f, "\n  no partition table and no known file system")?,
            ("none", _) => {}
            (table, _) => write!(f, "\n  partition table: {table}")?,
        }
        for part in self.parts.iter().take(PARTS_SHOWN_MAX) {
            match part.number {
                Some(number) => write!(f, "\n  partition {number}, {}", size(part.length))?,
                None => write!(f, "\n  whole disk")?,
            }
            if !part.announced.is_empty() {
                write!(f, " ({})", printable(&part.announced))?;
            }
            match &part.filesystem {
                Some(name) => write!(f, ": {}", printable(name))?,
                None => write!(f, ": unknown contents")?,
            }
            if let Some(label) = &part.label {
                write!(f, " \"{}\"", printable(label))?;
            }
        }
        match self.parts.len().checked_sub(PARTS_SHOWN_MAX) {
            Some(more) if more > 0 => write!(f, "\n  and {more} more partitions"),
            _ => Ok(()),
        }
    }
}

/// The filesystem of an extent and its label, or all owners whose marks are there, except those in `besides`.
/// An unreadable extent is reported, not an error.
fn found(disk: &dyn DiskRead, extent: Extent, besides: &[&str]) -> (Option<String>, Option<String>) {
    let Ok(owners) = Owners::find(disk, extent) else { return (Some("unreadable".to_owned()), None) };
    let names = owners.list().iter().map(|owner| owner.name).filter(|name| !besides.contains(name));
    match names.collect::<Vec<_>>().as_slice() {
        [] => (None, None),
        [name] => (Some((*name).to_owned()), label(disk, extent, name)),
        names => (Some(names.join(" or ")), None),
    }
}

fn is_zero(file: &File, length: u64) -> io::Result<bool> {
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

/// Escapes control characters: a label must not control the terminal.
fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// A length with a decimal unit, as on disk labels.
fn size(bytes: u64) -> String {
    let units = [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    let unit = units.into_iter().find(|(_, factor)| bytes >= *factor);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, factor)| format!("{}.{} {unit}", bytes / factor, bytes % factor * 10 / factor),
    )
}

/// An open device or file, up to its last whole sector.
struct OpenDisk<'a> {
    file: &'a File,
    length: u64,
    sector_size: u32,
}

impl DiskRead for OpenDisk<'_> {
    fn length(&self) -> u64 {
        self.length
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(bytes: &[u8]) -> TargetContents {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        TargetContents::look(Path::new("disk"), &file, bytes.len() as u64, None)
    }

    fn ext(label: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        bytes[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
        bytes[1024 + 0x78..][..label.len()].copy_from_slice(label);
        bytes
    }

    #[test]
    fn disks_are_recognized() {
        assert!(!look(b"127.0.0.1 localhost\n").is_disk(), "a text file");
        assert!(!look(&[b'x'; 5000]).is_disk());
        assert!(look(&ext(b"")).is_disk());
        let mut interrupted = vec![0; 3 << 20];
        interrupted[2 << 20..].fill(1);
        assert!(look(&interrupted).is_disk(), "an interrupted install may be repeated");
        let mut partitioned = vec![7; 4 << 20];
        partitioned[..512].fill(0);
        partitioned[446 + 4] = 0x83;
        partitioned[446 + 8..][..4].copy_from_slice(&2048_u32.to_le_bytes());
        partitioned[446 + 12..][..4].copy_from_slice(&2048_u32.to_le_bytes());
        partitioned[510..512].copy_from_slice(&[0x55, 0xaa]);
        let contents = look(&partitioned);
        assert!(contents.is_disk());
        assert!(contents.to_string().contains("partition table: mbr\n  partition 1, 1.0 MB"), "{contents}");
    }

    #[test]
    fn labels_are_shown_without_control_characters() {
        let shown = look(&ext(b"ba\x1b[2Jckup")).to_string();
        assert_eq!(shown, "disk (1.0 MB)\n  whole disk: ext \"ba\\u{1b}[2Jckup\"");
    }
}
