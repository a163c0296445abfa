//! Answers requests about nodes: from the catalog, or from the filesystem in which a file is.

use std::sync::Arc;

use parking_lot::Mutex;
use platter_export::file_view::{FileView, ViewAttribute, ViewKind, ViewNode, VisitNames};
use platter_export::tree::NodeId;
use platter_fetch::{Catalog, OpenStore, StoreLocation, memory_cache};
use platter_filesystem::{FileInode, FileKind, FileTree, Listing, escaped, resolve};
use platter_image::{Error, Result, Score};
use platter_vdisk::BlockCache;
use rustix::process::{getegid, geteuid};

use super::Admit;
use super::catalog::{Disk, Named, Names};
use super::filesystems::{Filesystem, Filesystems, open_disk};
use super::numbers::{Numbered, Numbers};
use super::recent::Recent;
use crate::contents::{Contents, LastDecoded};
use crate::copy::is_of_the_system;
use crate::location::FileLocation;
use crate::open_filesystem::OpenFilesystem;
use crate::opened::open_directory;
use crate::partitions::Partitions;

/// Limits of memory in bytes: inodes, names in directories, places of contents.
const INODE_BYTES_MAX: usize = 32 << 20;
const LISTING_BYTES_MAX: usize = 64 << 20;
const CONTENTS_BYTES_MAX: usize = 64 << 20;
/// So many versions whose partitions are remembered.
const VERSIONS_MAX: usize = 4096;
/// The path of a deeper file is not searched for.
const SHOWN_DEPTH_MAX: usize = 64;
/// Bytes that an inode takes besides those that are stored.
const INODE_BYTES: usize = 256;

/// A directory or link that is not in a filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The directory of an image, or of images below it.
    Images(String),
    /// The directory of a version.
    Version(VersionKey),
    /// The link to the newest version of an image, which has this number. The kernel remembers where a link leads, so a link to
    /// another version is another node.
    Latest(String, u64),
    /// The root of the filesystem in a partition.
    Partition(VersionKey, String),
    /// A directory in a filesystem, as the root of the mount.
    Directory { filesystem: usize, number: u64 },
}

/// A version in the catalog, or the only one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum VersionKey {
    Only,
    Named(String, u64),
}

/// The names of partitions and volumes whose files can be read, and the indexes of their filesystems.
type ReadablePartitions = Arc<Vec<(String, usize)>>;

/// What is mounted.
enum Source {
    All { catalog: Catalog, names: Mutex<(i64, Arc<Names>)> },
    One(Box<Disk>),
}

/// The files of all images, or of one.
pub(super) struct MountedFiles {
    store: OpenStore,
    memory: Arc<BlockCache>,
    source: Source,
    admit: Admit,
    /// Receives damage that is no error of a request.
    tell: Box<dyn Fn(&Error) + Send + Sync>,
    /// Owner and mode of directories that are not in a filesystem.
    owner: (u32, u32),
    mode: u16,
    filesystems: Filesystems,
    numbers: Mutex<Numbers<Place>>,
    partitions: Mutex<Recent<VersionKey, ReadablePartitions>>,
    inodes: Mutex<Recent<(usize, u64), Arc<FileInode>>>,
    listings: Mutex<Recent<(usize, u64), Arc<Listing>>>,
    contents: Mutex<Recent<NodeId, Arc<Contents>>>,
    last_decoded: LastDecoded,
}

