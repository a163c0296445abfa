//! A tree in memory with damaged, full, slow and gated files, files that fail to close, and a log of operations.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use platter_export::tree::{Access, Node, NodeId, NodeKind, OpenFile, ROOT, Room, Tree};
use platter_image::{Error, Extent, Result};
use platter_vdisk::Allocation;

/// The initial contents of files.
pub(crate) fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8 + 1
}

pub(crate) fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (offset..offset + length as u64).map(byte_at).collect()
}

/// A gate that tests open. Closed at first.
#[derive(Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: Mutex<usize>,
    came: Condvar,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        *self.waiting.lock() += 1;
        self.came.notify_all();
        let mut is_open = self.is_open.lock();
        // Bounded, so that a test that fails before it opens the gate ends.
        self.opened.wait_while_for(&mut is_open, |is_open| !*is_open, Duration::from_secs(20));
    }

    /// Waits until `count` requests wait at the gate.
    pub(crate) fn wait_for(&self, count: usize) {
        let mut waiting = self.waiting.lock();
        let waited = self.came.wait_while_for(&mut waiting, |came| *came < count, Duration::from_secs(20));
        assert!(!waited.timed_out(), "no request reached the gate");
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Reads fail: damaged.
    Damaged,
    /// Writes fail: no space.
    Full,
    /// Closing and syncing fail.
    Unclosable,
    /// Reads take longer than the server waits before it uses workers.
    Slow,
    /// Reads and writes wait for the gate.
    Gated,
}

pub(crate) struct MemoryFile {
    pub(crate) bytes: Mutex<Vec<u8>>,
    fault: Fault,
    is_read_only: bool,
    gate: Arc<Gate>,
    name: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl MemoryFile {
    fn note(&self, what: &str) {
        self.log.lock().push(format!("{what} {}", self.name));
    }

    fn unclosable(&self) -> Result<()> {
        if self.fault == Fault::Unclosable { Err(Error::corrupt("the data was lost")) } else { Ok(()) }
    }
}

impl OpenFile for MemoryFile {
    fn length(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        match self.fault {
            Fault::Damaged => return Err(Error::corrupt(format!("the block at {offset} is damaged"))),
            Fault::Slow => thread::sleep(Duration::from_millis(3)),
            Fault::Gated => self.gate.pass(),
            _ => {}
        }
        let bytes = self.bytes.lock();
        buffer.copy_from_slice(&bytes[offset as usize..offset as usize + buffer.len()]);
        Ok(())
    }

    fn write(&self, new: &[u8], offset: u64) -> Result<()> {
        match self.fault {
            Fault::Full => {
                let full = Error::io("writing the overlay", io::Error::from(io::ErrorKind::StorageFull));
                return Err(full.within("writing a disk"));
            }
            Fault::Gated => self.gate.pass(),
            _ => {}
        }
        let mut bytes = self.bytes.lock();
        let end = offset as usize + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(new);
        drop(bytes);
        self.note("write");
        Ok(())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.bytes.lock().resize(length as usize, 0);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.note("sync");
        self.unclosable()
    }

    fn close(&self) -> Result<()> {
        self.note("close");
        self.unclosable()
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Data);
        Ok(())
    }
}

#[derive(Clone)]
enum Entry {
    Directory { parent: NodeId, names: BTreeMap<String, NodeId> },
    File(Arc<MemoryFile>),
}

type Entries = BTreeMap<NodeId, Entry>;

pub(crate) struct MemoryTree {
    entries: Mutex<Entries>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
}

impl MemoryTree {
    /// Creates `lab/` with `disk` and `empty/`, and beside it a file for each fault.
    pub(crate) fn new() -> Self {
        let root = Entry::Directory { parent: ROOT, names: BTreeMap::new() };
        let entries = Mutex::new(BTreeMap::from([(ROOT, root)]));
        let tree = Self { entries, gate: Arc::default(), log: Arc::default() };
        let lab = tree.make_directory(ROOT, "lab").unwrap().id;
        tree.make_directory(lab, "empty").unwrap();
        tree.add(lab, "disk", 3 << 20, Fault::None, false);
        tree.add(ROOT, "fixed", 100_000, Fault::None, true);
        for (name, fault) in [
            ("damaged", Fault::Damaged),
            ("full", Fault::Full),
            ("unclosable", Fault::Unclosable),
            ("slow", Fault::Slow),
            ("gated", Fault::Gated),
        ] {
            tree.add(ROOT, name, 100_000, fault, false);
        }
        tree
    }

    pub(crate) fn add(
        &self,
        parent: NodeId,
        name: &str,
        length: usize,
        fault: Fault,
        is_read_only: bool,
    ) -> NodeId {
        let (log, gate) = (Arc::clone(&self.log), Arc::clone(&self.gate));
        let bytes = Mutex::new(pattern(0, length));
        let file = MemoryFile { bytes, fault, is_read_only, gate, name: name.to_owned(), log };
        add_entry(&mut self.entries.lock(), parent, name, Entry::File(Arc::new(file))).unwrap()
    }

