//! Tests of the tree over a real store: names, contents, and changes.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use platter_export::Exports;
use platter_export::tree::{Access, NodeId, NodeKind, OpenFile, ROOT, Tree};
use platter_image::{Error, ErrorKind, Extent, Result};
use platter_records::{NumberChoice, Version};
use platter_store::{Store, StorePlace};
use platter_vdisk::{Allocation, BlockDevice};

use super::ImageTree;
use crate::LivePlace;
use crate::sources::Sources;
use crate::tests::capture_bytes;
use platter_fetch::{EditLockChoice, OpenStore};
use platter_jobs::{CloneRequest, clone};

/// Served disks, in memory.
#[derive(Default)]
struct Disks(Mutex<BTreeMap<String, Arc<Memory>>>);

impl Exports for Disks {
    fn list(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        let disk = self.0.lock().get(name).cloned();
        disk.map_or_else(|| Err(Error::missing(name)), |disk| Ok(disk as Arc<dyn BlockDevice>))
    }
}

/// A disk in memory.
struct Memory(Mutex<Vec<u8>>, bool);

impl BlockDevice for Memory {
    fn length(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn is_writable(&self) -> bool {
        self.1
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.0.lock();
        buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.lock()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.write(&vec![0; range.length as usize], range.offset)
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        visit(range, Allocation::Data);
        Ok(())
    }
}

struct Lab {
    _folder: tempfile::TempDir,
    place: StorePlace,
    disks: Arc<Disks>,
    tree: ImageTree,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path());
        Store::init(&place).unwrap();
        let disks = Arc::<Disks>::default();
        let tree = open_tree(&place, &disks);
        Self { _folder: folder, place, disks, tree }
    }

    fn node(&self, path: &str) -> Result<NodeId> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |at, name| Ok(self.tree.lookup(at, name)?.id))
    }

    /// Returns the directory of a path, and the name in it.
    fn at<'a>(&self, path: &'a str) -> (NodeId, &'a str) {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.node(directory).unwrap(), name)
    }

    fn names(&self, path: &str) -> Vec<String> {
        self.tree.list(self.node(path).unwrap()).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn OpenFile>> {
        self.tree.open(self.node(path)?, access)
    }

    fn contents(&self, path: &str) -> Vec<u8> {
        contents(&*self.open(path, Access::Read).unwrap())
    }

    fn create(&self, path: &str) -> Result<Arc<dyn OpenFile>> {
        let (directory, name) = self.at(path);
        Ok(self.tree.create(directory, name, Access::Write)?.1)
    }

    fn import(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let file = self.create(path)?;
        file.write(bytes, 0)?;
        file.close()
    }

    fn make(&self, path: &str) -> Result<()> {
        let (directory, name) = self.at(path);
        self.tree.make_directory(directory, name).map(drop)
    }

    fn remove(&self, path: &str) -> Result<()> {
        let (directory, name) = self.at(path);
        self.tree.remove_file(directory, name)
    }

    fn remove_directory(&self, path: &str) -> Result<()> {
        let (directory, name) = self.at(path);
        self.tree.remove_directory(directory, name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.tree.rename(self.at(from), self.at(to))
    }

    fn newest(&self, image: &str) -> Version {
        let store = Store::open_reader(&self.place).unwrap();
        store.version(&image.parse().unwrap(), NumberChoice::Latest).unwrap()
    }

    /// Removes everything like `rm -r`: it lists once, and everything listed must be removable.
    fn remove_all(&self, path: &str) {
        let node = self.node(path).unwrap();
        for (name, found) in self.tree.list(node).unwrap() {
            match found.kind {
                NodeKind::Directory => self.remove_all(&format!("{path}/{name}")),
                NodeKind::File { .. } => {
                    self.tree.lookup(node, &name).unwrap_or_else(|error| panic!("{path}/{name}: {error}"));
                    self.tree
                        .remove_file(node, &name)
                        .unwrap_or_else(|error| panic!("{path}/{name}: {error}"));
                }
            }
        }
        self.remove_directory(path).unwrap();
    }
}

fn open_tree(place: &StorePlace, disks: &Arc<Disks>) -> ImageTree {
    let here = LivePlace::open(&place.clone().into(), None).unwrap();
    let store = OpenStore::open_reader(here.store()).unwrap();
    let sources = Sources::new(store, 1 << 20, None).unwrap();
    ImageTree::open(&here, sources, disks.clone(), "test".into()).unwrap()
}

fn contents(file: &dyn OpenFile) -> Vec<u8> {
    let mut bytes = vec![0; file.length() as usize];
    file.read(&mut bytes, 0).unwrap();
    bytes
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}

/// A disk with data, a hole, and data of `last`.
fn disk(last: u8) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    bytes[..70_000].fill(3);
    bytes[(1 << 20) - 8192..].fill(last);
    bytes
}