impl MountedFiles {
    /// # Errors
    /// Those of [`mount`](super::mount).
    pub(super) fn open(
        store: &StoreLocation,
        location: Option<&FileLocation>,
        memory_bytes: usize,
        admit: Admit,
        allow_other: bool,
        tell: impl Fn(&Error) + Send + Sync + 'static,
    ) -> Result<Self> {
        let store = OpenStore::open_reader(store)?;
        // A score names one disk, whoever signed it.
        let is_score = location.is_some_and(|location| Score::from_hex(&location.version).is_some());
        let admit: Admit = if is_score { Box::new(|_| Ok(())) } else { admit };
        let source = match location {
            None => {
                let catalog = store.catalog()?;
                let names = (catalog.generation()?, Arc::new(Names::new(catalog.versions()?)));
                Source::All { catalog, names: Mutex::new(names) }
            }
            Some(location) => {
                let found = store.resolve(&location.version)?;
                let named = found.version.as_ref().map(Disk::of);
                Source::One(Box::new(named.unwrap_or_else(|| Disk {
                    shown: location.version.clone(),
                    score: found.score,
                    record: None,
                })))
            }
        };
        let root = match &source {
            Source::All { .. } => Place::Images(String::new()),
            Source::One(_) => Place::Version(VersionKey::Only),
        };
        let files = Self {
            memory: memory_cache(memory_bytes)?,
            store,
            source,
            admit,
            tell: Box::new(tell),
            owner: (geteuid().as_raw(), getegid().as_raw()),
            mode: if allow_other { 0o555 } else { 0o500 },
            filesystems: Filesystems::default(),
            numbers: Mutex::new(Numbers::new(&root)),
            partitions: Mutex::new(Recent::new(VERSIONS_MAX)),
            inodes: Mutex::new(Recent::new(INODE_BYTES_MAX)),
            listings: Mutex::new(Recent::new(LISTING_BYTES_MAX)),
            contents: Mutex::new(Recent::new(CONTENTS_BYTES_MAX)),
            last_decoded: LastDecoded::default(),
        };
        if let Some(location) = location {
            // A version that may not be used is refused now, not at the first read.
            match &location.path {
                None => drop(files.partitions(&VersionKey::Only)?),
                Some(path) => {
                    let root = files.directory(location, path)?;
                    *files.numbers.lock() = Numbers::new(&root);
                }
            }
        }
        Ok(files)
    }

    /// The directory that a location names. The version may be used, or this is an error.
    fn directory(&self, location: &FileLocation, path: &[u8]) -> Result<Place> {
        let version = self.version(&VersionKey::Only)?;
        (self.admit)(version.record.as_ref())?;
        let disk = open_disk(&self.store, &self.memory, version.score)?;
        let partition = Partitions::read(&disk, &version.shown)?.choose(location)?;
        let shown = || format!("{}:{}", version.shown, partition.name());
        let filesystem = self.filesystems.index(version.score, &partition, shown);
        let inode = self.open_filesystem(filesystem)?.1.with(|files| resolve(files, path, true))?;
        if inode.metadata().kind != FileKind::Directory {
            return Err(Error::refused(format!("{location} is no directory: `platter cat` prints files")));
        }
        Ok(Place::Directory { filesystem, number: inode.number() })
    }

    /// The current names of images and versions.
    fn names(&self) -> Result<Arc<Names>> {
        let Source::All { catalog, names } = &self.source else {
            return Err(Error::bug("one version has no names"));
        };
        let generation = catalog.generation()?;
        let mut known = names.lock();
        if known.0 != generation {
            *known = (generation, Arc::new(Names::new(catalog.versions()?)));
        }
        Ok(known.1.clone())
    }

    fn version(&self, key: &VersionKey) -> Result<Disk> {
        match (&self.source, key) {
            (Source::One(disk), _) => Ok(Disk::clone(disk)),
            (Source::All { .. }, VersionKey::Named(image, number)) => {
                let found = self.names()?.disk(image, *number);
                found.ok_or_else(|| Error::missing(format!("{image}@{number} no longer exists")))
            }
            (Source::All { .. }, VersionKey::Only) => Err(Error::bug("a version without a name")),
        }
    }

    /// The partitions of a version whose files can be read. The version may be used, or this is an error.
    fn partitions(&self, key: &VersionKey) -> Result<ReadablePartitions> {
        if let Some(known) = self.partitions.lock().get(key) {
            return Ok(known);
        }
        let version = self.version(key)?;
        (self.admit)(version.record.as_ref())?;
        let disk = open_disk(&self.store, &self.memory, version.score);
        let disk = disk.map_err(|error| error.within(version.shown.clone()))?;
        let partitions = Partitions::read(&disk, &version.shown)?;
        // Damaged ones are shown, and an error for those who enter them.
        let readable = partitions.readable(&self.tell).map_err(|error| error.within(&version.shown))?;
        let found = readable.into_iter().map(|partition| {
            let name = partition.name().to_string();
            let shown = || format!("{}:{name}", version.shown);
            let index = self.filesystems.index(version.score, partition, shown);
            (name, index)
        });
        let found: ReadablePartitions = Arc::new(found.collect());
        self.partitions.lock().insert(key.clone(), found.clone(), 1);
        Ok(found)
    }

