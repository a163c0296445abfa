//! Images of virtual machines: opened and read completely. The input is one byte of choices and a list of edits to a small
//! real one.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use platter_formats::{Format, open};
use platter_fuzz::{BaseDisk, bug_free};
use platter_image::DiskRead;

/// A disk that claims to be longer is not read in full.
const READ_MAX: u64 = 4 << 20;

/// Each of these holds the same disk of 192 KiB.
static BASES: LazyLock<Vec<(Format, BaseDisk)>> = LazyLock::new(|| {
    vec![
        (Format::Qcow2, BaseDisk::unpack(include_bytes!("../images/qcow2.zst"))),
        (Format::Qcow2, BaseDisk::unpack(include_bytes!("../images/qcow2-zlib.zst"))),
        (Format::Qcow2, BaseDisk::unpack(include_bytes!("../images/qcow2-zstd.zst"))),
        (Format::Vmdk, BaseDisk::unpack(include_bytes!("../images/vmdk.zst"))),
        (Format::Vmdk, BaseDisk::unpack(include_bytes!("../images/vmdk-stream.zst"))),
        (Format::Vdi, BaseDisk::unpack(include_bytes!("../images/vdi.zst"))),
        (Format::Vhd, BaseDisk::unpack(include_bytes!("../images/vhd.zst"))),
        (Format::Vhdx, BaseDisk::unpack(include_bytes!("../images/vhdx.zst"))),
    ]
});

/// The CRC-32C of a structure of VHDX, in its bytes 4 to 7.
fn mend_crc(bytes: &mut [u8]) {
    bytes[4..8].fill(0);
    let sum = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// The inverted sum of a structure of VHD.
fn mend_sum(bytes: &mut [u8], at: usize) {
    bytes[at..at + 4].fill(0);
    let sum = !bytes.iter().fold(0_u32, |sum, byte| sum.wrapping_add(u32::from(*byte)));
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
}

/// Corrects the checksums, so that edits reach what is behind them.
fn mend(format: Format, file: &mut [u8]) {
    let length = file.len();
    match format {
        Format::Vhdx if length >= 320 << 10 => {
            for start in [64 << 10, 128 << 10] {
                mend_crc(&mut file[start..start + 4096]);
            }
            for start in [192 << 10, 256 << 10] {
                mend_crc(&mut file[start..start + (64 << 10)]);
            }
        }
        Format::Vhd if length >= 2048 => {
            mend_sum(&mut file[length - 512..], 64);
            mend_sum(&mut file[512..1536], 36);
        }
        _ => {}
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let (format, base) = &BASES[usize::from(choices & 7)];
    let mut file = base.edited(edits);
    if choices & 8 != 0 {
        file.truncate(file.len() * usize::from(choices >> 4) / 16 / 512 * 512);
    }
    if choices & 8 == 0 && choices & 0x40 == 0 {
        mend(*format, &mut file);
    }
    let below: Option<Box<dyn DiskRead>> =
        (choices & 0x10 != 0 && *format == Format::Qcow2).then(|| Box::new(vec![7_u8; 4096]) as _);
    let opened = bug_free(open(Box::new(&file), *format, below));
    let is_unedited = input.len() == 1 && choices & 0xf8 == 0;
    let Some(disk) = opened else {
        assert!(!is_unedited, "{format} is not read");
        return;
    };
    let data = bug_free(disk.data_extents()).flatten();
    let mut bytes = vec![0; 4096];
    let mut sum = 0_u64;
    for offset in (0..disk.length().min(READ_MAX)).step_by(bytes.len()) {
        let now = (disk.length() - offset).min(bytes.len() as u64) as usize;
        if let Err(error) = disk.read_exact_at(&mut bytes[..now], offset) {
            assert!(!is_unedited, "{format}: {error}");
            continue;
        }
        let is_zero = bytes[..now].iter().all(|byte| *byte == 0);
        let end = offset + now as u64;
        let is_data = data
            .as_ref()
            .is_none_or(|data| data.clip(platter_image::Extent::between(offset, end)).next().is_some());
        assert!(is_zero || is_data, "{format}: data at {offset} that is not listed");
        sum = bytes[..now].iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    }
    if is_unedited {
        assert_eq!((disk.length(), sum), (192 << 10, SUM), "{format} holds other bytes");
    }
});

/// A sum over the bytes of the disk.
const SUM: u64 = 3_109_041_026_266_077_146;
