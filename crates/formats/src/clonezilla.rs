//! Folders of Clonezilla: the partition table of a disk, and an image of each partition in files
//! (Clonezilla: `scripts/sbin/ocs-functions`).
//!
//! | file | contents |
//! | --- | --- |
//! | `disk` | name of the disk, such as `sda` |
//! | `sda-pt.sf` | its partitions, as `sfdisk` prints them |
//! | `sda-pt.parted` | its length |
//! | `sda-mbr`, `sda-hidden-data-after-mbr` | sector 0; the sectors before the first partition |
//! | `sda-gpt-1st`, `sda-gpt-2nd` | first 34 and last 33 sectors of a disk with a GPT |
//! | `sda1.ext4-ptcl-img.zst.aa`, `…ab` | partition 1 by partclone, compressed and split |
//! | `sda1.dd-img.aa` | partition 1 byte by byte by `dd`, possibly compressed |
//! | `sda1.dd-ptcl-img.xz.aa` | partition 1 byte by byte by `partclone.dd`, which writes no header |
//! | `swappt-sda2.info` | UUID and label of a swap area |

use std::io::{self, Read};

use platter_image::{Error, Extent, IoContext, Result};

use crate::compression::Compression;
use crate::partclone::read_partclone;
use crate::spool::Spool;
use crate::stream::{copy, fill};

const SECTOR: u64 = 512;
/// Longest file that is read at once.
const SMALL_MAX: u64 = 1 << 20;
const LENGTH_MAX: u64 = 1 << 62;
const PAGE: u64 = 4096;
/// Length of the start of the table, which the image of the first GPT has.
const FIRST_GPT: u64 = 34 * SECTOR;
const SECOND_GPT: u64 = 33 * SECTOR;

/// The files of a folder.
pub trait Folder {
    /// The names of all files, without directories.
    ///
    /// # Errors
    /// Errors of the folder.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file of that name.
    ///
    /// # Errors
    /// Errors of the file.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;
}

/// Unpacks a disk of a folder, and returns its length in bytes. `wanted` names it if the folder has several.
///
/// # Errors
/// `Missing` if the folder lacks the disk or a file; `Corrupt` if a file is damaged; `Refused` for several disks of which none is
/// wanted, extended partitions, partitions without an image and other programs; `Io`.
pub fn read_clonezilla(folder: &dyn Folder, wanted: Option<&str>, spool: &mut dyn Spool) -> Result<u64> {
    let mut names = folder.names().context(|| "listing the folder".to_owned())?;
    names.sort_unstable();
    let files = Files { folder, names };
    let disks = files.text("disk")?;
    let disk = choose_disk(&disks, wanted)?;
    let table = files.text(&format!("{disk}-pt.sf"))?;
    check_sectors(&table)?;
    let is_gpt = table.lines().any(|line| line.trim() == "label: gpt");
    let length = match is_gpt {
        true => length_of_gpt(&files.bytes(&format!("{disk}-gpt-1st"))?)?,
        false => length_of_parted(&files.text(&format!("{disk}-pt.parted"))?)?,
    };
    for partition in partitions(&table, length)? {
        files
            .restore(&partition, spool)
            .map_err(|error| error.within(format!("partition {}", partition.name)))?;
    }
    files.place(&format!("{disk}-hidden-data-after-mbr"), SECTOR, length, spool)?;
    if is_gpt {
        files.place(&format!("{disk}-gpt-1st"), 0, FIRST_GPT.min(length), spool)?;
        files.place(&format!("{disk}-gpt-2nd"), length.saturating_sub(SECOND_GPT), length, spool)?;
    } else {
        let name = format!("{disk}-mbr");
        let placed = files.place(&name, 0, SECTOR.min(length), spool)?;
        if placed.is_none_or(|bytes| bytes < SECTOR.min(length)) {
            let found = placed.map_or("missing".to_owned(), |bytes| format!("only {bytes} bytes long"));
            return Err(Error::refused(format!(
                "the file {name} is {found}: without the boot code and the partition table in it, the disk would not start"
            )));
        }
    }
    // So that the file has the disk's length.
    Ok(length)
}

