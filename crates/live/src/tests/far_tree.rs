//! Tests of the tree of an origin's store.

use std::time::{Duration, Instant};

use platter_export::tree::{Access, NodeId, ROOT, Tree};
use platter_image::{ErrorKind, Result};
use platter_records::NumberChoice;
use platter_store::Store;

use super::{request_at, with_tree};
use crate::place::LivePlace;
use crate::served::Served;
use platter_testbed::{Lab, Origin, Running, kind, store_disk};

const KIB: usize = 1 << 10;

/// An origin with a version of `lab/disk`, and its tree.
struct Far {
    lab: Lab,
    bytes: Vec<u8>,
    tree: std::sync::Arc<dyn Tree>,
    origin: Running,
}

impl Far {
    fn new() -> Self {
        let lab = Lab::new();
        let disk = lab.disk("disk", KIB, 0);
        store_disk(&lab.place, "lab/disk", &std::fs::read(&disk).unwrap());
        let origin = Origin::new(&lab).run(&lab);
        let place = LivePlace::open(&lab.afar().into(), Some(&lab.path("overlays"))).unwrap();
        place.make().unwrap();
        let served =
            Served::open(with_tree(request_at(place)), Default::default(), Box::new(|_| {})).unwrap();
        Self { bytes: std::fs::read(disk).unwrap(), tree: served.tree().unwrap(), lab, origin }
    }

    fn node(&self, path: &str) -> Result<NodeId> {
        path.split('/').try_fold(ROOT, |at, name| Ok(self.tree.lookup(at, name)?.id))
    }

    fn at<'a>(&self, path: &'a str) -> (NodeId, &'a str) {
        let (directory, name) = path.rsplit_once('/').unwrap();
        (self.node(directory).unwrap(), name)
    }

    fn contents(&self, path: &str) -> Vec<u8> {
        let file = self.tree.open(self.node(path).unwrap(), Access::Read).unwrap();
        let mut bytes = vec![0; file.length() as usize];
        file.read(&mut bytes, 0).unwrap();
        bytes
    }

    fn import(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (directory, name) = self.at(path);
        let (_, file) = self.tree.create(directory, name, Access::Write)?;
        file.write(bytes, 0)?;
        file.close()
    }
}

#[test]
fn images_of_an_origin_are_files() {
    let far = Far::new();
    assert!(far.contents("lab/disk/1.raw") == far.bytes && far.contents("lab/disk/latest.raw") == far.bytes);
    far.tree.make_directory(far.node("import").unwrap(), "new").unwrap();
    far.import("import/new/disk.raw", &far.bytes[..KIB << 9]).unwrap();
    assert!(far.contents("new/disk/1.raw") == far.bytes[..KIB << 9], "visible at once to its creator");
    let (from, to) = (far.at("new/disk"), far.at("lab/other"));
    let before = far.node("new/disk").unwrap();
    far.tree.rename(from, to).unwrap();
    assert_eq!(far.node("lab/other").unwrap(), before, "it is the same directory");
    assert_eq!(kind(far.node("new/disk")), ErrorKind::Missing);
    let (directory, name) = far.at("lab/other/1.raw");
    far.tree.remove_file(directory, name).unwrap();
    assert_eq!(kind(far.node("lab/other/1.raw")), ErrorKind::Missing);
    assert_eq!(kind(far.origin.0.store.resolve("lab/other")), ErrorKind::Missing);
}

/// Also without events, which this origin does not send.
#[test]
fn versions_published_elsewhere_appear_soon_and_open_files_stay() {
    let far = Far::new();
    let open = far.tree.open(far.node("lab/disk/latest.raw").unwrap(), Access::Read).unwrap();
    let store = &far.origin.0.store;
    let draft = store.version(&"lab/disk".parse().unwrap(), NumberChoice::Latest).unwrap().record;
    store
        .session()
        .unwrap()
        .publish(platter_records::VersionRecord { number: 0, parent: None, ..draft })
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while far.node("lab/disk/2.raw").is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(far.contents("lab/disk/2.raw") == far.bytes);
    let mut bytes = vec![0; 4096];
    open.read(&mut bytes, 0).unwrap();
    assert!(bytes == far.bytes[..4096]);
}

#[test]
fn a_failed_import_is_reported_at_closing() {
    let far = Far::new();
    far.origin.0.store.take_edit_lock(&"lab/disk".parse().unwrap(), "somebody", 1).unwrap();
    let error = far.import("import/disk", &far.bytes).map_err(|error| error.kind());
    assert_eq!(error, Ok(()), "another image");
    assert_eq!(kind(far.import("import/lab/disk", &far.bytes)), ErrorKind::Refused);
    assert_eq!(Store::open_reader(&far.lab.place).unwrap().versions().unwrap().len(), 2);
}

/// While the origin is down, the last known names stay, and nothing waits for it.
#[test]
fn names_stay_while_the_origin_is_down() {
    let Far { lab, tree, origin, bytes } = Far::new();
    let find = |path: &str| {
        path.split('/').try_fold(ROOT, |at, name| Ok::<_, platter_image::Error>(tree.lookup(at, name)?.id))
    };
    let file = tree.open(find("lab/disk/1.raw").unwrap(), Access::Read).unwrap();
    let mut read = vec![0; bytes.len()];
    file.read(&mut read, 0).unwrap();
    drop(origin);
    std::fs::remove_file(lab.socket()).unwrap();
    assert!(find("lab/disk/latest.score").is_ok());
    read.fill(0);
    file.read(&mut read, 0).unwrap();
    assert!(read == bytes, "cached data is still readable");
}