    fn open_filesystem(&self, index: usize) -> Result<(Arc<Filesystem>, Arc<OpenFilesystem>)> {
        self.filesystems.open((&self.store, &self.memory), index)
    }

    /// Runs `work` with the files of a filesystem; an error names it and the file.
    fn with<T>(
        &self,
        (filesystem, number): (usize, u64),
        work: impl FnOnce(&mut dyn FileTree) -> Result<T>,
    ) -> Result<T> {
        let (_, open) = self.open_filesystem(filesystem)?;
        open.with(work).map_err(|error| error.within(self.shown((filesystem, number))))
    }

    /// A file in messages: its path, if the directories above it were read lately. Nothing is remembered for this.
    fn shown(&self, (filesystem, number): (usize, u64)) -> String {
        let Ok((place, open)) = self.open_filesystem(filesystem) else { return format!("file {number}") };
        let root = open.with(|files| Ok(files.root()));
        let listings = self.listings.lock();
        let mut path = String::new();
        let mut at = number;
        for _ in 0..SHOWN_DEPTH_MAX {
            if root.as_ref().is_ok_and(|root| *root == at) {
                return format!("{}{}", place.shown, if path.is_empty() { "/" } else { &path });
            }
            let parent = listings.iter().filter(|((known, _), _)| *known == filesystem).find_map(
                |((_, directory), listing)| {
                    let mut names = (0..listing.len()).map_while(|index| listing.get(index));
                    names.find(|(_, inode)| *inode == at).map(|(name, _)| (*directory, escaped(name)))
                },
            );
            let Some((directory, name)) = parent else { break };
            path = format!("/{name}{path}");
            at = directory;
        }
        format!("{}, file {number}", place.shown)
    }

    fn inode(&self, (filesystem, number): (usize, u64)) -> Result<Arc<FileInode>> {
        if let Some(known) = self.inodes.lock().get(&(filesystem, number)) {
            return Ok(known);
        }
        let inode = Arc::new(self.with((filesystem, number), |files| files.inode(number))?);
        let weight = INODE_BYTES + inode.bytes().len();
        self.inodes.lock().insert((filesystem, number), inode.clone(), weight);
        Ok(inode)
    }

    fn listing(&self, (filesystem, number): (usize, u64)) -> Result<Arc<Listing>> {
        if let Some(known) = self.listings.lock().get(&(filesystem, number)) {
            return Ok(known);
        }
        let inode = self.inode((filesystem, number))?;
        if inode.metadata().kind != FileKind::Directory {
            return Err(Error::refused("this is no directory"));
        }
        let listing = Arc::new(self.with((filesystem, number), |files| open_directory(files, &inode))?);
        for fault in listing.faults() {
            (self.tell)(&Error::corrupt(fault.clone()).within(self.shown((filesystem, number))));
        }
        self.listings.lock().insert((filesystem, number), listing.clone(), listing.memory());
        Ok(listing)
    }

    fn contents(&self, id: NodeId, file: (usize, u64)) -> Result<Arc<Contents>> {
        if let Some(known) = self.contents.lock().get(&id) {
            return Ok(known);
        }
        let inode = self.inode(file)?;
        if inode.metadata().kind != FileKind::Regular {
            return Err(Error::refused("this is no regular file"));
        }
        let contents = Arc::new(self.with(file, |files| Contents::of(files, inode))?);
        self.contents.lock().insert(id, contents.clone(), contents.memory());
        Ok(contents)
    }

    /// The node of a file.
    fn file_node(&self, (filesystem, number): (usize, u64)) -> Result<ViewNode> {
        let inode = self.inode((filesystem, number))?;
        let id = self.numbers.lock().file(filesystem, number)?;
        node_of(id, &inode, true).map_err(|error| error.within(self.shown((filesystem, number))))
    }