#[test]
fn versions_are_files() {
    let lab = Lab::new();
    assert_eq!(lab.names(""), ["by-date", "import"]);
    for last in [1, 2] {
        capture_bytes(&lab.place, "lab/debian12", &disk(last));
    }
    assert_eq!(lab.names(""), ["by-date", "import", "lab"]);
    let names = ["1.raw", "1.score", "2.raw", "2.score", "latest.raw", "latest.score"];
    assert_eq!(lab.names("lab/debian12"), names);
    assert_eq!(lab.contents("lab/debian12/1.raw"), disk(1));
    assert_eq!(lab.contents("lab/debian12/latest.raw"), disk(2));
    let newest = lab.newest("lab/debian12").record;
    assert_eq!(lab.contents("lab/debian12/latest.score"), format!("{}\n", newest.score).as_bytes());
    let node = lab.tree.node(lab.node("lab/debian12/2.raw").unwrap()).unwrap();
    let allocated = newest.allocated_bytes;
    assert_eq!(node.kind, NodeKind::File { length: 1 << 20, allocated });
    assert!(node.modified_unix_ms == newest.time_unix_ms && !node.writable);
    let file = lab.open("lab/debian12/2.raw", Access::Read).unwrap();
    assert_eq!(file.score(), Some(newest.score));
    assert_eq!(kind(file.write(&[1], 0)), ErrorKind::Refused);
    assert_eq!(kind(lab.open("lab/debian12/2.raw", Access::ReadWrite)), ErrorKind::Refused);
    for path in
        ["lab/debian12/3.raw", "lab/debian12/02.raw", "lab/debian12/+1.raw", "lab/debian12/live.raw", "other"]
    {
        assert_eq!(kind(lab.node(path)), ErrorKind::Missing, "{path}");
    }
}

/// Open versions do not change: a new version has another node, and the old one stays known while it is open.
#[test]
fn latest_never_changes_under_an_open_file() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    let before = lab.node("a/latest.raw").unwrap();
    let file = lab.open("a/latest.raw", Access::Read).unwrap();
    capture_bytes(&lab.place, "a", &disk(2));
    assert_ne!(lab.node("a/latest.raw").unwrap(), before);
    assert_eq!(contents(&*file), disk(1));
    assert_eq!(contents(&*lab.tree.open(before, Access::Read).unwrap()), disk(1));
    assert_eq!(lab.contents("a/latest.raw"), disk(2));
}

#[test]
fn a_forgotten_version_is_read_while_it_is_open() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    capture_bytes(&lab.place, "a", &disk(2));
    let node = lab.node("a/1.raw").unwrap();
    let file = lab.tree.open(node, Access::Read).unwrap();
    Store::open_reader(&lab.place).unwrap().forget(&"a".parse().unwrap(), Some(1)).unwrap();
    assert_eq!(lab.names("a"), ["2.raw", "2.score", "latest.raw", "latest.score"]);
    assert_eq!(contents(&*file), disk(1));
    assert_eq!(lab.tree.node(node).unwrap().id, node, "its number is known while it is open");
    drop(file);
    capture_bytes(&lab.place, "a", &disk(3));
    assert_eq!(kind(lab.node("a/1.raw")), ErrorKind::Missing);
    assert_eq!(kind(lab.tree.node(node)), ErrorKind::Missing);
}

/// Names have numbers while they exist; looking up a missing name leaves none.
#[test]
fn numbers_are_never_used_again_and_bounded() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    lab.names("a");
    let known = lab.tree.state().unwrap().nodes.len();
    for name in 0..1000 {
        assert!(lab.node(&format!("no-{name}")).is_err());
    }
    assert_eq!(lab.tree.state().unwrap().nodes.len(), known);
    let mut seen = vec![lab.node("a/latest.raw").unwrap()];
    for last in 2..6 {
        capture_bytes(&lab.place, "a", &disk(last));
        lab.remove(&format!("a/{}.raw", last - 1)).unwrap();
        let node = lab.node("a/latest.raw").unwrap();
        assert!(!seen.contains(&node));
        seen.push(node);
        lab.names("a");
    }
    assert!(lab.tree.state().unwrap().nodes.len() <= known + 2, "as many as there are names");
}

