//! Small files that are read and replaced as a whole. A reader sees the old or the new contents, never a
//! mixture, even after a crash.

use std::io;
use std::path::Path;

use crate::{OpenMode, Vfs};

/// Suffix of an incomplete file's name.
const NEW_SUFFIX: &str = "new";

/// Replaces a file's contents durably: writes them to a temporary file beside it and renames that.
///
/// # Errors
/// System errors; the file then has its old contents or the new ones.
pub fn replace(vfs: &dyn Vfs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(NEW_SUFFIX);
    let new = Path::new(&name);
    remove_if_there(vfs, new)?;
    let file = vfs.open(new, OpenMode::CreateNew)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    drop(file);
    vfs.rename(new, path)?;
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => vfs.sync_dir(dir),
        _ => vfs.sync_dir(Path::new(".")),
    }
}

/// The contents of a file; `None` if it does not exist.
///
/// # Errors
/// `InvalidData` when it has more than `length_max` bytes; other system errors.
pub fn read_whole(vfs: &dyn Vfs, path: &Path, length_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match vfs.open(path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let length = file.length()?;
    if length > length_max {
        let what = format!("the file has {length} bytes, at most {length_max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Some(bytes))
}

fn remove_if_there(vfs: &dyn Vfs, path: &Path) -> io::Result<()> {
    match vfs.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{CrashProfile, Fault, FaultKind, SimulatedDisk};

    /// Stopped at every call and crashed in every way, the file has its old or its new contents.
    #[test]
    fn replacing_a_file_is_atomic() {
        let path = Path::new("/x");
        for call in 1.. {
            let disk = SimulatedDisk::new(call);
            replace(&disk, path, b"old").unwrap();
            disk.set_fault(Some(Fault { call, kind: FaultKind::Halt, persistent: true, only: None }));
            let replaced = replace(&disk, path, b"newer");
            let is_done = disk.fault_hits() == 0;
            for (seed, profile) in (0..).zip(CrashProfile::EVERY) {
                let crashed = disk.fork();
                crashed.crash(profile, seed);
                let found = read_whole(&crashed, path, 5).unwrap().unwrap();
                assert!(found == b"newer" || found == b"old" && !is_done, "{call} {profile:?}: {found:?}");
            }
            if is_done {
                replaced.unwrap();
                break;
            }
        }
    }

    #[test]
    fn a_missing_file_is_none_and_a_long_one_is_refused() {
        let disk = SimulatedDisk::new(1);
        assert_eq!(read_whole(&disk, Path::new("/x"), 9).unwrap(), None);
        replace(&disk, Path::new("/x"), b"four").unwrap();
        assert!(read_whole(&disk, Path::new("/x"), 3).is_err());
    }
}
