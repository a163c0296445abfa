//! Overlays. The input is an overlay's file, used unchanged and again with the header's checksum corrected: opened
//! after a kill and after a power cut, and read.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{bug_free, xxh3};
use platter_image::{Extent, Result};
use platter_vdisk::{Allocation, BlockDevice, Overlay, OverlayOptions};
use platter_vfs::simulated::SimulatedDisk;
use platter_vfs::{OpenMode, Vfs};

/// Bytes of the header before its checksum.
const HEADER_LENGTH: usize = 104;

struct Zeros(u64);

impl BlockDevice for Zeros {
    fn length(&self) -> u64 {
        self.0
    }

    fn read(&self, buffer: &mut [u8], _: u64) -> Result<()> {
        buffer.fill(0);
        Ok(())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Zero);
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    check(input);
    // An encrypted overlay has its domain before the checksum.
    for length in [HEADER_LENGTH, HEADER_LENGTH + 16] {
        if input.len() > length + 8 {
            let mut bytes = input.to_vec();
            let sum = xxh3(&[&bytes[..length]]);
            bytes[length..length + 8].copy_from_slice(&sum.to_le_bytes());
            check(&bytes);
        }
    }
});

fn check(bytes: &[u8]) {
    let path = Path::new("/overlay");
    for boot in [0, 1] {
        let disk = SimulatedDisk::new(1);
        // A log may begin at any offset: the file must not grow without bound.
        disk.set_capacity(16 << 20);
        let file = disk.open(path, OpenMode::CreateNew).expect("a new disk");
        file.write_all_at(bytes, 0).expect("a new disk");
        let Some(header) = bug_free(Overlay::header(&disk, path)) else { return };
        // The caller of `open` knows the disk's length.
        if header.disk_length > 64 << 20 {
            return;
        }
        let mut boot_id = header.boot_id;
        boot_id[0] ^= boot;
        let options = OverlayOptions {
            base_score: header.base_score,
            domain: header.domain,
            edit_lock: header.edit_lock,
            boot_id,
        };
        let base = Arc::new(Zeros(header.disk_length));
        let Some(overlay) = bug_free(Overlay::open(&disk, path, &options, base)) else { continue };
        let mut buffer = vec![0; header.disk_length.min(64 << 10) as usize];
        let _ = bug_free(overlay.read(&mut buffer, 0));
        overlay.dirty();
    }
}
