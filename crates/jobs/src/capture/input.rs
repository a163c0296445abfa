//! Opens the source of a capture: a block device, a raw file, or an image of a virtual machine.
//!
//! Its format is what the user says, else what its suffix says. A file that looks like another format is refused with
//! a hint. Files other than the named ones are never opened, whatever an image says.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use platter_disk::device::{Salvaged, Watch};
use platter_disk::{Source, survey};
use platter_formats::{BackingName, END_LENGTH, Format, Mapped, Reader, Wrapping, backing_name};
use platter_image::{DiskRead, Error, Extent, Extents, IoContext, Result};

/// How the source holds the disk, and what of it is captured.
#[derive(Clone, Debug, Default)]
pub struct InputOptions {
    /// The format; without one, the suffix of a file decides.
    pub format: Option<Format>,
    /// The backing file of a qcow2 image, that of the backing file, and so on.
    pub backing: Vec<BackingFile>,
    /// Capture only this partition, as a disk of its own.
    pub partition: Option<u32>,
    /// The disk of a folder of Clonezilla that has several.
    pub disk: Option<String>,
}

/// A backing file that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingFile {
    /// Its format; without one, its suffix decides.
    pub format: Option<Format>,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for BackingFile {
    type Err = std::convert::Infallible;

    /// `FILE` or `FORMAT:FILE`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = text.split_once(':').and_then(|(format, path)| Some((format.parse().ok()?, path)));
        Ok(match named {
            Some((format, path)) => Self { format: Some(format), path: path.into() },
            None => Self { format: None, path: text.into() },
        })
    }
}

/// A source as the user names it: a path, or a path and the number of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceName {
    /// The device or file.
    pub path: PathBuf,
    /// The partition.
    pub partition: Option<u32>,
}

impl SourceName {
    /// Splits `disk.raw:2`, unless a file has this name.
    pub fn of(path: &Path) -> Self {
        let split = || {
            let (disk, number) = path.to_str()?.rsplit_once(':')?;
            let number = number.parse().ok().filter(|number| *number > 0)?;
            Some(Self { path: disk.into(), partition: Some(number) })
        };
        let is_there = path.symlink_metadata().is_ok();
        let split = if is_there { None } else { split() };
        split.unwrap_or_else(|| Self { path: path.to_owned(), partition: None })
    }
}

/// Refuses what can be no source, with a message that helps more than that of the system.
pub(super) fn refuse_wrong_path(path: &Path, format: Format) -> Result<()> {
    if path.is_dir() && format != Format::Clonezilla {
        return Err(Error::refused(format!(
            "{} is a directory: a folder of Clonezilla is captured with `--format clonezilla`, everything else as a block \
             device or a file",
            path.display()
        )));
    }
    let split = path.to_str().and_then(|text| text.rsplit_once(':'));
    match split.filter(|(disk, _)| !path.exists() && Path::new(disk).exists()) {
        Some((disk, number)) => Err(Error::refused(format!(
            "{number:?} is no number of a partition: `{disk}:1` is the first partition of {disk}"
        ))),
        None => Ok(()),
    }
}

/// The opened files of a source.
#[derive(Debug)]
pub struct Input {
    /// The disk or image, then its backing files.
    files: Vec<(Source, Format)>,
    /// What the disk was unpacked from.
    unpacked: Option<Unpacked>,
}

/// What a disk was unpacked from.
#[derive(Clone, Debug)]
struct Unpacked {
    name: String,
    /// Whether it had another form there; else the bytes of a stream are as they were.
    is_decoded: bool,
}

impl Input {
    /// A raw disk.
    pub fn of(source: Source) -> Self {
        Self { files: vec![(source, Format::Raw)], unpacked: None }
    }

