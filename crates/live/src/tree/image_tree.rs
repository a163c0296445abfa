//! The tree: its current names, and the files behind them.
//!
//! Names come from a [`View`] of the catalog, which is checked at every query of names: checking for changes is cheap,
//! also for a remote store, and a new view is made only after a change. Only this process knows files that are being
//! imported, and directories that are still empty.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use platter_export::Exports;
use platter_export::tree::{Access, Node, NodeId, NodeKind, OpenFile, Room, Tree};
use platter_image::{Error, Result};
use platter_records::ImageName;

use super::files::{LiveFile, SCORE_FILE_LENGTH, ScoreFile, VersionFile};
use super::keep::Keep;
use super::nodes::{Nodes, NodesState};
use super::place::{Form, Place, hidden, join};
use super::spool::Spool;
use super::spool_file::SpoolFile;
use super::view::{Contents, Listed, View};
use crate::disk::Base;
use crate::place::LivePlace;
use crate::sources::Sources;

/// The tree of a store, and of the disks that this process serves.
pub struct ImageTree {
    pub(super) keep: Arc<Keep>,
    disks: Arc<dyn Exports>,
    opened_unix_ms: i64,
    state: Mutex<State>,
}

/// The state that only this process knows, and its view of the rest.
#[derive(Default)]
pub(super) struct State {
    pub(super) nodes: Nodes,
    pub(super) view: Arc<View>,
    /// The catalog's state of the view.
    seen: Option<Seen>,
    versions: Vec<Listed>,
    /// Directories that were created here, or whose last image was removed here.
    pub(super) made: BTreeSet<String>,
    /// Files that were removed with another and can still be removed by name once; the oldest first.
    pub(super) gone: VecDeque<String>,
    /// Directories that were created in `import`.
    pub(super) import_made: BTreeSet<String>,
    /// Files in `import`, while they are open.
    pub(super) spools: BTreeMap<String, Weak<Spool>>,
    /// Number of renames under way: until they are done, no node number is released, because they will move it.
    pub(super) renames: usize,
}

#[derive(PartialEq, Eq)]
struct Seen {
    generation: i64,
    live: Vec<String>,
    made: BTreeSet<String>,
}

impl State {
    /// Returns the place of a node.
    pub(super) fn place(&self, node: NodeId) -> Result<Place> {
        let place = self.nodes.place(node).cloned();
        place.ok_or_else(|| Error::missing(format!("node {node} no longer exists")))
    }

    /// Looks up a name in a directory.
    pub(super) fn find(&self, at: &Place, name: &str) -> Option<Place> {
        match at {
            Place::Import(path) => {
                let path = join(path, name);
                match self.spool(&path) {
                    Some(_) => Some(Place::Spool(path)),
                    None => Some(Place::Import(path)).filter(|place| self.has(place)),
                }
            }
            Place::Images(path) => self.view.find(at, name).or_else(|| {
                let gone = join(path, name);
                self.gone.contains(&gone).then_some(Place::Gone(gone))
            }),
            _ => self.view.find(at, name),
        }
    }

    /// Returns all names in a directory.
    fn names(&self, at: &Place) -> Vec<String> {
        let Place::Import(path) = at else { return self.view.names(at) };
        let below = |all: &mut dyn Iterator<Item = &String>| -> Vec<String> {
            let in_it = |other: &String| {
                let (above, name) = other.rsplit_once('/').unwrap_or(("", other));
                (above == path).then(|| name.to_owned())
            };
            all.filter_map(in_it).collect()
        };
        let open = self.spools.iter().filter(|(_, spool)| spool.strong_count() > 0);
        let mut names: BTreeSet<String> = below(&mut open.map(|(path, _)| path)).into_iter().collect();
        names.extend(below(&mut self.import_made.iter()));
        let images = self.view.directory(path).into_iter().flat_map(|directory| &directory.names);
        names.extend(images.filter(|name| self.has(&Place::Import(join(path, name)))).cloned());
        names.into_iter().collect()
    }

    pub(super) fn has(&self, place: &Place) -> bool {
        match place {
            Place::Gone(path) => self.gone.contains(path),
            Place::Spool(path) => self.spool(path).is_some(),
            Place::Import(path) if path.is_empty() => true,
            // An image without images below it is no directory here: a file with its name is imported as its next
            // version.
            Place::Import(path) => {
                let holds_images = |path: &String| {
                    self.view.directory(path).is_some_and(|directory| !directory.names.is_empty())
                };
                self.import_made.contains(path) || self.made.contains(path) || holds_images(path)
            }
            _ => self.view.has(place),
        }
    }

