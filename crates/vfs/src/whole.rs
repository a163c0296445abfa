//! Small files that are read and replaced as a whole: whoever reads one sees what it was before or after, never between, also
//! after a crash.

use std::io;
use std::path::Path;

use crate::{OpenMode, Vfs};

/// Ends the name of a file that is not whole yet.
const NEW_SUFFIX: &str = "new";

/// Gives a file these bytes, durably: they go to another name beside it, which then replaces it.
///
/// # Errors
/// What the system says; the file then holds what it held before, or these bytes.
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

/// The bytes of a file; `None` when there is none.
///
/// # Errors
/// `InvalidData` when it is longer than `length_max`; or what the system says.
pub fn read_whole(vfs: &dyn Vfs, path: &Path, length_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match vfs.open(path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let length = file.length()?;
    if length > length_max {
        let what = format!("{length} bytes, {length_max} at most");
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

    /// Stopped at every call, then crashed in every way: the file is the old or the new one.
    #[test]
    fn a_file_is_replaced_whole_or_not() {
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
    fn what_is_missing_is_none_and_what_is_too_long_is_refused() {
        let disk = SimulatedDisk::new(1);
        assert_eq!(read_whole(&disk, Path::new("/x"), 9).unwrap(), None);
        replace(&disk, Path::new("/x"), b"four").unwrap();
        assert!(read_whole(&disk, Path::new("/x"), 3).is_err());
    }
}
