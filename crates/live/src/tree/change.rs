//! Changes of names in the tree, and so of images: create, forget, rename, import.

use std::sync::Arc;

use platter_export::tree::{Access, Node, NodeId, OpenFile};
use platter_image::{Error, Result};
use platter_records::ImageName;

use super::image_tree::{ImageTree, State};
use super::place::{Form, Place, above, hidden, join, moved_path, upwards};
use super::spool::Spool;
use super::spool_file::SpoolFile;
use platter_fetch::EditLockChoice;

/// Most directories without images, which are kept in memory.
const MADE_MAX: usize = 1 << 16;
/// Most remembered files that were removed with another file and can still be removed by name (see `State::gone`).
const GONE_MAX: usize = 1 << 10;
/// Most files that are imported at once.
const SPOOLS_MAX: usize = 1 << 10;

impl State {
    /// Returns the place of a new name in a directory.
    fn vacant(&self, directory: NodeId, name: &str) -> Result<Place> {
        let at = self.place(directory)?;
        match self.find(&at, name) {
            None | Some(Place::Gone(_)) => Ok(at),
            Some(_) => Err(Error::refused(format!("there is a {name} already"))
                .with_source(std::io::Error::from(std::io::ErrorKind::AlreadyExists))),
        }
    }

    /// Returns the place of an existing name.
    fn present(&self, directory: NodeId, name: &str) -> Result<Place> {
        let at = self.place(directory)?;
        self.find(&at, name).ok_or_else(|| Error::missing(format!("there is no {name}")))
    }

    /// Keeps directories after their images were removed: a recursive removal removes them itself.
    fn keep_directories(&mut self, path: &str) {
        self.made.extend(upwards(path).filter(|path| !path.is_empty()).map(str::to_owned));
    }

    fn add_gone(&mut self, path: String) {
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back(path);
    }
}

/// Checks that an image's name can be in the tree.
fn image_name(path: &str) -> Result<ImageName> {
    let image = path.parse()?;
    hidden(path).map_or(Ok(image), |why| Err(Error::refused(format!("{path}: {why}"))))
}

impl ImageTree {
    pub(super) fn make(&self, directory: NodeId, name: &str) -> Result<Node> {
        let mut state = self.state()?;
        let at = state.vacant(directory, name)?;
        if state.made.len() + state.import_made.len() >= MADE_MAX {
            return Err(Error::refused(format!("at most {MADE_MAX} directories without images are allowed")));
        }
        let place = match &at {
            Place::Images(path) => {
                let path = join(path, name);
                image_name(&path)?;
                state.made.insert(path.clone());
                Place::Images(path)
            }
            Place::Import(path) => {
                let path = join(path, name);
                image_name(&path)?;
                state.import_made.insert(path.clone());
                Place::Import(path)
            }
            _ => return Err(Error::refused("directories can only be created among images and in import/")),
        };
        drop(state);
        let mut state = self.state()?;
        self.node_of(&mut state, &place)
    }

    pub(super) fn remove_empty(&self, directory: NodeId, name: &str) -> Result<()> {
        let mut state = self.state()?;
        match state.present(directory, name)? {
            Place::Images(path) => {
                if state.view.directory(&path).is_some_and(|directory| !directory.is_empty()) {
                    return Err(not_empty(&path));
                }
                state.gone.retain(|gone| above(gone) != path);
                state.made.remove(&path);
                state.keep_directories(above(&path));
                Ok(())
            }
            Place::Import(path) if !path.is_empty() => {
                let below = format!("{path}/");
                let mut held = state.import_made.iter().chain(state.spools.keys());
                if held.any(|other| other.starts_with(&below)) {
                    return Err(not_empty(&path));
                }
                if !state.import_made.remove(&path) {
                    return Err(Error::refused(format!("{path} cannot be removed while it has images")));
                }
                Ok(())
            }
            Place::Days | Place::Import(_) | Place::Year(_) | Place::Month(..) | Place::Day(..) => {
                Err(Error::refused(format!("{name} cannot be removed")))
            }
            _ => Err(Error::refused(format!("{name} is a file"))),
        }
    }

