//! The formats, by their names and by the suffixes of files. Contents never decide a format: who writes to a raw disk
//! could make it look like an image that refers to other files.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::compression::Compression;

/// How a file holds a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Byte by byte.
    #[default]
    Raw,
    /// QEMU.
    Qcow2,
    /// VMware, in one file.
    Vmdk,
    /// VirtualBox.
    Vdi,
    /// Virtual PC and Hyper-V, first generation.
    Vhd,
    /// Hyper-V.
    Vhdx,
    /// Byte by byte, compressed.
    Compressed(Compression),
    /// Frisbee.
    Ndz,
    /// A folder of Clonezilla.
    Clonezilla,
    /// A file system by partclone, not compressed.
    Partclone,
}

impl Format {
    const NAMES: [(Self, &'static str); 12] = [
        (Self::Raw, "raw"),
        (Self::Qcow2, "qcow2"),
        (Self::Vmdk, "vmdk"),
        (Self::Vdi, "vdi"),
        (Self::Vhd, "vhd"),
        (Self::Vhdx, "vhdx"),
        (Self::Compressed(Compression::Gzip), "raw.gz"),
        (Self::Compressed(Compression::Zstd), "raw.zst"),
        (Self::Compressed(Compression::Xz), "raw.xz"),
        (Self::Ndz, "ndz"),
        (Self::Clonezilla, "clonezilla"),
        (Self::Partclone, "partclone"),
    ];
    /// Suffixes besides the names.
    const SUFFIXES: [(&'static str, Self); 1] = [("vpc", Self::Vhd)];

    /// The names of all formats.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().map(|(_, name)| name)
    }

    /// The format that the suffix of a file stands for; raw if it stands for none.
    pub fn of_suffix(path: &Path) -> Self {
        let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
        let suffix = suffix.to_ascii_lowercase();
        let named = Self::NAMES.into_iter().map(|(format, name)| (name, format));
        let mut known = named.chain(Self::SUFFIXES);
        let compressed = || Compression::of_suffix(&suffix).map(Self::Compressed);
        let known = known.find(|(name, _)| *name == suffix).map(|(_, format)| format);
        known.or_else(compressed).unwrap_or_default()
    }

    /// Whether it is read from beginning to end, so that its disk must be unpacked first.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::Compressed(_) | Self::Ndz | Self::Clonezilla | Self::Partclone)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.into_iter().find(|(format, _)| format == self);
        f.write_str(name.map_or("unknown", |(_, name)| name))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.into_iter().find(|(_, name)| *name == text).map(|(format, _)| format);
        known.ok_or_else(|| {
            format!("unknown format: use one of {}", Self::names().collect::<Vec<_>>().join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_name_formats_and_all_else_is_raw() {
        for (path, format) in [
            ("a/disk.qcow2", Format::Qcow2),
            ("disk.VMDK", Format::Vmdk),
            ("disk.vpc", Format::Vhd),
            ("disk.raw.gz", Format::Compressed(Compression::Gzip)),
            ("disk.img.zst", Format::Compressed(Compression::Zstd)),
            ("disk.ndz", Format::Ndz),
            ("disk.raw", Format::Raw),
            ("disk.img", Format::Raw),
            ("qcow2", Format::Raw),
            (".vhdx", Format::Raw),
        ] {
            assert_eq!(Format::of_suffix(Path::new(path)), format, "{path}");
        }
        for name in Format::names() {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        assert!("qcow3".parse::<Format>().unwrap_err().contains("qcow2, vmdk"));
    }
}