    fn place_node(&self, place: &Place) -> Result<ViewNode> {
        let id = self.numbers.lock().place(place);
        let node = |kind, mode, modified_ms: i64, size| {
            let modified = (modified_ms.div_euclid(1000), modified_ms.rem_euclid(1000) as u32 * 1_000_000);
            ViewNode {
                id,
                kind,
                mode,
                owner: self.owner,
                size,
                allocated: 0,
                times: [modified; 3],
                links: 1,
                device: (0, 0),
                is_fixed: false,
            }
        };
        Ok(match place {
            Place::Images(path) => {
                let names = self.names()?;
                let directory = names.directory(path);
                let directory =
                    directory.ok_or_else(|| Error::missing(format!("{path} no longer exists")))?;
                node(ViewKind::Directory, self.mode, directory.modified, 0)
            }
            Place::Version(key) => node(ViewKind::Directory, self.mode, self.version(key)?.modified(), 0),
            Place::Latest(_, number) => node(ViewKind::Link, 0o777, 0, number.to_string().len() as u64),
            Place::Partition(..) | Place::Directory { .. } => {
                let file = self.file_of(place)?;
                node_of(id, &*self.inode(file)?, false)?
            }
        })
    }

    /// The file that a place shows.
    fn file_of(&self, place: &Place) -> Result<(usize, u64)> {
        match place {
            Place::Directory { filesystem, number } => Ok((*filesystem, *number)),
            Place::Partition(key, name) => {
                let partitions = self.partitions(key)?;
                let found = partitions.iter().find(|(known, _)| known == name);
                let (_, index) = found.ok_or_else(|| Error::missing(format!("there is no {name}")))?;
                let (_, open) = self.open_filesystem(*index)?;
                Ok((*index, open.with(|files| Ok(files.root()))?))
            }
            _ => Err(Error::refused("this is no file")),
        }
    }

    fn find(&self, id: NodeId) -> Result<Numbered<Place>> {
        let found = self.numbers.lock().find(id);
        found.ok_or_else(|| Error::missing(format!("there is no node {id}")))
    }

    /// The file of a node.
    fn file(&self, id: NodeId) -> Result<(usize, u64)> {
        match self.find(id)? {
            Numbered::File { filesystem, number } => Ok((filesystem, number)),
            Numbered::Place(place) => self.file_of(&place),
        }
    }

    /// The place with a name in a directory that is not in a filesystem; `None` if there is none.
    fn place_in(&self, directory: &Place, name: &str) -> Result<Option<Place>> {
        Ok(match directory {
            Place::Images(path) => {
                let names = self.names()?;
                let found = names.directory(path).and_then(|directory| directory.find(name));
                found.map(|found| match found {
                    Named::Images if path.is_empty() => Place::Images(name.to_owned()),
                    Named::Images => Place::Images(format!("{path}/{name}")),
                    Named::Version(number) => Place::Version(VersionKey::Named(path.clone(), number)),
                    Named::Latest(number) => Place::Latest(path.clone(), number),
                })
            }
            Place::Version(key) => {
                let is_there = self.partitions(key)?.iter().any(|(known, _)| known == name);
                is_there.then(|| Place::Partition(key.clone(), name.to_owned()))
            }
            _ => None,
        })
    }