    pub(crate) fn contents(&self, directory: NodeId, name: &str) -> Vec<u8> {
        let node = self.lookup(directory, name).unwrap();
        let entries = self.entries.lock();
        let Some(Entry::File(file)) = entries.get(&node.id) else { panic!("{name} is not a file") };
        file.bytes.lock().clone()
    }

    pub(crate) fn logged(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

fn names(entries: &mut Entries, directory: NodeId) -> Result<&mut BTreeMap<String, NodeId>> {
    match entries.get_mut(&directory) {
        Some(Entry::Directory { names, .. }) => Ok(names),
        Some(Entry::File(_)) => Err(Error::refused("it is a file")),
        None => Err(Error::missing(format!("there is no node {directory}"))),
    }
}

fn add_entry(entries: &mut Entries, parent: NodeId, name: &str, entry: Entry) -> Result<NodeId> {
    let id = entries.last_key_value().map_or(ROOT, |(id, _)| id + 1);
    let names = names(entries, parent)?;
    if names.contains_key(name) {
        return Err(Error::refused(format!("{name} is there already")));
    }
    names.insert(name.to_owned(), id);
    entries.insert(id, entry);
    Ok(id)
}

fn node(entries: &Entries, id: NodeId) -> Result<Node> {
    let (kind, writable) = match entries.get(&id) {
        Some(Entry::Directory { .. }) => (NodeKind::Directory, true),
        Some(Entry::File(file)) => {
            let length = file.length();
            (NodeKind::File { length, allocated: length }, !file.is_read_only)
        }
        None => return Err(Error::missing(format!("there is no node {id}"))),
    };
    Ok(Node { id, kind, writable, modified_unix_ms: 1_700_000_000_123 })
}

impl Tree for MemoryTree {
    fn lookup(&self, directory: NodeId, name: &str) -> Result<Node> {
        let mut entries = self.entries.lock();
        let id = names(&mut entries, directory)?.get(name).copied();
        node(&entries, id.ok_or_else(|| Error::missing(format!("there is no {name}")))?)
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId> {
        match self.entries.lock().get(&directory) {
            Some(Entry::Directory { parent, .. }) => Ok(*parent),
            _ => Err(Error::missing("no such directory")),
        }
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        node(&self.entries.lock(), id)
    }

    fn list(&self, directory: NodeId) -> Result<Vec<(String, Node)>> {
        let mut entries = self.entries.lock();
        let names = names(&mut entries, directory)?.clone();
        names.into_iter().map(|(name, id)| Ok((name, node(&entries, id)?))).collect()
    }

    fn open(&self, id: NodeId, access: Access) -> Result<Arc<dyn OpenFile>> {
        match self.entries.lock().get(&id) {
            Some(Entry::File(file)) if access != Access::Read && file.is_read_only => {
                Err(Error::refused("a version is read-only"))
            }
            Some(Entry::File(file)) => Ok(Arc::clone(file) as Arc<dyn OpenFile>),
            _ => Err(Error::missing("no such file")),
        }
    }

    fn create(&self, directory: NodeId, name: &str, access: Access) -> Result<(Node, Arc<dyn OpenFile>)> {
        if self.lookup(directory, name).is_ok() {
            return Err(Error::refused(format!("{name} is there already")));
        }
        let id = self.add(directory, name, 0, Fault::None, false);
        Ok((self.node(id)?, self.open(id, access)?))
    }

    fn make_directory(&self, directory: NodeId, name: &str) -> Result<Node> {
        let mut entries = self.entries.lock();
        let entry = Entry::Directory { parent: directory, names: BTreeMap::new() };
        let id = add_entry(&mut entries, directory, name, entry)?;
        node(&entries, id)
    }

    fn remove_file(&self, directory: NodeId, name: &str) -> Result<()> {
        let mut entries = self.entries.lock();
        let id = names(&mut entries, directory)?.remove(name);
        entries.remove(&id.ok_or_else(|| Error::missing("no such name"))?);
        Ok(())
    }

    fn remove_directory(&self, directory: NodeId, name: &str) -> Result<()> {
        let id = self.lookup(directory, name)?.id;
        if !self.list(id)?.is_empty() {
            return Err(Error::refused("it is not empty"));
        }
        self.remove_file(directory, name)
    }

    fn rename(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<()> {
        let mut entries = self.entries.lock();
        if names(&mut entries, to.0)?.contains_key(to.1) {
            return Err(Error::refused("the name is taken"));
        }
        let id = names(&mut entries, from.0)?.remove(from.1).ok_or_else(|| Error::missing("no such name"))?;
        names(&mut entries, to.0)?.insert(to.1.to_owned(), id);
        if let Some(Entry::Directory { parent, .. }) = entries.get_mut(&id) {
            *parent = to.0;
        }
        Ok(())
    }

    fn room(&self) -> Room {
        Room { total: 1 << 30, free: 1 << 29 }
    }
}
