//! Reads a disk with unreadable sectors.
//!
//! A failed read is repeated sector by sector, bypassing the system's cache if possible, because the cache
//! reads 4 KiB pages and one bad sector makes its whole page unreadable. A sector that still cannot be read
//! ends the job or, with `skips`, reads as zeros and is recorded. Zeros, so that an installed copy has the
//! same bytes everywhere, and old contents of the target are not mistaken for contents of a file.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;

use platter_image::{DiskRead, Extent, Extents};

use super::Source;

/// The most bad sectors before a disk is given up: each costs seconds.
const BAD_SECTORS_MAX: usize = 65_536;

/// A disk read in spite of bad sectors.
#[derive(Debug)]
pub struct Salvaged<'s, D = Source> {
    disk: &'s D,
    /// Unreadable sectors become zeros.
    skips: bool,
    /// Offsets of the unreadable sectors.
    bad: Mutex<BTreeSet<u64>>,
}

/// A disk that may have another way to read a single sector.
pub trait SectorRead: DiskRead {
    /// Reads one sector, directly from the device if possible.
    ///
    /// # Errors
    /// Errors of the device.
    fn read_sector(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl<'s, D: SectorRead> Salvaged<'s, D> {
    /// Wraps a disk. With `skips`, unreadable sectors become zeros; otherwise they end the job.
    pub fn new(disk: &'s D, skips: bool) -> Self {
        Self { disk, skips, bad: Mutex::default() }
    }

    /// The ranges that could not be read so far.
    pub fn bad(&self) -> Extents {
        let sector = u64::from(self.disk.sector_size());
        let bad = self.bad.lock();
        bad.iter().map(|start| Extent::between(*start, (start + sector).min(self.disk.length()))).collect()
    }

    fn read_by_sectors(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let sector = u64::from(self.disk.sector_size());
        let mut bytes = vec![0; sector as usize];
        let end = offset + buffer.len() as u64;
        let mut at = offset / sector * sector;
        while at < end {
            let inside = Extent::between(at.max(offset), (at + sector).min(end));
            let wanted = &mut buffer[(inside.offset - offset) as usize..][..inside.length as usize];
            let whole = sector.min(self.disk.length() - at) as usize;
            // A sector that was bad once stays zeros: another try costs seconds and may return other bytes.
            let read = match self.is_noted(at) {
                true => Err(io::ErrorKind::Other.into()),
                false => self.disk.read_sector(&mut bytes[..whole], at),
            };
            match read {
                Ok(()) => wanted.copy_from_slice(&bytes[(inside.offset - at) as usize..][..wanted.len()]),
                Err(error) if !self.skips => {
                    let text = format!(
                        "the sector at offset {at} cannot be read: {error} (use --skip-bad to replace such sectors with zeros)"
                    );
                    return Err(io::Error::new(error.kind(), text));
                }
                Err(_) => {
                    wanted.fill(0);
                    self.note(at)?;
                }
            }
            at += sector;
        }
        Ok(())
    }

    fn is_noted(&self, sector: u64) -> bool {
        self.bad.lock().contains(&sector)
    }

    fn note(&self, sector: u64) -> io::Result<()> {
        let mut bad = self.bad.lock();
        if bad.len() >= BAD_SECTORS_MAX && !bad.contains(&sector) {
            let text = format!("the disk has more than {BAD_SECTORS_MAX} unreadable sectors");
            return Err(io::Error::other(text));
        }
        bad.insert(sector);
        Ok(())
    }
}

impl<D: SectorRead> DiskRead for Salvaged<'_, D> {
    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn sector_size(&self) -> u32 {
        self.disk.sector_size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.disk.read_exact_at(buffer, offset) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                self.read_by_sectors(buffer, offset)
            }
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A disk with two unreadable sectors; a read that includes one of them fails as a whole.
    #[derive(Default)]
    struct Failing(AtomicU64);

    impl DiskRead for Failing {
        fn length(&self) -> u64 {
            1 << 20
        }

        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let read = Extent::new(offset, buffer.len() as u64);
            let is_bad = |at: u64| Extent::new(at, 512).intersect(&read).is_some();
            if is_bad(5120) || is_bad(81_920) {
                return Err(io::Error::other("medium error"));
            }
            buffer.fill(7);
            Ok(())
        }
    }

    impl SectorRead for Failing {}

    #[test]
    fn only_bad_sectors_become_zeros() {
        let disk = Failing::default();
        let salvaged = Salvaged::new(&disk, true);
        let mut bytes = vec![1; 100_000];
        salvaged.read_exact_at(&mut bytes, 100).unwrap();
        for (at, byte) in (100..).zip(&bytes) {
            let is_bad = (5120..5632).contains(&at) || (81_920..82_432).contains(&at);
            assert_eq!(*byte, if is_bad { 0 } else { 7 }, "byte {at}");
        }
        salvaged.read_exact_at(&mut bytes[..1024], 5120).unwrap();
        let bad: Vec<Extent> = salvaged.bad().iter().copied().collect();
        assert_eq!(bad, [Extent::new(5120, 512), Extent::new(81_920, 512)]);
        let reads = disk.0.load(Ordering::Relaxed);
        salvaged.read_exact_at(&mut bytes[..10_000], 200_000).unwrap();
        assert_eq!(disk.0.load(Ordering::Relaxed), reads + 1, "good sectors are read in one call");
    }

    /// A disk with only bad sectors; it counts the sectors requested.
    #[derive(Default)]
    struct Dead(AtomicU64);

    impl DiskRead for Dead {
        fn length(&self) -> u64 {
            1 << 40
        }

        fn read_exact_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<()> {
            Err(io::Error::other("medium error"))
        }
    }

    impl SectorRead for Dead {
        fn read_sector(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            self.read_exact_at(buffer, offset)
        }
    }

    #[test]
    fn known_bad_sectors_are_not_read_again_up_to_the_limit() {
        let disk = Dead::default();
        let salvaged = Salvaged::new(&disk, true);
        let mut bytes = vec![1; 512 * BAD_SECTORS_MAX];
        salvaged.read_exact_at(&mut bytes, 0).unwrap();
        salvaged.read_exact_at(&mut bytes, 0).expect("no sector is new");
        assert!(bytes.iter().all(|byte| *byte == 0));
        let asked = disk.0.load(Ordering::Relaxed);
        assert_eq!(asked, BAD_SECTORS_MAX as u64, "known bad sectors are not tried again");
        let error = salvaged.read_exact_at(&mut bytes[..512], 512 * BAD_SECTORS_MAX as u64).unwrap_err();
        assert!(error.to_string().contains("more than 65536"), "{error}");
        assert_eq!(salvaged.bad().total(), 512 * BAD_SECTORS_MAX as u64);
    }

    #[test]
    fn a_bad_sector_ends_the_job_unless_skipped() {
        let disk = Failing::default();
        let error = Salvaged::new(&disk, false).read_exact_at(&mut [0; 4096], 4096).unwrap_err();
        assert!(error.to_string().contains("the sector at offset 5120"), "{error}");
    }
}