    /// Lists a directory that is not in a filesystem. If names change meanwhile, one may be left out or occur twice.
    fn list_places(&self, directory: &Place, from: u64, visit: VisitNames<'_>) -> Result<()> {
        let names = match directory {
            Place::Images(path) => {
                let names = self.names()?;
                let found = names.directory(path).ok_or_else(|| Error::missing("it no longer exists"))?;
                found.names()
            }
            Place::Version(key) => self.partitions(key)?.iter().map(|(name, _)| name.clone()).collect(),
            _ => return Err(Error::refused("this is no directory")),
        };
        for (at, name) in (0..).zip(&names).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            let Some(place) = self.place_in(directory, name)? else { continue };
            let node = self.place_node(&place).map_err(|_| self.numbers.lock().place(&place));
            if visit(at, name.as_bytes(), node).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn list_files(&self, file: (usize, u64), from: u64, visit: VisitNames<'_>) -> Result<()> {
        let listing = self.listing(file)?;
        let mut at = from;
        while let Some((name, number)) = usize::try_from(at).ok().and_then(|at| listing.get(at)) {
            let node = self.file_node((file.0, number));
            let node = match node {
                Ok(node) => Ok(node),
                Err(_) => Err(self.numbers.lock().file(file.0, number)?),
            };
            if visit(at, name, node).is_break() {
                break;
            }
            at += 1;
        }
        Ok(())
    }
}

/// The node of an inode.
fn node_of(id: NodeId, inode: &FileInode, is_fixed: bool) -> Result<ViewNode> {
    let metadata = inode.metadata();
    if i64::try_from(metadata.size).is_err() {
        return Err(Error::corrupt(format!("a file of {} bytes is too large", metadata.size)));
    }
    let kind = match metadata.kind {
        FileKind::Regular => ViewKind::Regular,
        FileKind::Directory => ViewKind::Directory,
        FileKind::Link => ViewKind::Link,
        FileKind::CharacterDevice => ViewKind::CharacterDevice,
        FileKind::BlockDevice => ViewKind::BlockDevice,
        FileKind::Fifo => ViewKind::Fifo,
        FileKind::Socket => ViewKind::Socket,
    };
    Ok(ViewNode {
        id,
        kind,
        mode: metadata.mode,
        owner: metadata.owner,
        size: metadata.size,
        allocated: metadata.allocated,
        times: [metadata.atime, metadata.mtime, metadata.ctime],
        links: metadata.links,
        device: metadata.device,
        is_fixed,
    })
}

impl FileView for MountedFiles {
    fn lookup(&self, directory: NodeId, name: &[u8]) -> Result<ViewNode> {
        let missing = || Error::missing(format!("there is no \"{}\"", escaped(name)));
        let file = match self.find(directory)? {
            Numbered::Place(place @ (Place::Images(_) | Place::Version(_) | Place::Latest(..))) => {
                let name = str::from_utf8(name).map_err(|_| missing())?;
                let found = self.place_in(&place, name)?.ok_or_else(missing)?;
                return self.place_node(&found);
            }
            Numbered::Place(place) => self.file_of(&place)?,
            Numbered::File { filesystem, number } => (filesystem, number),
        };
        let number = self.listing(file)?.find(name).ok_or_else(missing)?;
        self.file_node((file.0, number))
    }

    fn node(&self, id: NodeId) -> Result<ViewNode> {
        match self.find(id)? {
            Numbered::Place(place) => self.place_node(&place),
            Numbered::File { filesystem, number } => self.file_node((filesystem, number)),
        }
    }

    fn list(&self, directory: NodeId, from: u64, visit: VisitNames<'_>) -> Result<()> {
        match self.find(directory)? {
            Numbered::Place(place @ (Place::Images(_) | Place::Version(_) | Place::Latest(..))) => {
                self.list_places(&place, from, visit)
            }
            Numbered::Place(place) => self.list_files(self.file_of(&place)?, from, visit),
            Numbered::File { filesystem, number } => self.list_files((filesystem, number), from, visit),
        }
    }

    fn open(&self, id: NodeId) -> Result<()> {
        self.contents(id, self.file(id)?).map(drop)
    }

    fn read(&self, id: NodeId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.file(id)?;
        let contents = self.contents(id, file)?;
        let (_, open) = self.open_filesystem(file.0)?;
        let read = contents.read((&open, id, &self.last_decoded), offset, buffer);
        read.map_err(|error| error.within(self.shown(file)))
    }

    fn seek(&self, id: NodeId, offset: u64, is_hole: bool) -> Result<Option<u64>> {
        Ok(self.contents(id, self.file(id)?)?.seek(offset, is_hole))
    }

    fn target(&self, id: NodeId) -> Result<Vec<u8>> {
        if let Numbered::Place(Place::Latest(_, number)) = self.find(id)? {
            return Ok(number.to_string().into_bytes());
        }
        let file = self.file(id)?;
        let inode = self.inode(file)?;
        if inode.is_encrypted() {
            return Err(Error::refused("the link's target is encrypted, and the key is not in the image"));
        }
        self.with(file, |files| files.target(&inode))
    }

    fn attributes(&self, id: NodeId) -> Result<Vec<ViewAttribute>> {
        if matches!(self.find(id)?, Numbered::Place(Place::Images(_) | Place::Version(_) | Place::Latest(..)))
        {
            return Ok(Vec::new());
        }
        let file = self.file(id)?;
        let inode = self.inode(file)?;
        let found = self.with(file, |files| files.attributes(&inode))?;
        let shown = found.into_iter().filter(is_of_the_system);
        Ok(shown.map(|attribute| (attribute.name, attribute.value)).collect())
    }
}