    pub(super) fn spool(&self, path: &str) -> Option<Arc<Spool>> {
        self.spools.get(path)?.upgrade()
    }
}

impl ImageTree {
    /// Opens the tree of a store. `disks` are the served disks, by the names of their images.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) fn open(
        place: &LivePlace,
        sources: Sources,
        disks: Arc<dyn Exports>,
        tool_version: String,
    ) -> Result<Self> {
        Spool::clean(place);
        let catalog = sources.store.catalog()?;
        let keep = Arc::new(Keep { place: place.clone(), sources, catalog, tool_version });
        let tree = Self { keep, disks, opened_unix_ms: unix_ms(SystemTime::now()), state: Mutex::default() };
        drop(tree.state()?);
        Ok(tree)
    }

    /// Returns the node numbers, for another process.
    ///
    /// # Errors
    /// `Transient` while a file is being imported, which cannot move.
    pub(crate) fn nodes(&self) -> Result<NodesState> {
        let state = self.state_as_it_was();
        match state.spools.values().any(|spool| spool.strong_count() > 0) {
            true => Err(Error::transient("a file is being written into import/")),
            false => Ok(state.nodes.state()),
        }
    }

    /// Shows a change that this process made to the catalog.
    pub(crate) fn changed(&self) {
        self.keep.catalog.changed();
    }

    /// Continues with the node numbers of another process.
    pub(crate) fn restore_nodes(&self, nodes: NodesState) {
        self.state_as_it_was().nodes = Nodes::restored(nodes);
    }

    /// Returns the state without checking the catalog.
    pub(super) fn state_as_it_was(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the state with a current view of the catalog.
    pub(super) fn state(&self) -> Result<MutexGuard<'_, State>> {
        let mut guard = self.state_as_it_was();
        let state = &mut *guard;
        // Not before the lock: the numbers of disks that are missing in an older list would be dropped.
        let mut live = self.disks.list();
        live.retain(|disk| disk.parse::<ImageName>().is_ok() && hidden(disk).is_none());
        let generation = self.keep.catalog.generation()?;
        let is_old = |seen: &Seen| seen.generation != generation;
        if state.seen.as_ref().is_none_or(is_old) {
            state.versions = self.keep.catalog.versions()?.iter().filter_map(Listed::of).collect();
        } else if state.seen.as_ref().is_some_and(|seen| seen.live == live && seen.made == state.made) {
            return Ok(guard);
        }
        state.view = Arc::new(View::new(&state.versions, &live, &state.made));
        state.spools.retain(|_, spool| spool.strong_count() > 0);
        if state.renames == 0 {
            let mut nodes = std::mem::take(&mut state.nodes);
            nodes.retain(|place| state.has(place));
            state.nodes = nodes;
        }
        state.seen = Some(Seen { generation, live, made: state.made.clone() });
        Ok(guard)
    }

    /// Returns the node of a place.
    pub(super) fn node_of(&self, state: &mut State, place: &Place) -> Result<Node> {
        let id = state.nodes.number(place);
        let missing = || Error::missing("it no longer exists");
        let contents = || match place {
            Place::Version { image, number, .. } | Place::DayVersion { image, number, .. } => {
                state.view.contents(image, *number).cloned().or_else(|| state.nodes.contents(id))
            }
            _ => None,
        };
        let (kind, writable, modified_unix_ms) = match place {
            Place::Version { form, .. } | Place::DayVersion { form, .. } => {
                let contents = contents().ok_or_else(missing)?;
                (file_kind(&contents, *form), false, contents.modified)
            }
            Place::Live(image) => self.live_node(state, image)?,
            Place::Spool(path) => {
                let (length, allocated, modified) = state.spool(path).ok_or_else(missing)?.facts()?;
                (NodeKind::File { length, allocated }, true, modified)
            }
            Place::Gone(_) => (NodeKind::File { length: 0, allocated: 0 }, false, self.opened_unix_ms),
            Place::Images(_) | Place::Import(_) => {
                (NodeKind::Directory, true, state.view.modified(place).max(self.opened_unix_ms))
            }
            _ => (NodeKind::Directory, false, state.view.modified(place)),
        };
        Ok(Node { id, kind, writable, modified_unix_ms })
    }

    /// Returns kind, writability, and time of a live disk. The time is always now, because others may write it in other
    /// ways.
    fn live_node(&self, state: &State, image: &str) -> Result<(NodeKind, bool, i64)> {
        let disk = self.disks.open(image)?;
        let length = disk.length();
        let newest = state.view.directory(image).and_then(|directory| directory.newest());
        let allocated = newest.map_or(length, |(_, contents)| contents.allocated.min(length));
        let modified = if disk.is_writable() { unix_ms(SystemTime::now()) } else { self.opened_unix_ms };
        Ok((NodeKind::File { length, allocated }, disk.is_writable(), modified))
    }

    fn open_version(&self, contents: Arc<Contents>, form: Form, access: Access) -> Result<Arc<dyn OpenFile>> {
        if access != Access::Read {
            return Err(Error::refused(
                "a version never changes: attach the image with --write, or write a new one to import/",
            ));
        }
        let sources = &self.keep.sources;
        if sources.signatures().is_active()? {
            sources.resolve(&contents.name.to_string())?;
        }
        Ok(match form {
            // A machine may boot from it, too.
            Form::Raw => Arc::new(VersionFile {
                disk: Base::open(&self.keep.sources, contents.score)?.device,
                contents,
            }),
            Form::Score => Arc::new(ScoreFile { contents }),
        })
    }
}

