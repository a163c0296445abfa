//! A tree in memory: files with holes, with bad places, with a gate; and a log of operations.

use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platter_export::tree::{Access, Node, NodeId, NodeKind, OpenFile, ROOT, Room, Tree};
use platter_image::{BlockId, Error, Extent, Extents, Result, Score};
use platter_vdisk::Allocation;

/// Size and alignment of holes: such units of zeros count as holes.
pub(crate) const UNIT: usize = 4096;

/// An operation in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Read(u64, u64),
    Write(u64, u64),
    Zero(u64, u64),
    Length(u64),
    TakeOver(u64, u64, u64),
    Sync,
    Close,
}

#[derive(Default)]
pub(crate) struct MemoryFile {
    pub(crate) bytes: RwLock<Vec<u8>>,
    pub(crate) score: Option<Score>,
    pub(crate) is_read_only: bool,
    /// Its length cannot change, as for a disk.
    pub(crate) is_fixed_length: bool,
    /// Reads here fail: damaged. Writes here fail: no space.
    pub(crate) bad: Extents,
    /// Closing fails.
    pub(crate) is_spoilt: AtomicBool,
    pub(crate) log: Mutex<Vec<Done>>,
    /// A plain file that the kernel reads instead, usually with the same contents.
    pub(crate) plain: Option<std::fs::File>,
}

impl MemoryFile {
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes), ..Self::default() }
    }

    /// A file that never changes, and whose contents other files can take over.
    pub(crate) fn fixed(bytes: Vec<u8>, score: u8) -> Self {
        Self { score: Some(Score(BlockId([score; 32]))), is_read_only: true, ..Self::of(bytes) }
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    pub(crate) fn log(&self) -> Vec<Done> {
        self.log.lock().clone()
    }

    pub(crate) fn did(&self, wanted: impl Fn(&Done) -> bool) -> bool {
        self.log().iter().any(wanted)
    }

    fn note(&self, done: Done) {
        self.log.lock().push(done);
    }

    fn check_bad(&self, offset: u64, length: usize, error: impl Fn(String) -> Error) -> Result<()> {
        match self.bad.clip(Extent::new(offset, length as u64)).next() {
            Some(bad) => Err(error(format!("bad at {}", bad.offset))),
            None => Ok(()),
        }
    }

    fn grow(&self, end: u64) -> Result<()> {
        let mut bytes = self.bytes.write();
        if end as usize > bytes.len() {
            if self.is_fixed_length {
                return Err(full("the file cannot grow".into()));
            }
            bytes.resize(end as usize, 0);
        }
        Ok(())
    }
}

fn full(what: String) -> Error {
    Error::io(what, io::ErrorKind::StorageFull.into())
}

struct Opened {
    file: Arc<MemoryFile>,
    files: Arc<Mutex<HashMap<NodeId, Arc<MemoryFile>>>>,
}

