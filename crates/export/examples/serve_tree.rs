//! Serves plain files as a mounted tree, to compare the server's speed with that of other servers.
//!
//! `serve_tree DIR FILE... [--write] [--fixed] [--passthrough]` runs until it is killed or `DIR` is unmounted.
//! `--fixed` declares that the files never change; with `--passthrough` the kernel reads them directly. It does not
//! report holes.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a measuring program")]

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use platter_export::fuse::{FuseEvent, FuseOptions, FuseServer};
use platter_export::tree::{Access, Node, NodeId, NodeKind, OpenFile, ROOT, Tree};
use platter_image::{BlockId, Error, Extent, IoContext, Result, Score};
use platter_vdisk::Allocation;

#[derive(Clone, Copy, Default)]
struct Wishes {
    write: bool,
    fixed: bool,
    passthrough: bool,
}

struct PlainFile {
    file: File,
    wishes: Wishes,
}

impl OpenFile for PlainFile {
    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset).context(|| format!("reading at {offset}"))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).context(|| format!("writing at {offset}"))
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.file.set_len(length).context(|| "setting the length".into())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().context(|| "syncing".into())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Data);
        Ok(())
    }

    fn score(&self) -> Option<Score> {
        self.wishes.fixed.then_some(Score(BlockId([1; 32])))
    }

    fn backing(&self) -> Option<BorrowedFd<'_>> {
        self.wishes.passthrough.then(|| self.file.as_fd())
    }
}

/// One folder with these files: the first is node 2.
struct Files {
    files: Vec<(String, Arc<PlainFile>)>,
    is_writable: bool,
}

impl Files {
    fn at(&self, index: usize) -> Node {
        let length = self.files[index].1.length();
        let kind = NodeKind::File { length, allocated: length };
        Node { id: index as u64 + 2, kind, writable: self.is_writable, modified_unix_ms: 0 }
    }

    fn index(&self, id: NodeId) -> Result<usize> {
        let index = id.checked_sub(2).map(|index| index as usize);
        index.filter(|index| *index < self.files.len()).ok_or_else(|| Error::missing("no such node"))
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::refused("the set of files is fixed"))
}

impl Tree for Files {
    fn lookup(&self, _directory: NodeId, name: &str) -> Result<Node> {
        let found = self.files.iter().position(|(known, _)| known == name);
        found.map(|index| self.at(index)).ok_or_else(|| Error::missing(format!("there is no {name}")))
    }

    fn parent(&self, _directory: NodeId) -> Result<NodeId> {
        Ok(ROOT)
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        match id {
            ROOT => Ok(Node { id, kind: NodeKind::Directory, writable: false, modified_unix_ms: 0 }),
            id => Ok(self.at(self.index(id)?)),
        }
    }

    fn list(&self, _directory: NodeId) -> Result<Vec<(String, Node)>> {
        Ok((0..self.files.len()).map(|index| (self.files[index].0.clone(), self.at(index))).collect())
    }

    fn open(&self, id: NodeId, _access: Access) -> Result<Arc<dyn OpenFile>> {
        Ok(Arc::clone(&self.files[self.index(id)?].1) as Arc<dyn OpenFile>)
    }

    fn create(&self, _: NodeId, _: &str, _: Access) -> Result<(Node, Arc<dyn OpenFile>)> {
        refused()
    }

    fn make_directory(&self, _: NodeId, _: &str) -> Result<Node> {
        refused()
    }

    fn remove_file(&self, _: NodeId, _: &str) -> Result<()> {
        refused()
    }

    fn remove_directory(&self, _: NodeId, _: &str) -> Result<()> {
        refused()
    }

    fn rename(&self, _: (NodeId, &str), _: (NodeId, &str)) -> Result<()> {
        refused()
    }
}

fn open(path: &str, wishes: Wishes) -> Result<(String, Arc<PlainFile>)> {
    let file = OpenOptions::new().read(true).write(wishes.write).open(path);
    let file = file.context(|| format!("opening {path}"))?;
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, Arc::new(PlainFile { file, wishes })))
}

fn serve(arguments: &[String]) -> Result<()> {
    let is_flag = |argument: &&String| argument.starts_with("--");
    let mut wishes = Wishes::default();
    for flag in arguments.iter().filter(is_flag) {
        match flag.as_str() {
            "--write" => wishes.write = true,
            "--fixed" => wishes.fixed = true,
            "--passthrough" => wishes.passthrough = true,
            _ => return Err(Error::refused(format!("unknown flag {flag}"))),
        }
    }
    let names: Vec<&String> = arguments.iter().filter(|argument| !is_flag(argument)).collect();
    let [mount_point, files @ ..] = &names[..] else {
        return Err(Error::refused("usage: serve_tree DIR FILE... [--write] [--fixed] [--passthrough]"));
    };
    let files: Result<Vec<_>> = files.iter().map(|path| open(path, wishes)).collect();
    let tree = Files { files: files?, is_writable: wishes.write };
    let on_event = |event: &FuseEvent<'_>| match event {
        FuseEvent::Mounted { .. } => println!("mounted"),
        event => eprintln!("{event:?}"),
    };
    let options = FuseOptions { on_event: Arc::new(on_event), ..FuseOptions::default() };
    FuseServer::serve(Path::new(mount_point), Arc::new(tree), options, &AtomicBool::new(false))
}

fn main() -> ExitCode {
    match serve(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