impl Tree for ImageTree {
    fn lookup(&self, directory: NodeId, name: &str) -> Result<Node> {
        let mut state = self.state()?;
        let at = state.place(directory)?;
        let place = state.find(&at, name).ok_or_else(|| Error::missing(format!("there is no {name}")))?;
        self.node_of(&mut state, &place)
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId> {
        let mut state = self.state()?;
        let place = state.place(directory)?;
        Ok(state.nodes.number(&place.parent()))
    }

    fn node(&self, id: NodeId) -> Result<Node> {
        let mut state = self.state()?;
        let place = state.place(id)?;
        self.node_of(&mut state, &place)
    }

    fn list(&self, directory: NodeId) -> Result<Vec<(String, Node)>> {
        let mut state = self.state()?;
        let at = state.place(directory)?;
        let mut names = state.names(&at);
        names.sort_unstable();
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            let Some(place) = state.find(&at, &name) else { continue };
            // A disk that is just being detached is left out.
            if let Ok(node) = self.node_of(&mut state, &place) {
                nodes.push((name, node));
            }
        }
        Ok(nodes)
    }

    fn open(&self, id: NodeId, access: Access) -> Result<Arc<dyn OpenFile>> {
        let mut state = self.state()?;
        let missing = || Error::missing(format!("node {id} no longer exists"));
        match state.place(id)? {
            Place::Version { image, number, form, .. } | Place::DayVersion { image, number, form, .. } => {
                let contents =
                    state.view.contents(&image, number).cloned().or_else(|| state.nodes.contents(id));
                let contents = contents.ok_or_else(missing)?;
                state.nodes.opened(id, &contents);
                drop(state);
                self.open_version(contents, form, access)
            }
            Place::Live(image) => {
                drop(state);
                Ok(Arc::new(LiveFile::open(&image, self.disks.open(&image)?, access)?))
            }
            Place::Spool(path) => {
                let spool = state.spool(&path).ok_or_else(missing)?;
                drop(state);
                Ok(Arc::new(SpoolFile::open(spool, access)?))
            }
            Place::Gone(_) => Err(missing()),
            _ => Err(Error::refused(format!("node {id} is a directory"))),
        }
    }

    fn create(&self, directory: NodeId, name: &str, access: Access) -> Result<(Node, Arc<dyn OpenFile>)> {
        self.create_import(directory, name, access)
    }

    fn make_directory(&self, directory: NodeId, name: &str) -> Result<Node> {
        self.make(directory, name)
    }

    fn remove_file(&self, directory: NodeId, name: &str) -> Result<()> {
        self.forget(directory, name)
    }

    fn remove_directory(&self, directory: NodeId, name: &str) -> Result<()> {
        self.remove_empty(directory, name)
    }

    fn rename(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<()> {
        self.rename_images(from, to)
    }

    fn room(&self) -> Room {
        let dir = self.keep.place.dir();
        // If this fails, a later write reports the error.
        rustix::fs::statvfs(dir).map_or(Room::default(), |room| Room {
            total: room.f_blocks.saturating_mul(room.f_frsize),
            free: room.f_bavail.saturating_mul(room.f_frsize),
        })
    }
}

fn file_kind(contents: &Contents, form: Form) -> NodeKind {
    match form {
        Form::Raw => NodeKind::File { length: contents.length, allocated: contents.allocated },
        Form::Score => NodeKind::File { length: SCORE_FILE_LENGTH, allocated: SCORE_FILE_LENGTH },
    }
}

fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