impl OpenFile for Opened {
    fn length(&self) -> u64 {
        self.file.bytes.read().len() as u64
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.note(Done::Read(offset, buffer.len() as u64));
        self.file.check_bad(offset, buffer.len(), Error::corrupt)?;
        buffer.copy_from_slice(&self.file.bytes.read()[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.check_bad(offset, bytes.len(), full)?;
        self.file.grow(offset + bytes.len() as u64)?;
        self.file.note(Done::Write(offset, bytes.len() as u64));
        self.file.bytes.write()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.file.note(Done::Zero(range.offset, range.length));
        self.file.bytes.write()[range.offset as usize..range.end() as usize].fill(0);
        Ok(())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        if self.file.is_fixed_length && length != self.length() {
            return Err(Error::refused("the length is fixed"));
        }
        self.file.note(Done::Length(length));
        self.file.bytes.write().resize(length as usize, 0);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.note(Done::Sync);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.file.note(Done::Close);
        match self.file.is_spoilt.load(Ordering::Relaxed) {
            true => Err(Error::corrupt("what was written is no image")),
            false => Ok(()),
        }
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        let bytes = self.file.contents();
        let mut at = range.offset;
        while at < range.end() {
            let end = ((at as usize / UNIT + 1) * UNIT).min(range.end() as usize);
            let is_zero = bytes[at as usize / UNIT * UNIT..end].iter().all(|byte| *byte == 0);
            let allocation = if is_zero { Allocation::Zero } else { Allocation::Data };
            if !visit(Extent::between(at, end as u64), allocation) {
                break;
            }
            at = end as u64;
        }
        Ok(())
    }

    fn score(&self) -> Option<Score> {
        self.file.score
    }

    fn take_over(&self, source: &dyn OpenFile, range: Extent, offset: u64) -> Result<bool> {
        let Some(score) = source.score() else { return Ok(false) };
        let files = self.files.lock();
        let Some(known) = files.values().find(|file| file.score == Some(score)).cloned() else {
            return Ok(false);
        };
        drop(files);
        self.file.grow(offset + range.length)?;
        let part = known.contents()[range.offset as usize..range.end() as usize].to_vec();
        self.file.bytes.write()[offset as usize..][..part.len()].copy_from_slice(&part);
        self.file.note(Done::TakeOver(range.offset, range.length, offset));
        Ok(true)
    }

    fn backing(&self) -> Option<BorrowedFd<'_>> {
        self.file.plain.as_ref().map(AsFd::as_fd)
    }
}

struct Folder {
    parent: NodeId,
    names: BTreeMap<String, NodeId>,
    is_read_only: bool,
}

struct State {
    folders: HashMap<NodeId, Folder>,
    next: NodeId,
}

pub(crate) struct MemoryTree {
    state: Mutex<State>,
    files: Arc<Mutex<HashMap<NodeId, Arc<MemoryFile>>>>,
}

impl MemoryTree {
    pub(crate) fn new() -> Self {
        let root = Folder { parent: ROOT, names: BTreeMap::new(), is_read_only: false };
        let state = State { folders: HashMap::from([(ROOT, root)]), next: ROOT + 1 };
        Self { state: Mutex::new(state), files: Arc::default() }
    }

    /// Puts a file into the root.
    pub(crate) fn put(&self, name: &str, file: MemoryFile) -> Arc<MemoryFile> {
        let file = Arc::new(file);
        let mut state = self.state.lock();
        let id = state.add(ROOT, name).unwrap();
        self.files.lock().insert(id, Arc::clone(&file));
        file
    }

    pub(crate) fn folder(&self, name: &str, is_read_only: bool) -> NodeId {
        let node = self.make_directory(ROOT, name).unwrap();
        self.state.lock().folders.get_mut(&node.id).unwrap().is_read_only = is_read_only;
        node.id
    }

    /// The file of that name in the root.
    pub(crate) fn file(&self, name: &str) -> Arc<MemoryFile> {
        let node = self.lookup(ROOT, name).unwrap();
        self.open_file(node.id).unwrap()
    }

    fn open_file(&self, id: NodeId) -> Result<Arc<MemoryFile>> {
        self.files.lock().get(&id).cloned().ok_or_else(|| Error::missing(format!("there is no file {id}")))
    }

    fn opened(&self, file: Arc<MemoryFile>) -> Arc<dyn OpenFile> {
        Arc::new(Opened { file, files: Arc::clone(&self.files) })
    }
}

impl State {
    fn folder(&mut self, id: NodeId) -> Result<&mut Folder> {
        self.folders.get_mut(&id).ok_or_else(|| Error::missing(format!("there is no folder {id}")))
    }

    fn writable(&mut self, id: NodeId) -> Result<&mut Folder> {
        let folder = self.folder(id)?;
        if folder.is_read_only { Err(Error::refused("a read-only folder")) } else { Ok(folder) }
    }