/// The name of the disk that is unpacked, of those in the folder.
fn choose_disk<'d>(disks: &'d str, wanted: Option<&str>) -> Result<&'d str> {
    let list: Vec<&str> = disks.split_whitespace().collect();
    let shown = || list.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    match (wanted, list.as_slice()) {
        (_, []) => Err(Error::corrupt("the file disk names no disk")),
        (None, [only]) => Ok(only),
        (None, _) => {
            Err(Error::refused(format!("the folder has the disks {}: choose one with --disk", shown())))
        }
        (Some(wanted), _) => {
            list.iter().copied().find(|name| *name == wanted).ok_or_else(|| {
                Error::missing(format!("the folder has no disk {wanted:?}; it has {}", shown()))
            })
        }
    }
}

/// A partition of the table.
#[derive(Debug, PartialEq, Eq)]
struct Partition {
    /// Such as `sda1`.
    name: String,
    extent: Extent,
    is_swap: bool,
}

/// The partitions that `sfdisk` printed.
fn partitions(table: &str, length: u64) -> Result<Vec<Partition>> {
    let mut partitions = Vec::new();
    for line in table.lines() {
        let Some((device, fields)) = line.split_once(':').filter(|(_, fields)| fields.contains("start="))
        else {
            continue;
        };
        let field = |name: &str| {
            let fields = fields.split(',').filter_map(|field| field.split_once('='));
            fields
                .map(|(key, value)| (key.trim(), value.trim()))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok());
        let name = device.trim().rsplit('/').next().unwrap_or_default().to_owned();
        let (Some(start), Some(sectors)) = (number("start"), number("size")) else {
            return Err(Error::corrupt(format!("the partition table: the line {line:?} has no numbers")));
        };
        let end = start.checked_add(sectors).filter(|end| *end <= length / SECTOR);
        if end.is_none() {
            return Err(Error::corrupt(format!(
                "the partition table: {name} has {sectors} sectors from {start} on, past the end of the disk of {} sectors",
                length / SECTOR
            )));
        }
        let kind = field("type").or_else(|| field("Id")).unwrap_or_default().to_ascii_lowercase();
        if matches!(kind.as_str(), "5" | "f" | "85") {
            return Err(Error::refused(format!(
                "{name} is an extended partition, which Clonezilla saves only in part: restore the folder with Clonezilla"
            )));
        }
        if sectors > 0 {
            let is_swap = matches!(kind.as_str(), "82" | "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f");
            partitions.push(Partition {
                name,
                extent: Extent::new(start * SECTOR, sectors * SECTOR),
                is_swap,
            });
        }
    }
    Ok(partitions)
}

/// All numbers of the folder count sectors of the disk's own length, and only one length is read.
fn check_sectors(table: &str) -> Result<()> {
    let stated = table.lines().find_map(|line| line.trim().strip_prefix("sector-size:"));
    match stated.map(str::trim) {
        None | Some("512") => Ok(()),
        Some(other) => Err(Error::refused(format!(
            "the disk has sectors of {other} bytes, and only folders of disks with 512 are read: restore it with Clonezilla"
        ))),
    }
}

/// The length of the disk, after the place of the second GPT that the header of the first one names.
fn length_of_gpt(first: &[u8]) -> Result<u64> {
    let header = first.get(512..1024).filter(|header| header.starts_with(b"EFI PART"));
    let place = header.and_then(|header| header[32..40].try_into().ok()).map(u64::from_le_bytes);
    let length = place.and_then(|place| place.checked_add(1)?.checked_mul(SECTOR));
    length.filter(|length| *length <= LENGTH_MAX).ok_or_else(|| {
        Error::corrupt("the file of the first GPT: at offset 512, there is no valid header".to_owned())
    })
}