    /// A source in this format, and its backing files.
    pub(super) fn new(source: Source, format: Format, backing: &[BackingFile]) -> Result<Self> {
        let mut files = vec![(source, format)];
        for backing in backing {
            let format = backing.format.unwrap_or_else(|| format_of_path(&backing.path, false));
            if format.is_stream() {
                return Err(Error::refused(format!(
                    "{} is {format}, which cannot be a backing file: unpack it first",
                    backing.path.display()
                )));
            }
            files.push((Source::open(&backing.path, None)?, format));
        }
        if let Some((source, format)) =
            files.iter().rev().skip(1).find(|(_, format)| *format != Format::Qcow2)
        {
            return Err(Error::refused(format!(
                "{} is {format}: only qcow2 images have backing files",
                source.path().display()
            )));
        }
        for ((source, format), backing) in files[1..].iter().zip(backing) {
            let is_said = backing.format.is_some();
            let name = source.path().display().to_string();
            refuse_other_format(source, &name, *format, is_said, |found| match found.reader {
                Reader::Format(format) => format!("`--backing {format}:{name}`"),
                Reader::Command(..) => found.hint(&name),
            })?;
        }
        Ok(Self { files, unpacked: None })
    }

    /// The same input, unpacked from a source of that name.
    pub(super) fn unpacked(self, source: &str, is_decoded: bool) -> Self {
        Self { unpacked: Some(Unpacked { name: source.to_owned(), is_decoded }), ..self }
    }

    pub(super) fn is_unpacked(&self) -> bool {
        self.unpacked.is_some()
    }

    /// Refuses a file that is taken for a raw disk, but is known to be something else. If the user said that it is raw, it
    /// is.
    pub(super) fn refuse_other_format(&self, is_said: bool) -> Result<()> {
        let (source, format) = &self.files[0];
        let name =
            self.unpacked.as_ref().map_or_else(|| source.path().display().to_string(), |it| it.name.clone());
        refuse_other_format(source, &name, *format, is_said, |found| match (&self.unpacked, found.reader) {
            (Some(from), Reader::Format(format)) if !from.is_decoded => {
                format!("name its format: `--format {format}`")
            }
            (Some(_), _) => "unpack it first, and name the format of what is in it".to_owned(),
            (None, Reader::Format(_)) => format!(
                "{}, or, if it is a disk that only looks like one, with `--format raw`",
                found.hint(&name)
            ),
            (None, Reader::Command(..)) => {
                format!("{}, or, to store the file itself, use `platter capture --raw`", found.hint(&name))
            }
        })
    }

    pub(super) fn source(&self) -> &Source {
        &self.files[0].0
    }

    pub(super) fn format(&self) -> Format {
        self.files[0].1
    }

    /// Whether the disk is stored byte by byte.
    pub(super) fn is_raw(&self) -> bool {
        self.format() == Format::Raw
    }

    /// Where the images name other backing files than the user did, or another format of these.
    ///
    /// # Errors
    /// Those of reading the images.
    pub(super) fn backing_notes(&self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for pair in self.files.windows(2) {
            let [(image, Format::Qcow2), (given, format)] = pair else { continue };
            if let Some(stated) = backing_name(image)? {
                notes.extend(other_backing(image.path(), &stated, given.path(), *format));
            }
        }
        Ok(notes)
    }

    /// Watches all files for writes.
    pub(super) fn watch(&self) -> Result<Vec<Watch<'_>>> {
        self.files.iter().map(|(source, _)| Watch::begin(source)).collect()
    }

    /// Opens the disk. `skips_bad` makes unreadable sectors of a raw disk zeros.
    pub(super) fn disk(&self, skips_bad: bool) -> Result<Opened<'_>> {
        if self.is_raw() {
            return Ok(Opened::Raw(self.source(), Salvaged::new(self.source(), skips_bad)));
        }
        let mut below: Option<Box<dyn DiskRead + '_>> = None;
        for (source, format) in self.files[1..].iter().rev() {
            below = Some(match format {
                Format::Raw => Box::new(source),
                format => Box::new(open_image(source, *format, below)?),
            });
        }
        open_image(self.source(), self.format(), below).map(Opened::Image)
    }
}

