//! This process's limits of open files and of memory, compared with what a predecessor uses, so that a successor that
//! was started with too small limits does not take over.

use std::fs;

use platter_image::{Error, Result};
use rustix::process::{Resource, getrlimit};

/// Files that a successor may need beside those that its predecessor has open.
const FILES_SPARE: u64 = 16;

/// The limited resources that a process uses.
#[derive(Clone, Copy, Debug)]
struct Usage {
    files: u64,
    address_space_bytes: u64,
}

/// Checks whether this process may use as much as the process with this id does. Succeeds when that is unknown.
///
/// # Errors
/// `Refused` when a limit is too small.
pub(super) fn check(process: u32) -> Result<()> {
    let limit = |resource| getrlimit(resource).current;
    match usage(process) {
        Some(usage) => usage.check(limit(Resource::Nofile), limit(Resource::As)),
        None => Ok(()),
    }
}

impl Usage {
    /// Checks these limits; `None` is no limit.
    fn check(self, files: Option<u64>, address_space_bytes: Option<u64>) -> Result<()> {
        let needed = self.files + FILES_SPARE;
        if let Some(files) = files.filter(|files| *files < needed) {
            return Err(Error::refused(format!(
                "this process may open {files} files, and the running node needs {needed}: raise the limit (ulimit -n)"
            )));
        }
        let needed = self.address_space_bytes;
        if let Some(bytes) = address_space_bytes.filter(|bytes| *bytes < needed) {
            return Err(Error::refused(format!(
                "this process may use {bytes} bytes of address space, and the running node uses {needed}: raise the \
                 limit (ulimit -v)"
            )));
        }
        Ok(())
    }
}

fn usage(process: u32) -> Option<Usage> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
    let pages = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = pages.split(' ').next()?.parse().ok()?;
    Some(Usage { files, address_space_bytes: pages * rustix::param::page_size() as u64 })
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;

    use super::*;

    #[test]
    fn a_limit_below_what_the_predecessor_uses_is_refused() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.files > 2 && usage.address_space_bytes > 1 << 20, "{usage:?}");
        let files = usage.files + FILES_SPARE;
        assert!(usage.check(None, None).is_ok());
        assert!(usage.check(Some(files), Some(usage.address_space_bytes)).is_ok());
        for (files, bytes) in [(files - 1, u64::MAX), (u64::MAX, usage.address_space_bytes - 1)] {
            let refused = usage.check(Some(files), Some(bytes)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused);
        }
    }
}