/// The length of the disk in a line such as `Disk /dev/sda: 16777216s`. Older versions of `sfdisk` do not state the length of
/// sectors, but parted does.
fn length_of_parted(text: &str) -> Result<u64> {
    let stated = text.lines().find_map(|line| line.strip_prefix("Sector size (logical/physical):"));
    if let Some(logical) = stated.and_then(|sizes| sizes.trim().split_once("B/")).map(|(logical, _)| logical)
    {
        check_sectors(&format!("sector-size: {logical}"))?;
    }
    let line = text.lines().find(|line| line.starts_with("Disk /"));
    let sectors =
        line.and_then(|line| line.rsplit(':').next()?.trim().strip_suffix('s')?.parse::<u64>().ok());
    let length = sectors.and_then(|sectors| sectors.checked_mul(SECTOR));
    length.filter(|length| *length <= LENGTH_MAX).ok_or_else(|| {
        Error::corrupt("the output of parted does not state the length of the disk".to_owned())
    })
}

struct Files<'f> {
    folder: &'f dyn Folder,
    /// Sorted.
    names: Vec<String>,
}

impl<'f> Files<'f> {
    fn open(&self, name: &str) -> Result<Box<dyn Read + 'f>> {
        if self.names.binary_search_by(|known| known.as_str().cmp(name)).is_err() {
            return Err(Error::missing(format!("the folder has no file {name}")));
        }
        self.folder.open(name).context(|| format!("opening {name}"))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut file = self.open(name)?.take(SMALL_MAX);
        file.read_to_end(&mut bytes).context(|| format!("reading {name}"))?;
        Ok(bytes)
    }

    fn text(&self, name: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes(name)?).into_owned())
    }

    /// Writes a file at an offset, up to `end`, and returns its length; nothing if there is no such file.
    fn place(&self, name: &str, offset: u64, end: u64, spool: &mut dyn Spool) -> Result<Option<u64>> {
        let mut part = PartSpool { spool, extent: Extent::between(offset, end) };
        match self.open(name) {
            Ok(mut file) => copy(&mut file, &mut part, end.saturating_sub(offset)).map(Some),
            Err(error) if error.kind() == platter_image::ErrorKind::Missing => Ok(None),
            Err(error) => Err(error),
        }
        .map_err(|error| error.within(name.to_owned()))
    }

    /// Restores a partition from its image.
    fn restore(&self, partition: &Partition, spool: &mut dyn Spool) -> Result<()> {
        let mut part = PartSpool { spool, extent: partition.extent };
        let prefix = format!("{}.", partition.name);
        let own = self.names.iter().filter_map(|name| Some((name, name.strip_prefix(&prefix)?)));
        let images = own.filter_map(|(name, rest)| Some((name, image_kind(rest)?)));
        let images: Vec<(&String, ImageKind)> = images.collect();
        let Some((_, kind)) = images.first() else { return self.restore_swap(partition, &mut part) };
        if let Some((other, _)) = images.iter().find(|(_, other)| other.stem != kind.stem) {
            return Err(Error::refused(format!("it has two images: {} and {other}", kind.stem)));
        }
        check_pieces(&images)?;
        let files: Vec<&str> = images.iter().map(|(name, _)| name.as_str()).collect();
        let mut joined: Box<dyn Read> = Box::new(Joined { files: self, names: files.iter(), file: None });
        let compression = match kind.compression {
            Known::None => None,
            Known::Read(compression) => Some(compression),
            // The name does not say it.
            Known::Unsaid => {
                let mut start = [0; 6];
                let read = fill(&mut joined, &mut start).context(|| format!("reading {}", files[0]))?;
                joined = Box::new(io::Cursor::new(start[..read].to_vec()).chain(joined));
                Compression::of_start(&start[..read])
            }
            Known::Other => {
                return Err(Error::refused(format!(
                    "{} is compressed by a program that is not supported",
                    files[0]
                )));
            }
        };
        if let Some(compression) = compression {
            joined = compression.decompress(joined);
        }
        let restored = match kind.is_copy {
            true => copy_whole(&mut joined, &mut part),
            false => read_partclone(&mut joined, &mut part).map(drop),
        };
        restored.map_err(|error| error.within(files[0].to_owned()))
    }

    /// A swap area is made anew with its UUID and its label, as by `mkswap`.
    fn restore_swap(&self, partition: &Partition, part: &mut PartSpool<'_>) -> Result<()> {
        let name = format!("swappt-{}.info", partition.name);
        let info = match self.text(&name) {
            Ok(info) => info,
            Err(error) if error.kind() == platter_image::ErrorKind::Missing && !partition.is_swap => {
                return Err(Error::refused("the folder has no image of it that can be read"));
            }
            Err(error) => return Err(error),
        };
        let value = |key: &str| {
            let lines = info.lines().filter_map(|line| line.split_once('='));
            lines
                .filter(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim().trim_matches('"'))
                .next()
        };
        let digits: String =
            value("UUID").unwrap_or_default().chars().filter(|digit| *digit != '-').collect();
        let (Ok(uuid), Ok(pages)) =
            (u128::from_str_radix(&digits, 16), u32::try_from(partition.extent.length / PAGE))
        else {
            return Err(Error::corrupt(format!("{name} has no valid UUID, or the partition is too long")));
        };
        let mut page = vec![0; PAGE as usize];
        page[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
        page[1028..1032].copy_from_slice(&pages.saturating_sub(1).to_le_bytes());
        page[1036..1052].copy_from_slice(&uuid.to_be_bytes());
        let label = value("LABEL").unwrap_or_default().bytes().take(15);
        page[1052..].iter_mut().zip(label).for_each(|(place, byte)| *place = byte);
        page[4086..].copy_from_slice(b"SWAPSPACE2");
        part.write_all_at(&page, 0).context(|| "writing the swap area".to_owned())
    }
}