    /// Forgets the version behind a file. Files that are removed with it can still be removed by name once.
    pub(super) fn forget(&self, directory: NodeId, name: &str) -> Result<()> {
        let mut state = self.state()?;
        let (image, number) = match state.present(directory, name)? {
            Place::Gone(path) => {
                state.gone.retain(|gone| *gone != path);
                return Ok(());
            }
            Place::Version { image, number, form: Form::Raw, is_latest: false } => (image, number),
            Place::Version { number, form, is_latest, .. } => {
                let which = if is_latest { "the newest version is" } else { "it goes with" };
                let how = if form == Form::Score && !is_latest { "" } else { ", and goes with the last one" };
                return Err(Error::refused(format!(
                    "{name} is not removed by itself: {which} {number}.raw{how}"
                )));
            }
            Place::Live(image) => {
                return Err(Error::refused(format!(
                    "{image} is attached: `platter detach {image}` ends that"
                )));
            }
            Place::Spool(path) => {
                return Err(Error::refused(format!("{path} disappears when it is closed")));
            }
            Place::DayVersion { .. } => return Err(Error::refused("files in by-date cannot be removed")),
            _ => return Err(Error::refused(format!("{name} is a directory"))),
        };
        // First, so that the directory stays without its last version.
        state.keep_directories(&image);
        drop(state);
        self.keep.sources.store.forget(&image.parse()?, Some(number))?;
        self.keep.catalog.changed();
        let mut state = self.state()?;
        state.add_gone(join(&image, &format!("{number}.score")));
        if state.view.directory(&image).is_none_or(|directory| directory.versions.is_empty()) {
            for form in [Form::Raw, Form::Score] {
                state.add_gone(join(&image, &format!("latest{}", form.suffix())));
            }
        }
        Ok(())
    }

    pub(super) fn rename_images(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<()> {
        let mut state = self.state()?;
        let Place::Images(old) = state.present(from.0, from.1)? else {
            return Err(Error::refused(format!("{} is not an image and cannot be renamed", from.1)));
        };
        let Place::Images(above_new) = state.vacant(to.0, to.1)? else {
            return Err(Error::refused(format!("{} is not a valid place for an image", to.1)));
        };
        let new = join(&above_new, to.1);
        let (from, to) = (image_name(&old)?, image_name(&new)?);
        if moved_path(&new, &old, "").is_some() {
            return Err(Error::refused(format!("{new} is below {old}: it cannot be moved into itself")));
        }
        if state.view.directory(&old).is_some_and(|directory| directory.is_live) {
            return Err(Error::refused(format!("{old} is attached: `platter detach {old}` ends that")));
        }
        let has_images = state.view.has_images(&old);
        state.renames += 1;
        drop(state);
        let store = &self.keep.sources.store;
        let renamed = if has_images { store.rename(&from, &to).map(drop) } else { Ok(()) };
        self.keep.catalog.changed();
        // Without reading the catalog, because the node numbers must move first.
        let mut state = self.state_as_it_was();
        state.renames -= 1;
        renamed?;
        state.nodes.rename(|place| place.moved(&old, &new));
        state.made = state
            .made
            .iter()
            .map(|path| moved_path(path, &old, &new).unwrap_or_else(|| path.clone()))
            .collect();
        state.keep_directories(above(&old));
        if !has_images {
            state.keep_directories(&new);
        }
        Ok(())
    }

    pub(super) fn create_import(
        &self,
        directory: NodeId,
        name: &str,
        access: Access,
    ) -> Result<(Node, Arc<dyn OpenFile>)> {
        let mut state = self.state()?;
        let Place::Import(path) = state.vacant(directory, name)? else {
            return Err(Error::refused(
                "new files can only be created in import/, where they become versions",
            ));
        };
        let path = join(&path, name);
        let image = image_name(path.strip_suffix(Form::Raw.suffix()).unwrap_or(&path))?;
        let open = state.spools.values().filter_map(std::sync::Weak::upgrade);
        if open.into_iter().any(|spool| *spool.image() == image) {
            return Err(Error::refused(format!("{image} is being imported already")));
        }
        state.spools.retain(|_, spool| spool.strong_count() > 0);
        if state.spools.len() >= SPOOLS_MAX {
            return Err(Error::refused(format!("{SPOOLS_MAX} files are being imported already")));
        }
        if self.keep.sources.store.domain()?.is_encrypted() {
            return Err(Error::refused(
                "the store is encrypted, and files in import/ are not while they are written: use `platter capture`",
            ));
        }
        // Checked early, before a disk is copied in vain; publishing checks again.
        self.keep.sources.store.check_edit_lock(&image, EditLockChoice::Free)?;
        let spool = Arc::new(Spool::create(self.keep.clone(), image, format!("import/{path}"))?);
        state.spools.insert(path.clone(), Arc::downgrade(&spool));
        let node = self.node_of(&mut state, &Place::Spool(path))?;
        drop(state);
        Ok((node, Arc::new(SpoolFile::open(spool, access)?)))
    }
}

fn not_empty(path: &str) -> Error {
    Error::refused(format!("{path} is not empty"))
        .with_source(std::io::Error::from(std::io::ErrorKind::DirectoryNotEmpty))
}
