//! Recognizes files that contain a disk in another format: images of virtual machines, and compressed files.
//!
//! Stored as they are, they would not boot or mount as a disk; only the program that made them can read them.
//! A format is listed here so that the file is refused with a hint, never to read it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use platter_image::{Error, IoContext, Result};

/// How many bytes are read at each end of a file.
const END_LENGTH: u64 = 512;

/// A format: its name, and the command that converts it, before the file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wrapping {
    name: &'static str,
    program: &'static str,
    /// The rest of the command after the file's name.
    end: &'static str,
}

const fn machine(name: &'static str) -> Wrapping {
    Wrapping { name, program: "qemu-img convert -O raw", end: "disk.raw" }
}

const fn compressed(name: &'static str, program: &'static str) -> Wrapping {
    Wrapping { name, program, end: "> disk.raw" }
}

/// Magic bytes, their offset, and the format.
const BEGINNINGS: [(usize, &[u8], Wrapping); 15] = [
    (0, b"QFI\xfb", machine("a qcow2 image")),
    (0, b"QED\0", machine("a QED image")),
    (0, b"KDMV", machine("a VMDK image")),
    (0, b"COWD", machine("a VMDK image")),
    (0, b"# Disk DescriptorFile", machine("the description of a VMDK image")),
    (0x40, b"\x7f\x10\xda\xbe", machine("a VDI image")),
    (0, b"conectix", machine("a VHD image")),
    (0, b"vhdxfile", machine("a VHDX image")),
    (0, b"\x1f\x8b\x08", compressed("a gzip file", "gzip -dc")),
    (0, b"\xfd7zXZ\0", compressed("an xz file", "xz -dc")),
    (0, b"\x28\xb5\x2f\xfd", compressed("a zstd file", "zstd -dc")),
    (0, b"\x04\x22\x4d\x18", compressed("an LZ4 file", "lz4 -dc")),
    (0, b"PK\x03\x04", compressed("a zip file", "unzip -p")),
    (0, b"BZh", compressed("a bzip2 file", "bzip2 -dc")),
    // Skippable frames of zstd; parallel compressors put one first. The low half of the first byte can be
    // anything.
    (1, b"\x2a\x4d\x18", compressed("a zstd file", "zstd -dc")),
];
/// What follows the level in a bzip2 file, at byte 4: a block, or the end of an empty file.
const BZIP2_BLOCKS: [&[u8]; 2] = [b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"];
/// The magic of the footer of a fixed-size VHD image.
const VHD_FOOTER: &[u8] = b"conectix";
/// The versioned magic numbers of a Frisbee image.
const NDZ: std::ops::RangeInclusive<u32> = 0x6969_6969..=0x6969_6970;

/// Refuses a regular file that is known to contain a disk in another format.
///
/// # Errors
/// `Refused`, with the command that makes a raw file of it; `Io`.
pub fn refuse_wrapped(path: &Path) -> Result<()> {
    let doing = || format!("examining {}", path.display());
    if !std::fs::metadata(path).context(doing)?.is_file() {
        return Ok(());
    }
    let file = File::open(path).context(doing)?;
    let length = file.metadata().context(doing)?.len();
    let read = |offset: u64| {
        let mut bytes = vec![0; END_LENGTH.min(length) as usize];
        file.read_exact_at(&mut bytes, offset).map(|()| bytes).context(doing)
    };
    let (first, last) = (read(0)?, read(length.saturating_sub(END_LENGTH))?);
    let Some(Wrapping { name, program, end }) = wrapping(&first, &last) else { return Ok(()) };
    let path = path.display();
    Err(Error::refused(format!(
        "{path} is {name}, not a raw disk: convert it with `{program} {path} {end}`, or store the file itself with `platter capture --raw`"
    )))
}

/// The format of a file with these first and last bytes.
fn wrapping(first: &[u8], last: &[u8]) -> Option<Wrapping> {
    let has = |offset: usize, bytes: &[u8]| first.get(offset..).is_some_and(|rest| rest.starts_with(bytes));
    let is_whole = |offset: usize, bytes: &[u8]| match bytes {
        b"BZh" => has(0, bytes) && BZIP2_BLOCKS.iter().any(|block| has(4, block)),
        _ if offset == 1 => has(1, bytes) && first[0] & 0xf0 == 0x50,
        _ => has(offset, bytes),
    };
    let found = BEGINNINGS.into_iter().find(|(offset, bytes, _)| is_whole(*offset, bytes));
    let number = first.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    match found {
        Some((_, _, wrapping)) => Some(wrapping),
        None if last.starts_with(VHD_FOOTER) => Some(machine("a VHD image")),
        None if number.is_some_and(|number| NDZ.contains(&number)) => {
            Some(Wrapping { name: "a Frisbee image", program: "imageunzip", end: "disk.raw" })
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_refused_with_its_command_and_raw_disks_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            refuse_wrapped(&path).err().map(|error| error.to_string())
        };
        for (offset, magic, wrapping) in BEGINNINGS {
            let mut bytes = vec![0; 4096];
            bytes[0] = 0x50;
            bytes[offset..offset + magic.len()].copy_from_slice(magic);
            if magic == b"BZh" {
                assert_eq!(refused(&bytes), None, "these letters alone do not make a bzip2 file");
                bytes[3..10].copy_from_slice(b"91AY&SY");
            }
            let words = refused(&bytes).unwrap();
            assert!(words.contains(wrapping.name) && words.contains(wrapping.program), "{words}");
        }
        let mut vhd = vec![0; 4096];
        vhd[4096 - 512..][..8].copy_from_slice(VHD_FOOTER);
        assert!(refused(&vhd).unwrap().contains("VHD"));
        assert!(refused(&0x6969_696c_u32.to_le_bytes()).unwrap().contains("imageunzip"));
        for disk in [&[][..], b"B", &[0; 4096], &[0xeb; 511], b"PK", b"\xeb\x2a\x4d\x18"] {
            assert_eq!(refused(disk), None);
        }
        refuse_wrapped(Path::new("/dev/null")).unwrap();
    }
}