/// A note if an image names another backing file than `given`, or another format. A name may be that of a link or of a copy,
/// so only the last part counts, and nothing is refused.
fn other_backing(image: &Path, stated: &BackingName, given: &Path, format: Format) -> Option<String> {
    let is_named = Path::new(&stated.name).file_name() == given.file_name();
    let said = stated.format.as_deref();
    let is_format = said.is_none_or(|said| match said {
        "vpc" => format == Format::Vhd,
        said => said.parse() == Ok(format),
    });
    if is_named && is_format {
        return None;
    }
    let said = said.map_or(String::new(), |said| format!(" ({})", said.escape_debug()));
    Some(format!(
        "{} names \"{}\"{said} as its backing file, and {} ({format}) was given: with other contents than that, the disk is wrong",
        image.display(),
        stated.name.escape_debug(),
        given.display()
    ))
}

fn open_image<'a>(
    source: &'a Source,
    format: Format,
    below: Option<Box<dyn DiskRead + 'a>>,
) -> Result<Mapped<'a>> {
    platter_formats::open(Box::new(source), format, below)
        .map_err(|error| error.within(format!("{} cannot be read as {format}", source.path().display())))
}

/// The format that a path stands for. A block device has no suffix that means anything.
pub(super) fn format_of_path(path: &Path, is_raw: bool) -> Format {
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    if is_file && !is_raw { Format::of_suffix(path) } else { Format::Raw }
}

/// Refuses a regular file that is taken for a raw disk, but is known to be something else. Messages call it `name`.
///
/// # Errors
/// `Refused`, with the hint for what it is; `Io`.
pub(crate) fn refuse_other_format(
    source: &Source,
    name: &str,
    format: Format,
    is_said: bool,
    hint: impl Fn(&Wrapping) -> String,
) -> Result<()> {
    if source.is_block_device() || format != Format::Raw || is_said {
        return Ok(());
    }
    let path = source.path();
    let length = source.stored_length();
    let read = |offset: u64| {
        let mut bytes = vec![0; END_LENGTH.min(length) as usize];
        let read = source.read_exact_at(&mut bytes, offset).map(|()| bytes);
        read.context(|| format!("examining {}", path.display()))
    };
    let (first, last) = (read(0)?, read(length.saturating_sub(END_LENGTH))?);
    let Some(found) = platter_formats::wrapping(&first, &last) else { return Ok(()) };
    Err(Error::refused(format!("{name} looks like {}, not like a raw disk: {}", found.name, hint(&found))))
}

/// The opened disk of a source.
pub(super) enum Opened<'a> {
    /// A device or raw file, read in spite of bad sectors.
    Raw(&'a Source, Salvaged<'a>),
    /// The disk in an image.
    Image(Mapped<'a>),
}

impl Opened<'_> {
    pub(super) fn disk(&self) -> &dyn DiskRead {
        match self {
            Self::Raw(_, disk) => disk,
            Self::Image(disk) => disk,
        }
    }

    /// Where the disk has data, if that is known; all else is zeros.
    pub(super) fn data_extents(&self) -> Result<Option<Extents>> {
        match self {
            Self::Raw(source, _) => source.data_extents(),
            Self::Image(disk) => disk.data_extents(),
        }
    }

    /// What could not be read so far.
    pub(super) fn bad(&self) -> Extents {
        match self {
            Self::Raw(_, disk) => disk.bad(),
            Self::Image(_) => Extents::new(),
        }
    }
}

/// The part of a disk that is captured.
pub(super) struct Window<'a> {
    disk: &'a dyn DiskRead,
    extent: Extent,
    sector_size: u32,
}

impl<'a> Window<'a> {
    /// The partition with this number, or the whole disk.
    pub(super) fn new(disk: &'a dyn DiskRead, partition: Option<u32>) -> Result<Self> {
        let extent = match partition {
            Some(number) => partition_extent(disk, number)?,
            None => Extent::new(0, disk.length()),
        };
        Ok(Self { disk, extent, sector_size: disk.sector_size() })
    }

    /// The same part, of a disk whose partition table states another sector size than the disk.
    pub(super) fn with_sector_size(&self, sector_size: u32) -> Self {
        Self { disk: self.disk, extent: self.extent, sector_size }
    }

    /// Where it begins on the disk.
    pub(super) fn start(&self) -> u64 {
        self.extent.offset
    }