/// What the name of an image says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ImageKind {
    /// The name without the partition and without the number of the piece.
    stem: String,
    /// The partition byte by byte; otherwise an image of partclone.
    is_copy: bool,
    compression: Known,
    /// Such as `aa`; empty if it is in one piece.
    piece: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    None,
    Read(Compression),
    Unsaid,
    Other,
}

/// `ext4-ptcl-img.zst.aa` or `dd-img.aa`; `None` for other files.
fn image_kind(rest: &str) -> Option<ImageKind> {
    let (name, end) = rest.split_once('.').unwrap_or((rest, ""));
    let says_compression = name.ends_with("-ptcl-img");
    if !says_compression && name != "dd-img" {
        return None;
    }
    let (suffix, piece) = match (says_compression, end.split_once('.')) {
        (true, Some((suffix, piece))) => (suffix, piece),
        (true, None) => (end, ""),
        (false, None) => ("", end),
        (false, Some(_)) => return None,
    };
    let is_piece =
        piece.is_empty() || (piece.len() >= 2 && piece.bytes().all(|byte| byte.is_ascii_lowercase()));
    if !is_piece || (!says_compression && piece == "info") {
        return None;
    }
    let compression = match suffix {
        _ if !says_compression => Known::Unsaid,
        "" | "uncomp" => Known::None,
        suffix => Compression::of_suffix(suffix).map_or(Known::Other, Known::Read),
    };
    let is_copy = name.starts_with("dd-");
    Some(ImageKind { stem: format!("{name}.{suffix}"), is_copy, compression, piece: piece.to_owned() })
}

/// The pieces must follow one another from `aa` on.
fn check_pieces(images: &[(&String, ImageKind)]) -> Result<()> {
    for (index, (name, kind)) in images.iter().enumerate() {
        let number = kind.piece.bytes().fold(0, |number, byte| number * 26 + usize::from(byte - b'a'));
        if number != index || (kind.piece.is_empty() && images.len() > 1) {
            return Err(Error::missing(format!("a piece of the image before {name} is missing")));
        }
    }
    Ok(())
}

