//! Directories that are made durable, and files that may be missing.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::Vfs;

/// Removes a file if it exists. Durable after [`Vfs::sync_dir`].
///
/// # Errors
/// System errors other than `NotFound`.
pub fn remove_if_there(vfs: &dyn Vfs, path: &Path) -> io::Result<()> {
    match vfs.remove(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Creates a directory and its missing parents. All of their names are durable on return.
///
/// # Errors
/// System errors.
pub fn create_dirs(vfs: &dyn Vfs, dir: &Path) -> io::Result<()> {
    if vfs.exists(dir)? {
        return Ok(());
    }
    if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
        create_dirs(vfs, above)?;
    }
    match vfs.create_dir(dir) {
        // Another process created it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    match dir.parent() {
        Some(above) if above.as_os_str().is_empty() => vfs.sync_dir(Path::new(".")),
        Some(above) => vfs.sync_dir(above),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::OsVfs;

    #[test]
    fn threads_can_create_the_same_directory_concurrently() {
        let dir = tempfile::tempdir().unwrap();
        let together = Barrier::new(4);
        let make_all = || -> Vec<io::Result<()>> {
            let dirs = (0..200).map(|number| dir.path().join(format!("{number}/packs")));
            let make = |dir: PathBuf| {
                together.wait();
                create_dirs(&OsVfs, &dir)
            };
            dirs.map(make).collect()
        };
        let made: Vec<io::Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make_all)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        made.into_iter().for_each(io::Result::unwrap);
    }
}
