//! Recognizes files that contain a disk in another format than was said: images of virtual machines, and
//! compressed files.
//!
//! Stored as they are, they would not boot or mount as a disk; only the program that made them can read them.
//! A format is listed here so that the file is refused with a hint, never to read it.

use crate::Format;
use crate::compression::Compression;

/// How many bytes are needed at each end of a file.
pub const END_LENGTH: u64 = 512;

/// What a file looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrapping {
    /// Its name with an article.
    pub name: &'static str,
    /// What reads it.
    pub reader: Reader,
}

/// What reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Platter, if that format is named.
    Format(Format),
    /// Another program: the command before and after the file's name.
    Command(&'static str, &'static str),
}

impl Wrapping {
    /// What to do with the file at this path.
    pub fn hint(&self, path: &str) -> String {
        match self.reader {
            Reader::Format(format) => format!("read it with `--format {format}`"),
            // It follows names of other files, which nobody has checked.
            Reader::Command(before, after) if before.starts_with("qemu-img ") => format!(
                "convert it with `{before} {path} {after}`, if you trust the files that it names (`qemu-img info {path}` \
                 shows them)"
            ),
            Reader::Command(before, after) => format!("convert it with `{before} {path} {after}`"),
        }
    }
}

const fn read(name: &'static str, format: Format) -> Wrapping {
    Wrapping { name, reader: Reader::Format(format) }
}

const fn machine(name: &'static str) -> Wrapping {
    Wrapping { name, reader: Reader::Command("qemu-img convert -O raw", "disk.raw") }
}

const fn compressed(name: &'static str, program: &'static str) -> Wrapping {
    Wrapping { name, reader: Reader::Command(program, "> disk.raw") }
}

/// Magic bytes, their offset, and the format.
const BEGINNINGS: [(usize, &[u8], Wrapping); 21] = [
    (0, b"QFI\xfb\0\0\0\x01", machine("an image of the first qcow format")),
    (0, b"QFI\xfb", read("a qcow2 image", Format::Qcow2)),
    (0, b"QED\0", machine("a QED image")),
    (0, b"WithoutFreeSpace", machine("an image of Parallels")),
    (0, b"WithouFreSpacExt", machine("an image of Parallels")),
    (0, b"Bochs Virtual HD Image", machine("an image of Bochs")),
    (0, b"#!/bin/sh\n#V2.0 Format\n", machine("a cloop image")),
    (0, b"KDMV", read("a VMDK image", Format::Vmdk)),
    (0, b"COWD", machine("a VMDK image of ESX")),
    (0, b"# Disk DescriptorFile", machine("the description of a VMDK image")),
    (0x40, b"\x7f\x10\xda\xbe", read("a VDI image", Format::Vdi)),
    (0, b"conectix", read("a VHD image", Format::Vhd)),
    (0, b"vhdxfile", read("a VHDX image", Format::Vhdx)),
    (0, b"\x1f\x8b\x08", read("a gzip file", Format::Compressed(Compression::Gzip))),
    (0, b"\xfd7zXZ\0", read("an xz file", Format::Compressed(Compression::Xz))),
    (0, b"\x28\xb5\x2f\xfd", read("a zstd file", Format::Compressed(Compression::Zstd))),
    (0, b"partclone-image", read("an image of partclone", Format::Partclone)),
    (0, b"\x04\x22\x4d\x18", compressed("an LZ4 file", "lz4 -dc")),
    (0, b"PK\x03\x04", compressed("a zip file", "unzip -p")),
    (0, b"BZh", compressed("a bzip2 file", "bzip2 -dc")),
    // Skippable frames of zstd; parallel compressors put one first. The low half of the first byte can be
    // anything.
    (1, b"\x2a\x4d\x18", read("a zstd file", Format::Compressed(Compression::Zstd))),
];
/// What follows the level in a bzip2 file, at byte 4: a block, or the end of an empty file.
const BZIP2_BLOCKS: [&[u8]; 2] = [b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"];
/// The magic of the footer of a fixed-size VHD image.
const VHD_FOOTER: &[u8] = b"conectix";
/// The magic of the last sector of a DMG image.
const DMG_TRAILER: &[u8] = b"koly";
/// The versioned magic numbers of a Frisbee image.
const NDZ: std::ops::RangeInclusive<u32> = 0x6969_6969..=0x6969_6970;

/// The format of a file with these first and last bytes, up to [`END_LENGTH`] of them.
pub fn wrapping(first: &[u8], last: &[u8]) -> Option<Wrapping> {
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
        None if last.starts_with(VHD_FOOTER) => Some(read("a VHD image", Format::Vhd)),
        None if last.starts_with(DMG_TRAILER) => Some(machine("a DMG image")),
        None if number.is_some_and(|number| NDZ.contains(&number)) => {
            Some(read("a Frisbee image", Format::Ndz))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(first: &[u8], last: &[u8]) -> Option<String> {
        wrapping(first, last).map(|found| format!("{}: {}", found.name, found.hint("disk")))
    }

    #[test]
    fn each_format_is_recognized_with_a_hint_and_raw_disks_are_not() {
        for (offset, magic, wrapping) in BEGINNINGS {
            let mut bytes = vec![0; 512];
            bytes[0] = 0x50;
            bytes[offset..offset + magic.len()].copy_from_slice(magic);
            if magic == b"BZh" {
                assert_eq!(told(&bytes, &[]), None, "these letters alone do not make a bzip2 file");
                bytes[3..10].copy_from_slice(b"91AY&SY");
            }
            let words = told(&bytes, &[0; 512]).unwrap();
            assert!(words.starts_with(wrapping.name), "{words}");
        }
        assert!(told(b"QFI\xfb", &[]).unwrap().contains("--format qcow2"));
        assert!(told(&[0; 512], VHD_FOOTER).unwrap().contains("--format vhd"));
        assert!(told(&[0; 512], DMG_TRAILER).unwrap().contains("a DMG image: convert it with `qemu-img"));
        assert!(told(b"QFI\xfb\0\0\0\x01", &[]).unwrap().contains("`qemu-img convert"));
        assert!(told(&0x6969_696c_u32.to_le_bytes(), &[]).unwrap().contains("--format ndz"));
        for disk in [&[][..], b"B", &[0; 512], &[0xeb; 511], b"PK", b"\xeb\x2a\x4d\x18"] {
            assert_eq!(told(disk, disk), None);
        }
    }
}