    /// The part of `extents` of the disk that lies in it, counted from its start.
    pub(super) fn of(&self, extents: &Extents) -> Extents {
        let inside = extents.clip(self.extent);
        inside.map(|one| Extent::new(one.offset - self.extent.offset, one.length)).collect()
    }
}

impl DiskRead for Window<'_> {
    fn length(&self) -> u64 {
        self.extent.length
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let is_inside = offset.checked_add(buffer.len() as u64).is_some_and(|end| end <= self.extent.length);
        match is_inside {
            true => self.disk.read_exact_at(buffer, self.extent.offset + offset),
            false => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn partition_extent(disk: &dyn DiskRead, number: u32) -> Result<Extent> {
    let table = survey::read_table(disk)?;
    let Some(found) = table.partitions.iter().find(|partition| partition.number == number) else {
        let numbers: Vec<String> = table.partitions.iter().map(|one| one.number.to_string()).collect();
        return Err(Error::refused(match numbers.is_empty() {
            true => {
                format!("there is no partition {number}: the disk has no partition table that can be read")
            }
            false => format!("there is no partition {number}: the disk has {}", numbers.join(", ")),
        }));
    };
    match found.trusted {
        true => Ok(found.extent),
        false => Err(Error::refused(format!(
            "partition {number} cannot be captured alone: it is an extended partition, overlaps another one, or does not \
             lie on the disk"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_named_after_a_colon_unless_a_file_has_that_name() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("disk:2");
        let name = SourceName::of(&named);
        assert_eq!((name.path, name.partition), (folder.path().join("disk"), Some(2)));
        std::fs::write(&named, b"").unwrap();
        assert_eq!(SourceName::of(&named), SourceName { path: named, partition: None });
        for whole in ["disk", "disk:", "disk:0", "disk:x", "/dev/disk/by-path/pci-0000:00:1f.2-ata-1"] {
            assert_eq!(SourceName::of(Path::new(whole)).partition, None, "{whole}");
        }
    }

    #[test]
    fn wrong_paths_are_explained() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::write(&disk, b"").unwrap();
        let refused = |path: &Path| refuse_wrong_path(path, Format::Raw).map_err(|error| error.to_string());
        assert_eq!(refused(&disk), Ok(()));
        assert!(refused(folder.path()).unwrap_err().contains("--format clonezilla"));
        for name in ["disk:0", "disk:x", "disk:"] {
            let said = refused(&folder.path().join(name)).unwrap_err();
            assert!(said.contains("no number of a partition"), "{said}");
        }
        assert_eq!(refused(&folder.path().join("other:0")), Ok(()), "the system says that it is missing");
        refuse_wrong_path(folder.path(), Format::Clonezilla).unwrap();
    }

    #[test]
    fn other_backing_files_are_noted() {
        let note = |name: &str, said: Option<&str>, given: &str, format| {
            let stated = BackingName { name: name.to_owned(), format: said.map(str::to_owned) };
            other_backing(Path::new("top"), &stated, Path::new(given), format)
        };
        assert_eq!(note("/far/base.img", Some("raw"), "base.img", Format::Raw), None);
        assert_eq!(note("base.img", None, "near/base.img", Format::Qcow2), None, "it states no format");
        assert_eq!(note("base.vhd", Some("vpc"), "base.vhd", Format::Vhd), None);
        let other = note("base", Some("qcow2"), "base", Format::Raw).unwrap();
        assert!(other.contains("\"base\" (qcow2)") && other.contains("base (raw)"), "{other}");
        let other = note("json:{\"file\":1}", None, "base", Format::Raw).unwrap();
        assert!(other.contains("and base (raw) was given"), "{other}");
    }

    #[test]
    fn backing_files_can_have_a_format() {
        let parse = |text: &str| text.parse::<BackingFile>().unwrap();
        assert_eq!(parse("base.img"), BackingFile { format: None, path: "base.img".into() });
        assert_eq!(parse("qcow2:a:b"), BackingFile { format: Some(Format::Qcow2), path: "a:b".into() });
        assert_eq!(parse("other:a"), BackingFile { format: None, path: "other:a".into() });
    }
}
