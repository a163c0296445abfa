//! The simulated disk: names, open files, and counted calls. A crash makes every open file stale.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::crash::{Choice, CrashProfile, Random};
use super::fault::{Fault, FaultKind, Faults, Operation, error_of};
use super::file::FileBytes;
use crate::{Entry, OpenMode, Vfs, VfsFile};

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

/// A change of a directory's names that was not synced.
#[derive(Clone, Debug)]
struct PendingName {
    dir: PathBuf,
    change: NameChange,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(PathBuf, Node),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

#[derive(Debug)]
struct State {
    files: Vec<FileBytes>,
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    pending_names: Vec<PendingName>,
    locks: BTreeSet<usize>,
    faults: Faults,
    calls: u64,
    syncs: u64,
    bytes_read: u64,
    /// The most bytes of all files together.
    capacity: u64,
    /// Incremented by each crash; files opened before are stale.
    boot: u64,
    random: Random,
}

/// An in-memory disk, shared by all its clones. See the module documentation.
#[derive(Clone, Debug)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// An empty disk with the root directory `/`. The seed determines [`Vfs::random_id`] and flipped bits.
    pub fn new(seed: u64) -> Self {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Dir)]);
        Self(Arc::new(Mutex::new(State {
            files: Vec::new(),
            names: root.clone(),
            durable_names: root,
            pending_names: Vec::new(),
            locks: BTreeSet::new(),
            faults: Faults::default(),
            calls: 0,
            syncs: 0,
            bytes_read: 0,
            capacity: u64::MAX,
            boot: 0,
            random: Random::new(seed),
        })))
    }

    /// Plans a failure (or none), and starts counting calls.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.state().faults.set(fault);
    }

    /// How many calls the planned failure has hit since it was set.
    pub fn fault_hits(&self) -> u64 {
        self.state().faults.hits()
    }

    /// Bytes in files, which count against the capacity.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Limits the total bytes in files: a write beyond the limit is shortened, and the next one fails.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Number of syncs of files and directories so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Number of bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.state().bytes_read
    }

    /// Cuts the power and restarts the machine: pending operations survive as profile and seed decide;
    /// planned faults are cleared, open files become stale, locks are released.
    pub fn crash(&self, profile: CrashProfile, seed: u64) {
        let mut guard = self.state();
        let state = &mut *guard;
        let in_files: usize = state.files.iter().map(FileBytes::pending).sum();
        let mut choice = Choice::new(profile, seed, (in_files + state.pending_names.len()) as u64);
        for file in &mut state.files {
            choice.start_run(file.pending() as u64);
            file.crash(&mut choice);
        }
        choice.start_run(state.pending_names.len() as u64);
        for pending in std::mem::take(&mut state.pending_names) {
            if choice.keeps() {
                apply(&mut state.durable_names, &pending.change);
            }
        }
        remove_orphans(&mut state.durable_names);
        state.names = state.durable_names.clone();
        state.locks.clear();
        state.faults.set(None);
        state.boot += 1;
    }

    /// The bytes of a file as programs see them, or `None`; for tests that damage files.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let Some(Node::File(file)) = state.names.get(path).copied() else { return None };
        let mut bytes = vec![0; state.files[file].length() as usize];
        state.files[file].read(&mut bytes, 0);
        Some(bytes)
    }

    /// Replaces a file's bytes durably, without counting or faults; for tests that damage files.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        if let Some(Node::File(file)) = state.names.get(path).copied() {
            state.files[file].set_length(0);
            state.files[file].write(bytes, 0);
            state.files[file].sync();
        }
    }

    /// An independent copy of the disk, for tests that try many kinds of damage on one state.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.state();
        Self(Arc::new(Mutex::new(State {
            files: state.files.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            pending_names: state.pending_names.clone(),
            locks: BTreeSet::new(),
            faults: Faults::default(),
            calls: 0,
            syncs: 0,
            bytes_read: 0,
            capacity: state.capacity,
            boot: 0,
            random: state.random.clone(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    fn handle(&self, state: &State, file: usize, is_lock: bool, writable: bool) -> Box<dyn VfsFile> {
        Box::new(SimulatedFile { disk: self.clone(), file, boot: state.boot, is_lock, writable })
    }
}

impl State {
    /// Counts a call, and returns its error if it fails with one, otherwise the fault if there is one.
    fn begin(&mut self, operation: Operation) -> io::Result<Option<FaultKind>> {
        self.calls += 1;
        self.syncs += u64::from(matches!(operation, Operation::Sync | Operation::SyncDir));
        let fault = self.faults.next(operation);
        match fault.and_then(error_of) {
            Some(error) => Err(error),
            None => Ok(fault),
        }
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change_names(&mut self, dir: &Path, change: NameChange) {
        apply(&mut self.names, &change);
        self.pending_names.push(PendingName { dir: dir.to_path_buf(), change });
    }

    fn create(&mut self, path: &Path, node: Node) -> io::Result<()> {
        let dir = parent(path)?;
        if self.node(dir)? != Node::Dir {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        self.change_names(dir, NameChange::Link(path.to_path_buf(), node));
        Ok(())
    }

    fn open(&mut self, path: &Path, mode: OpenMode) -> io::Result<usize> {
        match self.names.get(path).copied() {
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) if mode == OpenMode::CreateNew => Err(io::ErrorKind::AlreadyExists.into()),
            Some(Node::File(file)) => Ok(file),
            None if matches!(mode, OpenMode::Read | OpenMode::Write) => Err(io::ErrorKind::NotFound.into()),
            None => {
                let file = self.files.len();
                self.create(path, Node::File(file))?;
                self.files.push(FileBytes::default());
                Ok(file)
            }
        }
    }

    /// Bytes in files that have a name, or would have one after a power failure.
    fn used(&self) -> u64 {
        let mut files: Vec<usize> = Vec::new();
        for node in self.names.values().chain(self.durable_names.values()) {
            if let Node::File(file) = node {
                files.push(*file);
            }
        }
        files.sort_unstable();
        files.dedup();
        files.into_iter().map(|file| self.files[file].length()).sum()
    }

    /// How many of `count` bytes at `offset` of that file fit on the disk.
    fn room(&self, file: usize, offset: u64, count: usize) -> usize {
        if self.capacity == u64::MAX {
            return count;
        }
        let used = self.used();
        let length = self.files[file].length();
        let end_max = length.saturating_add(self.capacity.saturating_sub(used));
        (end_max.saturating_sub(offset)).min(count as u64) as usize
    }
}

impl Vfs for SimulatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn VfsFile>> {
        let mut state = self.state();
        state.begin(Operation::Open)?;
        let file = state.open(path, mode)?;
        Ok(self.handle(&state, file, false, mode != OpenMode::Read))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::Rename)?;
        let node = state.node(from)?;
        let dir = parent(to)?.to_path_buf();
        state.node(&dir)?;
        state.change_names(&dir, NameChange::Rename(from.to_path_buf(), to.to_path_buf(), node));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::Remove)?;
        if state.node(path)? == Node::Dir {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let dir = parent(path)?.to_path_buf();
        state.change_names(&dir, NameChange::Unlink(path.to_path_buf()));
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::CreateDir)?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.create(path, Node::Dir)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        let begun = state.begin(Operation::SyncDir);
        if state.node(path)? != Node::Dir {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let pending = std::mem::take(&mut state.pending_names);
        let (mine, others): (Vec<_>, Vec<_>) = pending.into_iter().partition(|pending| pending.dir == path);
        state.pending_names = others;
        // Names whose sync failed are discarded like the bytes of a file, unless the machine merely stopped.
        match begun {
            Ok(_) => {
                for pending in &mine {
                    apply(&mut state.durable_names, &pending.change);
                }
            }
            Err(_) if state.faults.is_halted() => state.pending_names.extend(mine),
            Err(_) => {}
        }
        begun.map(|_| ())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut state = self.state();
        state.begin(Operation::Look)?;
        if state.node(path)? != Node::Dir {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let children = state.names.iter().filter(|(name, _)| name.parent() == Some(path));
        Ok(children
            .filter_map(|(name, node)| {
                let name = name.file_name()?.to_str()?.to_owned();
                Some(Entry { name, is_dir: *node == Node::Dir })
            })
            .collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.state();
        state.begin(Operation::Look)?;
        Ok(state.names.contains_key(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn VfsFile>>> {
        let mut state = self.state();
        state.begin(Operation::Lock)?;
        let file = state.open(path, OpenMode::Create)?;
        Ok(state.locks.insert(file).then(|| self.handle(&state, file, true, true)))
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let state = self.state();
        state.node(dir)?;
        Ok(state.capacity.saturating_sub(state.used()))
    }

    fn random_id(&self) -> io::Result<[u8; 16]> {
        let mut state = self.state();
        let halves = [state.random.next(), state.random.next()];
        let mut id = [0; 16];
        id[..8].copy_from_slice(&halves[0].to_le_bytes());
        id[8..].copy_from_slice(&halves[1].to_le_bytes());
        Ok(id)
    }
}

/// An open file of the disk.
#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
    boot: u64,
    is_lock: bool,
    writable: bool,
}

impl SimulatedFile {
    fn begin(&self, operation: Operation) -> io::Result<(MutexGuard<'_, State>, Option<FaultKind>)> {
        let mut state = self.disk.state();
        if state.boot != self.boot {
            return Err(io::Error::other("this file was open when the simulated machine crashed"));
        }
        if !self.writable && matches!(operation, Operation::Write | Operation::SetLength | Operation::Punch) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let fault = state.begin(operation);
        if fault.is_err() && operation == Operation::Sync && !state.faults.is_halted() {
            state.files[self.file].forget_pending();
        }
        fault.map(|fault| (state, fault))
    }
}

impl VfsFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut state, fault) = self.begin(Operation::Read)?;
        let count = state.files[self.file].read(buffer, offset);
        state.bytes_read += count as u64;
        if fault == Some(FaultKind::FlippedBit) && count > 0 {
            let at = state.random.next() as usize % count;
            buffer[at] ^= 1 << (state.random.next() % 8);
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (mut state, fault) = self.begin(Operation::Write)?;
        let wanted = if fault == Some(FaultKind::ShortWrite) { bytes.len().div_ceil(2) } else { bytes.len() };
        let count = state.room(self.file, offset, wanted);
        if count == 0 && !bytes.is_empty() {
            return Err(error_of(FaultKind::NoSpace).unwrap_or_else(|| io::ErrorKind::StorageFull.into()));
        }
        state.files[self.file].write(&bytes[..count], offset);
        Ok(count)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let (mut state, _) = self.begin(Operation::SetLength)?;
        state.files[self.file].set_length(length);
        Ok(())
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let (mut state, _) = self.begin(Operation::Punch)?;
        state.files[self.file].punch(offset, length);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, _) = self.begin(Operation::Sync)?;
        state.files[self.file].sync();
        Ok(())
    }

    fn drop_cache(&self) -> io::Result<()> {
        let (mut state, _) = self.begin(Operation::Look)?;
        state.files[self.file].drop_cache();
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let (state, _) = self.begin(Operation::Look)?;
        Ok(state.files[self.file].length())
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if self.is_lock && state.boot == self.boot {
            state.locks.remove(&self.file);
        }
    }
}

fn parent(path: &Path) -> io::Result<&Path> {
    path.parent().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn apply(names: &mut BTreeMap<PathBuf, Node>, change: &NameChange) {
    match change {
        NameChange::Link(path, node) => {
            names.insert(path.clone(), *node);
        }
        NameChange::Unlink(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to, node) => {
            names.remove(from);
            names.insert(to.clone(), *node);
        }
    }
}

/// Removes names in directories that did not survive.
fn remove_orphans(names: &mut BTreeMap<PathBuf, Node>) {
    let dirs: BTreeSet<PathBuf> =
        names.iter().filter(|(_, node)| **node == Node::Dir).map(|(path, _)| path.clone()).collect();
    names.retain(|path, _| path.ancestors().skip(1).all(|dir| dirs.contains(dir)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        PathBuf::from("/").join(name)
    }

    fn written(disk: &SimulatedDisk, name: &str, bytes: &[u8]) -> Box<dyn VfsFile> {
        let file = disk.open(&path(name), OpenMode::Create).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn a_synced_file_without_a_synced_name_is_lost() {
        let disk = SimulatedDisk::new(1);
        written(&disk, "a", b"abc").sync().unwrap();
        let kept = disk.fork();
        kept.sync_dir(&path("")).unwrap();
        disk.crash(CrashProfile::Nothing, 1);
        kept.crash(CrashProfile::Nothing, 1);
        assert_eq!(disk.contents(&path("a")), None);
        assert_eq!(kept.contents(&path("a")).unwrap(), b"abc");
    }

    #[test]
    fn a_synced_name_without_a_synced_file_is_empty() {
        let disk = SimulatedDisk::new(1);
        let file = written(&disk, "a", b"abc");
        disk.sync_dir(&path("")).unwrap();
        disk.crash(CrashProfile::Nothing, 1);
        assert_eq!(disk.contents(&path("a")).unwrap(), b"");
        assert!(file.sync().is_err(), "files opened before a crash are stale");
    }

    #[test]
    fn the_strict_profile_tears_and_loses_writes_and_grows_files() {
        let (mut torn, mut lost, mut grown, mut whole) = (0, 0, 0, 0);
        for seed in 0..400 {
            let disk = SimulatedDisk::new(0);
            let file = written(&disk, "a", b"");
            disk.sync_dir(&path("")).unwrap();
            file.write_all_at(&[7; 2048], 0).unwrap();
            disk.crash(CrashProfile::StrictPosix, seed);
            let contents = disk.contents(&path("a")).unwrap();
            let good = contents.chunks(512).filter(|sector| sector.iter().all(|byte| *byte == 7)).count();
            match (contents.len(), good) {
                (0, _) => lost += 1,
                (2048, 4) => whole += 1,
                (_, 0) => grown += 1,
                _ => torn += 1,
            }
        }
        assert!(torn > 5 && lost > 5 && grown > 5 && whole > 5, "{torn} {lost} {grown} {whole}");
    }

    #[test]
    fn a_hole_can_be_lost_or_torn_like_a_write() {
        let (mut torn, mut lost, mut whole) = (0, 0, 0);
        for seed in 0..200 {
            let disk = SimulatedDisk::new(0);
            let file = written(&disk, "a", &[7; 2048]);
            file.sync().unwrap();
            disk.sync_dir(&path("")).unwrap();
            file.punch(512, 9999).unwrap();
            assert_eq!(disk.contents(&path("a")).unwrap()[511..513], [7, 0]);
            disk.crash(CrashProfile::StrictPosix, seed);
            let contents = disk.contents(&path("a")).unwrap();
            assert_eq!((contents.len(), contents[511]), (2048, 7));
            match contents.chunks(512).filter(|sector| sector.iter().all(|byte| *byte == 0)).count() {
                0 => lost += 1,
                3 => whole += 1,
                _ => torn += 1,
            }
        }
        assert!(torn > 5 && lost > 5 && whole > 5, "{torn} {lost} {whole}");
    }

    /// A filesystem that does not write data before lengths may bring back a file's own old bytes.
    #[test]
    fn truncated_bytes_may_reappear_when_a_file_grows_without_data() {
        let mut back = 0;
        for seed in 0..400 {
            let disk = SimulatedDisk::new(0);
            let file = written(&disk, "a", &[7; 1024]);
            file.sync().unwrap();
            disk.sync_dir(&path("")).unwrap();
            file.set_length(512).unwrap();
            file.sync().unwrap();
            file.write_all_at(&[9; 512], 512).unwrap();
            disk.crash(CrashProfile::StrictPosix, seed);
            back += usize::from(disk.contents(&path("a")).unwrap() == [7; 1024]);
        }
        assert!(back > 5, "{back}");
    }

    #[test]
    fn ext4_keeps_prefixes_and_a_seed_is_reproducible() {
        for seed in 0..100 {
            let run = |profile| {
                let disk = SimulatedDisk::new(0);
                (0..10).for_each(|n| drop(written(&disk, &n.to_string(), b"x")));
                disk.crash(profile, seed);
                disk.list(&path("")).unwrap()
            };
            let names = run(CrashProfile::Ext4Ordered);
            assert!(names.iter().enumerate().all(|(n, entry)| entry.name == n.to_string()));
            assert_eq!(run(CrashProfile::StrictPosix), run(CrashProfile::StrictPosix));
        }
        let left = |profile| {
            let disk = SimulatedDisk::new(0);
            (0..10).for_each(|n| drop(written(&disk, &n.to_string(), b"")));
            disk.crash(profile, 5);
            disk.list(&path("")).unwrap().len()
        };
        assert_eq!([left(CrashProfile::AllButOne), left(CrashProfile::OnlyOne)], [9, 1]);
    }

    /// After a failed sync a later sync succeeds, but has saved nothing.
    #[test]
    fn a_failed_sync_loses_its_data_for_good() {
        let disk = SimulatedDisk::new(1);
        let file = written(&disk, "a", b"abc");
        disk.sync_dir(&path("")).unwrap();
        let fault = Fault { call: 1, kind: FaultKind::Io, persistent: false, only: Some(Operation::Sync) };
        disk.set_fault(Some(fault));
        assert!(file.sync().is_err());
        assert_eq!(disk.fault_hits(), 1);
        file.sync().unwrap();
        assert_eq!(disk.contents(&path("a")).unwrap(), b"abc", "still readable");
        disk.crash(CrashProfile::All, 1);
        assert_eq!(disk.contents(&path("a")).unwrap(), b"");
    }

    #[test]
    fn faults_hit_the_planned_call() {
        let disk = SimulatedDisk::new(1);
        let file = written(&disk, "a", b"");
        let set = |call, kind, persistent| disk.set_fault(Some(Fault { call, kind, persistent, only: None }));
        set(2, FaultKind::NoSpace, true);
        assert_eq!(file.write_at(b"ab", 0).unwrap(), 2);
        for _ in 0..2 {
            let error = file.write_at(b"cd", 2).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        set(1, FaultKind::ShortWrite, false);
        assert_eq!(file.write_at(b"cd", 2).unwrap(), 1);
        set(1, FaultKind::FlippedBit, false);
        let mut bytes = [0; 3];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_ne!(&bytes, b"abc");
        set(1, FaultKind::Halt, false);
        assert!(file.length().is_err() && file.sync().is_err() && disk.list(&path("")).is_err());
        disk.crash(CrashProfile::All, 0);
        assert!(disk.list(&path("")).is_ok());
    }

    #[test]
    fn a_full_disk_shortens_writes() {
        let disk = SimulatedDisk::new(1);
        disk.set_capacity(3);
        let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
        assert_eq!(file.write_at(b"abcd", 0).unwrap(), 3);
        assert_eq!(file.write_at(b"d", 3).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.write_at(b"x", 0).unwrap(), 1, "overwriting needs no space");
    }
}
