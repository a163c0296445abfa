//! Streams that hold a disk: unpacked completely. The input is one byte of choices and a list of edits to a small real one.

#![no_main]

use std::io::{self, Read};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use platter_formats::{
    Compression, Folder, Format, Spool, read_clonezilla, read_ndz, read_partclone, read_raw,
};
use platter_fuzz::{BaseDisk, bug_free};

/// A disk is kept up to this length; bytes after it are only counted.
const KEPT_MAX: u64 = 2 << 20;
/// Sums over the bytes of the two disks in the bases.
const DISK_SUM: u64 = 17_525_091_225_587_365_951;
const FILESYSTEM_SUM: u64 = 1_377_892_077_468_472_552;

static BASES: LazyLock<Vec<(Format, u64, BaseDisk)>> = LazyLock::new(|| {
    let base = |format, sum, packed: &[u8]| (format, sum, BaseDisk::unpack(packed));
    vec![
        base(Format::Ndz, DISK_SUM, include_bytes!("../images/ndz-3.zst")),
        base(Format::Ndz, DISK_SUM, include_bytes!("../images/ndz-5.zst")),
        base(Format::Partclone, FILESYSTEM_SUM, include_bytes!("../images/ptcl.zst")),
        base(Format::Partclone, FILESYSTEM_SUM, include_bytes!("../images/ptcl-plain.zst")),
        base(gz(Compression::Gzip), FILESYSTEM_SUM, include_bytes!("../images/fs-gz.zst")),
        base(gz(Compression::Zstd), FILESYSTEM_SUM, include_bytes!("../images/fs-zst.zst")),
        base(gz(Compression::Xz), FILESYSTEM_SUM, include_bytes!("../images/fs-xz.zst")),
        base(Format::Clonezilla, FILESYSTEM_SUM, include_bytes!("../images/ptcl.zst")),
    ]
});

fn gz(compression: Compression) -> Format {
    Format::Compressed(compression)
}

/// The start of a disk, in memory.
#[derive(Default)]
struct Memory(Vec<u8>);

impl Spool for Memory {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).expect("an offset of a disk");
        if end <= KEPT_MAX {
            let end = end as usize;
            self.0.resize(self.0.len().max(end), 0);
            self.0[end - bytes.len()..end].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn read_exact_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(self.0.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A folder of a disk whose only partition begins at its start, so that its boot block is the boot sector.
struct Files {
    table: Vec<u8>,
    length: Vec<u8>,
    image: Vec<u8>,
}

impl Folder for Files {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = [
            "disk",
            "sda-pt.sf",
            "sda-pt.parted",
            "sda-mbr",
            "sda1.ext2-ptcl-img.uncomp.aa",
            "sda1.ext2-ptcl-img.uncomp.ab",
        ];
        Ok(names.map(str::to_owned).to_vec())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let (first, second) = self.image.split_at(self.image.len() / 2);
        Ok(Box::new(match name {
            "disk" => &b"sda\n"[..],
            "sda-pt.sf" => &self.table,
            "sda-pt.parted" => &self.length,
            "sda-mbr" => &[0; 512],
            "sda1.ext2-ptcl-img.uncomp.aa" => first,
            _ => second,
        }))
    }
}

/// Edits of the folder's texts come from the end of the input.
fn folder(image: Vec<u8>, edits: &[u8]) -> Files {
    let mut table = b"label: dos\n/dev/sda1 : start= 0, size= 1024, type=83\n".to_vec();
    let mut length = b"Disk /dev/sda: 1024s\n".to_vec();
    for edit in edits.rchunks_exact(8).take(2).filter(|edit| edit[2] & 1 != 0) {
        let text = if edit[3] & 1 == 0 { &mut table } else { &mut length };
        let at = usize::from(edit[0]) % text.len();
        text[at] = edit[4];
    }
    Files { table, length, image }
}

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let (format, sum, base) = &BASES[usize::from(choices & 7)];
    let mut file = base.edited(edits);
    if choices & 8 != 0 {
        file.truncate(file.len() * usize::from(choices >> 4) / 16);
    }
    // The checksum of the header of partclone hides what is behind it.
    if matches!(format, Format::Partclone | Format::Clonezilla) && choices & 0x80 == 0 && file.len() > 110 {
        let crc = crc::Crc::<u32>::new(&crc::Algorithm { xorout: 0, ..crc::CRC_32_ISO_HDLC });
        let header = crc.checksum(&file[..106]).to_le_bytes();
        file[106..110].copy_from_slice(&header);
    }
    let mut disk = Memory::default();
    let length = bug_free(match format {
        Format::Ndz => read_ndz(&mut &file[..], &mut disk),
        Format::Partclone => read_partclone(&mut &file[..], &mut disk),
        Format::Clonezilla => read_clonezilla(&folder(file, edits), None, &mut disk),
        Format::Compressed(compression) => {
            read_raw(&mut compression.decompress(Box::new(&file[..])), &mut disk)
        }
        _ => return,
    });
    if input.len() == 1 && choices & 8 == 0 {
        let length = length.expect("it is unpacked");
        disk.0.resize(length as usize, 0);
        let found =
            disk.0.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        assert_eq!(found, *sum, "{format} has other bytes");
    }
});