/// Copies a partition that was saved byte by byte. What the image lacks would be zeros, and nothing else would show it.
fn copy_whole(image: &mut dyn Read, part: &mut PartSpool<'_>) -> Result<()> {
    let length = part.extent.length;
    let copied = copy(image, part, length)?;
    if copied < length {
        return Err(Error::corrupt(format!(
            "it has only {copied} of the partition's {length} bytes: the image is incomplete"
        )));
    }
    Ok(())
}

/// Files, one after the other.
struct Joined<'a, 'f> {
    files: &'a Files<'f>,
    names: std::slice::Iter<'a, &'a str>,
    file: Option<Box<dyn Read + 'f>>,
}

impl Read for Joined<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(file) = &mut self.file {
                let read = file.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
            }
            let Some(name) = self.names.next() else { return Ok(0) };
            self.file = Some(self.files.folder.open(name)?);
        }
    }
}

/// A part of the disk; nothing is written outside of it.
struct PartSpool<'s> {
    spool: &'s mut dyn Spool,
    extent: Extent,
}

impl Spool for PartSpool<'_> {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        match end.is_some_and(|end| end <= self.extent.length) {
            true => self.spool.write_all_at(bytes, self.extent.offset + offset),
            false => Err(crate::tables::invalid(format!(
                "the image has more bytes than its place of {}",
                self.extent.length
            ))),
        }
    }

    fn read_exact_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.spool.read_exact_at(buffer, self.extent.offset + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_say_how_they_are_made() {
        let kind = |name| image_kind(name).map(|kind| (kind.is_copy, kind.compression, kind.piece));
        let zstd = Known::Read(Compression::Zstd);
        assert_eq!(kind("ext4-ptcl-img.zst.aa"), Some((false, zstd, "aa".into())));
        assert_eq!(kind("ext4-ptcl-img.zst"), Some((false, zstd, String::new())));
        assert_eq!(kind("vfat-ptcl-img.uncomp.aab"), Some((false, Known::None, "aab".into())));
        assert_eq!(kind("ntfs-ptcl-img.lzo.aa"), Some((false, Known::Other, "aa".into())));
        assert_eq!(kind("dd-ptcl-img.zst.aa"), Some((true, zstd, "aa".into())));
        assert_eq!(kind("dd-img.aa"), Some((true, Known::Unsaid, "aa".into())));
        for other in ["dd-img.info", "info", "ext4-img.gz", "files-md5sum.info.gz", "dd-img.000"] {
            assert_eq!(kind(other), None, "{other}");
        }
    }

    #[test]
    fn one_of_several_disks_is_named() {
        assert_eq!(choose_disk("sda\n", None).unwrap(), "sda");
        assert_eq!(choose_disk("sda nvme0n1\n", Some("nvme0n1")).unwrap(), "nvme0n1");
        for (disks, wanted, why) in [
            ("sda sdb", None, "disks \"sda\", \"sdb\": choose one with --disk"),
            ("sda sdb", Some("sd"), "no disk \"sd\"; it has \"sda\", \"sdb\""),
            ("sda", Some("sdb"), "no disk \"sdb\"; it has \"sda\""),
            (" \n", Some("sda"), "names no disk"),
        ] {
            let error = choose_disk(disks, wanted).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn tables_of_sfdisk_are_read() {
        let table = "label: dos\nunit: sectors\n\n/dev/sda1 : start=        2048, size=        4096, type=83, bootable\n\
                     /dev/nvme0n1p2 : start=8192, size=100, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F\n";
        let found = partitions(table, 1 << 30).unwrap();
        let names: Vec<(&str, u64, bool)> =
            found.iter().map(|one| (one.name.as_str(), one.extent.offset, one.is_swap)).collect();
        assert_eq!(names, [("sda1", 1 << 20, false), ("nvme0n1p2", 4 << 20, true)]);
        assert!(partitions(table, 1 << 20).unwrap_err().to_string().contains("past the end of the disk"));
        assert!(
            partitions("/dev/sda2 : start=1, size=2, type=5", 1 << 20)
                .unwrap_err()
                .to_string()
                .contains("extended")
        );
    }
}