#[test]
fn an_image_may_be_a_directory_of_images() {
    let lab = Lab::new();
    for name in ["lab", "lab/debian12", "import/x", "by-date", "lab/7.raw", "lab/latest.raw/x", "x.score"] {
        capture_bytes(&lab.place, name, &disk(1));
    }
    assert_eq!(lab.names(""), ["by-date", "import", "lab"]);
    assert_eq!(lab.names("lab"), ["1.raw", "1.score", "debian12", "latest.raw", "latest.score"]);
    assert_eq!(lab.names("import"), ["lab"]);
    let today = lab.names("by-date").remove(0);
    let month = lab.names(&format!("by-date/{today}")).remove(0);
    let day = lab.names(&format!("by-date/{today}/{month}")).remove(0);
    let day = format!("by-date/{today}/{month}/{day}");
    assert_eq!(lab.names(&day), ["lab", "lab.raw", "lab.score"]);
    assert_eq!(lab.names(&format!("{day}/lab")), ["debian12.raw", "debian12.score"]);
    let parent = lab.tree.parent(lab.node(&format!("{day}/lab")).unwrap()).unwrap();
    assert_eq!(parent, lab.node(&day).unwrap());
    assert_eq!(lab.tree.parent(ROOT).unwrap(), ROOT);
}

/// Publishes the disk of `source` as the next version of `image`, with this time.
fn publish_at(lab: &Lab, source: &str, image: &str, time_unix_ms: i64) {
    let record = lab.newest(source).record;
    let store = Store::open_writer(&lab.place).unwrap();
    let draft = platter_records::VersionRecord { image: image.parse().unwrap(), time_unix_ms, ..record };
    store.session().unwrap().publish(draft).unwrap();
}

#[test]
fn days_end_at_midnight_in_utc() {
    let lab = Lab::new();
    let midnight = 1_006_300_800_000; // 2001-11-21T00:00Z
    capture_bytes(&lab.place, "one/x", &disk(1));
    capture_bytes(&lab.place, "two/x", &disk(2));
    publish_at(&lab, "one/x", "lab/a", midnight - 1);
    publish_at(&lab, "two/x", "lab/a", midnight);
    publish_at(&lab, "two/x", "lab/b", midnight + 5 * 86_400_000);
    publish_at(&lab, "two/x", "lab/c", i64::MAX);
    assert_eq!(lab.names("by-date/2001/11")[..2], ["20".to_owned(), "21".to_owned()]);
    assert_eq!(lab.contents("by-date/2001/11/20/lab/a.raw"), disk(1));
    assert_eq!(lab.contents("by-date/2001/11/21/lab/a.raw"), disk(2));
    assert_eq!(lab.names("by-date/2001/11/21"), ["lab"]);
    assert_eq!(lab.names("by-date/2001/11/21/lab"), ["a.raw", "a.score"]);
    assert_eq!(lab.names("by-date/2001/11/26/lab").len(), 4, "earlier images are there as well");
    for path in
        ["by-date/2001/11/22", "by-date/2001/1", "by-date/02001", "by-date/2001/13", "by-date/2001/11/20/one"]
    {
        assert_eq!(kind(lab.node(path)), ErrorKind::Missing, "{path}");
    }
    assert_eq!(kind(lab.remove("by-date/2001/11/20/lab/a.raw")), ErrorKind::Refused);
    assert_eq!(kind(lab.make("by-date/2002")), ErrorKind::Refused);
    assert_eq!(kind(lab.create("by-date/x")), ErrorKind::Refused);
}

#[test]
fn a_live_disk_is_a_file() {
    let lab = Lab::new();
    capture_bytes(&lab.place, "a", &disk(1));
    let serve = |name: &str, writable| {
        let memory = Memory(Mutex::new(disk(9)), writable);
        lab.disks.0.lock().insert(name.into(), Arc::new(memory));
    };
    serve("a", true);
    serve("only/live", false);
    assert!(lab.names("a").contains(&"live.raw".to_owned()));
    assert_eq!(lab.names("only/live"), ["live.raw"]);
    let file = lab.open("a/live.raw", Access::ReadWrite).unwrap();
    file.write(&[5; 10], 100).unwrap();
    assert_eq!(lab.contents("a/live.raw")[99..111], [3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 3]);
    file.write_zeroes(Extent::new(100, 10)).unwrap();
    assert_eq!(lab.contents("a/live.raw")[100..110], [0; 10]);
    file.set_length(1 << 20).unwrap();
    assert_eq!(kind(file.set_length(512)), ErrorKind::Refused);
    let full = file.write(&[1; 2], (1 << 20) - 1).unwrap_err();
    let cause = std::error::Error::source(&full).unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!((full.kind(), cause.kind()), (ErrorKind::Io, std::io::ErrorKind::StorageFull));
    assert_eq!(kind(lab.open("only/live/live.raw", Access::Write)), ErrorKind::Refused);
    for change in [lab.remove("a/live.raw"), lab.rename("a", "b")] {
        assert!(change.unwrap_err().to_string().contains("detach"));
    }
    lab.disks.0.lock().clear();
    assert_eq!(kind(lab.node("a/live.raw")), ErrorKind::Missing);
    assert_eq!(kind(lab.node("only")), ErrorKind::Missing);
}

mod imports;
mod names;
