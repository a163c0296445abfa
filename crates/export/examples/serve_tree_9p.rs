//! Serves the plain files of a folder, so that real clients can be tried and the server's speed compared with others'.
//!
//! `serve_tree_9p FOLDER SOCKET-OR-ADDRESS`, until it is killed. Files whose permissions forbid writing are read-only;
//! folders in the folder are not shown.

#![allow(clippy::print_stderr, reason = "a measuring program")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use platter_export::Listener;
use platter_export::ninep::{NinepEvent, NinepOptions, NinepServer};
use platter_export::tree::{Access, Node, NodeId, NodeKind, OpenFile, ROOT, Tree};
use platter_image::{Error, Extent, IoContext, Result};
use platter_vdisk::Allocation;

/// Names and their numbers: what was removed keeps its number, so that no other file gets it.
struct Folder {
    path: PathBuf,
    numbers: Mutex<BTreeMap<String, NodeId>>,
}

impl Folder {
    fn number(&self, name: &str) -> NodeId {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.values().max().map_or(ROOT, |last| *last) + 1;
        *numbers.entry(name.to_owned()).or_insert(next)
    }

    fn name(&self, id: NodeId) -> Result<String> {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let found = numbers.iter().find(|(_, number)| **number == id);
        found.map(|(name, _)| name.clone()).ok_or_else(|| Error::missing(format!("there is no node {id}")))
    }

    fn file(&self, name: &str) -> Result<Node> {
        let metadata = match fs::symlink_metadata(self.path.join(name)) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return Err(Error::missing(format!("{name} is no file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::missing(format!("there is no {name}")));
            }
            Err(error) => return Err(Error::io(format!("{name}: looking at it"), error)),
        };
        let kind = NodeKind::File { length: metadata.len(), allocated: metadata.blocks() * 512 };
        let writable = !metadata.permissions().readonly();
        Ok(Node { id: self.number(name), kind, writable, modified_unix_ms: metadata.mtime() * 1000 })
    }
}

impl Tree for Folder {
    fn lookup(&self, _directory: NodeId, name: &str) -> Result<Node> {
        self.file(name)
    }

    fn parent(&self, _directory: NodeId) -> Result<NodeId> {
        Ok(ROOT)
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        if id == ROOT {
            return Ok(Node { id, kind: NodeKind::Directory, writable: true, modified_unix_ms: 0 });
        }
        self.file(&self.name(id)?)
    }

    fn list(&self, _directory: NodeId) -> Result<Vec<(String, Node)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).context(|| "reading the folder".into())? {
            let name = entry.context(|| "reading the folder".into())?.file_name();
            if let Some(name) = name.to_str()
                && let Ok(node) = self.file(name)
            {
                names.push((name.to_owned(), node));
            }
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    fn open(&self, id: NodeId, access: Access) -> Result<Arc<dyn OpenFile>> {
        let name = self.name(id)?;
        if access != Access::Read && !self.file(&name)?.writable {
            return Err(Error::refused(format!("{name} is read-only")));
        }
        let file = OpenOptions::new().read(true).write(access != Access::Read).open(self.path.join(&name));
        Ok(Arc::new(OpenedFile(file.context(|| format!("{name}: opening it"))?)))
    }

    fn create(&self, _directory: NodeId, name: &str, _access: Access) -> Result<(Node, Arc<dyn OpenFile>)> {
        let mut options = OpenOptions::new();
        let made = options.read(true).write(true).create_new(true).open(self.path.join(name));
        let file = made.context(|| format!("{name}: making it"))?;
        Ok((self.file(name)?, Arc::new(OpenedFile(file))))
    }

    fn make_directory(&self, _directory: NodeId, name: &str) -> Result<Node> {
        Err(Error::refused(format!("{name}: there are no folders here")))
    }

    fn remove_file(&self, _directory: NodeId, name: &str) -> Result<()> {
        fs::remove_file(self.path.join(name)).context(|| format!("{name}: removing it"))
    }

    fn remove_directory(&self, _directory: NodeId, name: &str) -> Result<()> {
        Err(Error::missing(format!("there is no folder {name}")))
    }

    fn rename(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<()> {
        let (from, to) = (from.1, to.1);
        if self.file(to).is_ok() {
            return Err(Error::refused(format!("{to} is there already")));
        }
        fs::rename(self.path.join(from), self.path.join(to)).context(|| format!("{from}: renaming it"))?;
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = numbers.remove(from) {
            numbers.insert(to.to_owned(), id);
        }
        Ok(())
    }
}

struct OpenedFile(File);

impl OpenFile for OpenedFile {
    fn length(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_exact_at(buffer, offset).context(|| format!("reading at {offset}"))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.write_all_at(bytes, offset).context(|| format!("writing at {offset}"))
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.0.set_len(length).context(|| format!("setting the length {length}"))
    }

    fn sync(&self) -> Result<()> {
        self.0.sync_all().context(|| "syncing".into())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Data);
        Ok(())
    }
}

fn serve(folder: &Path, place: &str) -> Result<()> {
    let listener = match place.parse::<SocketAddr>() {
        Ok(address) => Listener::tcp(address)?,
        Err(_) => Listener::unix(Path::new(place))?,
    };
    let on_event = |event: &NinepEvent<'_>| eprintln!("{event:?}");
    let options = NinepOptions { on_event: Arc::new(on_event), ..NinepOptions::default() };
    let tree = Folder { path: folder.to_owned(), numbers: Mutex::default() };
    NinepServer::serve(listener, Arc::new(tree), options, &AtomicBool::new(false))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [folder, place] => serve(Path::new(folder), place),
        _ => Err(Error::refused("serve_tree_9p FOLDER SOCKET-OR-ADDRESS")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