    fn find(&mut self, id: NodeId, name: &str) -> Result<NodeId> {
        self.folder(id)?.names.get(name).copied().ok_or_else(|| Error::missing(format!("there is no {name}")))
    }

    fn add(&mut self, id: NodeId, name: &str) -> Result<NodeId> {
        let next = self.next;
        let folder = self.writable(id)?;
        if folder.names.contains_key(name) {
            return Err(Error::refused("the name is taken"));
        }
        folder.names.insert(name.into(), next);
        self.next += 1;
        Ok(next)
    }
}

impl Tree for MemoryTree {
    fn lookup(&self, directory: NodeId, name: &str) -> Result<Node> {
        let id = self.state.lock().find(directory, name)?;
        self.node(id)
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId> {
        Ok(self.state.lock().folder(directory)?.parent)
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        let modified_unix_ms = 1_700_000_000_000;
        if let Ok(folder) = self.state.lock().folder(id) {
            let writable = !folder.is_read_only;
            return Ok(Node { id, kind: NodeKind::Directory, writable, modified_unix_ms });
        }
        let file = self.open_file(id)?;
        let bytes = file.bytes.read();
        let data = bytes.chunks(UNIT).filter(|unit| unit.iter().any(|byte| *byte != 0));
        let allocated = data.map(|unit| unit.len() as u64).sum();
        let kind = NodeKind::File { length: bytes.len() as u64, allocated };
        Ok(Node { id, kind, writable: !file.is_read_only, modified_unix_ms })
    }

    fn list(&self, directory: NodeId) -> Result<Vec<(String, Node)>> {
        let names = self.state.lock().folder(directory)?.names.clone();
        names.into_iter().map(|(name, id)| Ok((name, self.node(id)?))).collect()
    }

    fn open(&self, id: NodeId, access: Access) -> Result<Arc<dyn OpenFile>> {
        let file = self.open_file(id)?;
        assert!(access == Access::Read || !file.is_read_only, "the server knows that it cannot be written");
        Ok(self.opened(file))
    }

    fn create(&self, directory: NodeId, name: &str, _access: Access) -> Result<(Node, Arc<dyn OpenFile>)> {
        let id = self.state.lock().add(directory, name)?;
        let file = Arc::new(MemoryFile::default());
        self.files.lock().insert(id, Arc::clone(&file));
        Ok((self.node(id)?, self.opened(file)))
    }

    fn make_directory(&self, directory: NodeId, name: &str) -> Result<Node> {
        let id = {
            let mut state = self.state.lock();
            let id = state.add(directory, name)?;
            state
                .folders
                .insert(id, Folder { parent: directory, names: BTreeMap::new(), is_read_only: false });
            id
        };
        self.node(id)
    }

    fn remove_file(&self, directory: NodeId, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        let id = state.find(directory, name)?;
        state.writable(directory)?.names.remove(name);
        self.files.lock().remove(&id);
        Ok(())
    }

    fn remove_directory(&self, directory: NodeId, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        let id = state.find(directory, name)?;
        if !state.folder(id)?.names.is_empty() {
            return Err(Error::refused("it is not empty"));
        }
        state.writable(directory)?.names.remove(name);
        state.folders.remove(&id);
        Ok(())
    }

    fn rename(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<()> {
        let mut state = self.state.lock();
        let id = state.find(from.0, from.1)?;
        if state.find(to.0, to.1).is_ok() {
            return Err(Error::refused("the name is taken"));
        }
        state.writable(to.0)?;
        state.writable(from.0)?.names.remove(from.1);
        state.writable(to.0)?.names.insert(to.1.into(), id);
        if let Ok(folder) = state.folder(id) {
            folder.parent = to.0;
        }
        Ok(())
    }

    fn room(&self) -> Room {
        Room { total: 100 << 20, free: 40 << 20 }
    }
}

/// The contents of the tests' files.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at / UNIT + at) % 251) as u8 + 1).collect()
}
