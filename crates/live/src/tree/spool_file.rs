//! One opening of a file that becomes a version.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_export::tree::{Access, OpenFile};
use platter_image::{Error, Extent, IoContext, Result};
use platter_vdisk::Allocation;

use super::holes::{data, punch};
use super::spool::Spool;

/// One opening of a spool.
pub(super) struct SpoolFile {
    spool: Arc<Spool>,
    access: Access,
}

impl SpoolFile {
    /// Opens it once more. Readers find the bytes in the file.
    pub(super) fn open(spool: Arc<Spool>, access: Access) -> Result<Self> {
        if access != Access::Write {
            spool.on_file(|_| Ok(()), String::new)?;
        }
        Ok(Self { spool, access })
    }

    fn check_writable(&self) -> Result<()> {
        match self.access {
            Access::Read => Err(Error::refused(format!("{} was opened read-only", self.spool.path))),
            Access::Write | Access::ReadWrite => Ok(()),
        }
    }
}

impl OpenFile for SpoolFile {
    fn length(&self) -> u64 {
        self.spool.length()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let what = || format!("reading {} bytes at {offset} of {}", buffer.len(), self.spool.path);
        let what = what();
        self.spool.on_file(|file| file.read_exact_at(buffer, offset), || what)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_writable()?;
        let what = || format!("writing {} bytes at {offset} of {}", bytes.len(), self.spool.path);
        self.spool.on_file(|file| file.write_all_at(bytes, offset), what)?;
        self.spool.changed();
        Ok(())
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.check_writable()?;
        let spool = &self.spool;
        let taken = spool.taken.read();
        let is_apart = taken.as_ref().is_some_and(|taken| taken.extents().clip(range).next().is_none());
        drop(taken);
        let what = || format!("zeroing {} bytes at {} of {}", range.length, range.offset, spool.path);
        let act = |file: &File| punch(file, range);
        if is_apart {
            act(&spool.file).context(what)?;
        } else {
            spool.on_file(act, what)?;
        }
        spool.changed();
        Ok(())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.check_writable()?;
        let spool = &self.spool;
        if spool.length() == length {
            return Ok(());
        }
        let what = || format!("setting the length of {} to {length}", spool.path);
        let taken = spool.taken_mut();
        let is_apart =
            taken.as_ref().is_some_and(|taken| taken.ranges.iter().all(|range| range.end() <= length));
        if is_apart {
            spool.file.set_len(length).context(what)?;
        } else {
            drop(taken);
            spool.on_file(|file| file.set_len(length), what)?;
        }
        spool.changed();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.spool.file.sync_all().context(|| format!("syncing {}", self.spool.path))
    }

    fn close(&self) -> Result<()> {
        match self.access {
            Access::Read => Ok(()),
            Access::Write | Access::ReadWrite => self.spool.close(),
        }
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.spool.on_file(|_| Ok(()), String::new)?;
        let mut offset = range.offset;
        for run in &data(&self.spool.file, range)? {
            let hole = Extent::between(offset, run.offset);
            offset = run.end();
            if hole.length > 0 && !visit(hole, Allocation::Zero) || !visit(*run, Allocation::Data) {
                return Ok(());
            }
        }
        if offset < range.end() {
            visit(Extent::between(offset, range.end()), Allocation::Zero);
        }
        Ok(())
    }

    fn take_over(&self, source: &dyn OpenFile, range: Extent, offset: u64) -> Result<bool> {
        self.check_writable()?;
        match source.score() {
            Some(score) if range.offset == offset && range.length > 0 => self.spool.take_over(score, range),
            _ => Ok(false),
        }
    }

    fn backing(&self) -> Option<BorrowedFd<'_>> {
        let taken = self.spool.taken.read();
        if taken.is_some() {
            return None;
        }
        self.spool.is_backing.store(true, Ordering::Relaxed);
        Some(self.spool.file.as_fd())
    }
}
