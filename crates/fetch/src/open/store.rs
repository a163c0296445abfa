//! An open store of either kind: the operations that jobs need.

use std::sync::Arc;

use platter_client::Watch;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Domain, Error, ErrorKind, Result, Score};
use platter_records::{
    BootSet, EditLock, History, HoardChanges, HoardSnapshot, ImageName, Quota, QuotaUse, Resolved, Signature,
    StoreId, Version, VersionName, edit_lock_refusal,
};
use platter_store::{Hoard, KnownCheck, Store, missing_blocks};
use platter_vdisk::Source;

use super::catalog::Catalog;
use super::clock::unix_ms;
use super::edit_lock_choice::EditLockChoice;
use super::location::{StoreLocation, serving_origin, writing_origin};
use super::session::OpenSession;
use super::stack::stack;
use crate::driver::SourceOptions;
use crate::node::{CachedSource, NodeCache};
use crate::remote::RemoteStore;

/// Most sessions of an origin for one job: it may be restarted or replaced meanwhile.
const SESSIONS_MAX: u32 = 32;

/// A store of this machine, or of an origin.
#[derive(Clone)]
pub struct OpenStore(Opened);

/// The two kinds of stores.
#[derive(Clone)]
pub enum Opened {
    /// In a directory of this machine.
    Local(Arc<Store>),
    /// Behind an origin.
    Remote(RemoteStore),
}

impl OpenStore {
    /// Opens a store for reading. An origin is contacted at the first query.
    ///
    /// # Errors
    /// As [`Store::open_reader`]; `Refused` or `Missing` when no certificate of the origin can be trusted.
    pub fn open_reader(location: &StoreLocation) -> Result<Self> {
        Ok(Self(match location {
            StoreLocation::Local(place) => Opened::Local(Arc::new(Store::open_reader(place)?)),
            StoreLocation::Remote(options) => Opened::Remote(options.open()?),
        }))
    }

    /// Opens a store for writing, and locks out other writers. An origin does that itself, also the one that is writing a store
    /// of this machine.
    ///
    /// # Errors
    /// As [`Store::open_writer`] and [`OpenStore::open_reader`].
    pub fn open_writer(location: &StoreLocation) -> Result<Self> {
        match location {
            StoreLocation::Local(place) => {
                Store::refuse_changes(place)?;
                Ok(Self(match writing_origin(place)? {
                    Some(origin) => Opened::Remote(origin),
                    None => Opened::Local(Arc::new(Store::open_writer(place)?)),
                }))
            }
            StoreLocation::Remote(_) => Self::open_reader(location),
        }
    }

    /// Returns what makes a change: this store, or the origin that is writing it now.
    ///
    /// # Errors
    /// As [`OpenStore::open_reader`] of an origin.
    pub fn changer(&self) -> Result<Opened> {
        match &self.0 {
            // A store opened for writing holds the lock itself.
            Opened::Local(store) if store.salvaged().is_none() => {
                let origin = writing_origin(store.place())?;
                Ok(origin.map_or_else(|| self.0.clone(), Opened::Remote))
            }
            opened => Ok(opened.clone()),
        }
    }

    /// Returns what collects garbage: the origin that serves this store, which also knows what its clients read, or this store.
    ///
    /// # Errors
    /// As [`OpenStore::open_reader`] of an origin.
    pub fn collector(&self) -> Result<Opened> {
        match &self.0 {
            Opened::Local(store) => {
                let origin = serving_origin(store.place())?;
                Ok(origin.map_or_else(|| self.0.clone(), Opened::Remote))
            }
            opened @ Opened::Remote(_) => Ok(opened.clone()),
        }
    }

    /// Checks that every block of a disk is available, before a target is changed. An origin checks this itself; while
    /// it is down and the disk comes from a cache or from peers, nothing is checked.
    ///
    /// # Errors
    /// `Missing` when blocks are missing, `Corrupt` when some are known to be damaged; the errors of reading the
    /// recipe.
    pub fn check_presence<P: PageSource>(&self, recipe: &Recipe<P>) -> Result<()> {
        let missing = match &self.0 {
            Opened::Local(store) => missing_blocks(recipe, &**store, store.quarantined())?,
            Opened::Remote(store) => match store.origin().missing_blocks(recipe.score()) {
                Err(error) if error.kind() == ErrorKind::Transient => None,
                answer => answer?,
            },
        };
        missing.map_or(Ok(()), |missing| Err(missing.refuse()))
    }

    /// Returns the identity domain of the store's blocks. Of an encrypted store behind an origin, this process has the keys on return.
    ///
    /// # Errors
    /// As [`OriginStore::domain`](platter_client::OriginStore::domain).
    pub fn domain(&self) -> Result<Domain> {
        match &self.0 {
            Opened::Local(store) => Ok(store.domain()),
            Opened::Remote(store) => store.origin().domain(),
        }
    }

    /// Returns every image that has versions, by name: the newest version of each.
    ///
    /// # Errors
    /// The store's errors; `Transient` when an origin is down.
    pub fn images(&self) -> Result<Vec<Version>> {
        match &self.0 {
            Opened::Local(store) => store.images(),
            Opened::Remote(store) => store.origin().images(),
        }
    }

    /// Returns the versions of an image, newest first.
    ///
    /// # Errors
    /// `Missing` when there is no such image; as [`OpenStore::images`].
    pub fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        match &self.0 {
            Opened::Local(store) => store.history(image),
            Opened::Remote(store) => store.origin().history(image),
        }
    }

    /// Resolves `NAME`, `NAME@7`, `NAME@latest` or a score.
    ///
    /// # Errors
    /// `Refused` for other text; `Missing`; as [`OpenStore::images`].
    pub fn resolve(&self, text: &str) -> Result<Resolved> {
        match &self.0 {
            Opened::Local(store) => store.resolve(text),
            Opened::Remote(store) => store.resolve(text),
        }
    }

    /// The same, with the error of an origin that is down if the result comes from its stored replies.
    ///
    /// # Errors
    /// As [`OpenStore::resolve`].
    pub fn resolve_or_remember(&self, text: &str) -> Result<(Resolved, Option<Error>)> {
        match &self.0 {
            Opened::Local(store) => store.resolve(text).map(|resolved| (resolved, None)),
            Opened::Remote(store) => store.resolve_or_remember(text),
        }
    }

    /// Returns the edit lock of an image; `None` when nobody holds it.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn edit_lock(&self, image: &ImageName) -> Result<Option<EditLock>> {
        match &self.0 {
            Opened::Local(store) => store.edit_lock(image),
            Opened::Remote(store) => store.origin().edit_lock(image),
        }
    }

    /// Returns all held edit locks, by image.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn edit_locks(&self) -> Result<Vec<EditLock>> {
        match &self.0 {
            Opened::Local(store) => store.edit_locks(),
            Opened::Remote(store) => store.origin().edit_locks(),
        }
    }

    /// Returns the boot sets that nodes hoard.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn hoard(&self) -> Result<HoardSnapshot> {
        match &self.0 {
            Opened::Local(store) => store.hoard(),
            Opened::Remote(store) => store.origin().hoard(),
        }
    }

    /// Returns the changes of the hoard since a revision.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn hoard_changes(&self, epoch: &str, since: u64) -> Result<HoardChanges> {
        match &self.0 {
            Opened::Local(store) => store.hoard_changes(epoch, since),
            Opened::Remote(store) => store.origin().hoard_changes(epoch, since),
        }
    }

    /// A boot set.
    ///
    /// # Errors
    /// `Missing`, `Corrupt`; as [`OpenStore::images`].
    pub fn boot_set(&self, id: &BlockId) -> Result<BootSet> {
        match &self.0 {
            Opened::Local(store) => store.boot_set(id),
            Opened::Remote(store) => store.origin().boot_set(id),
        }
    }

    /// Takes the edit lock of an image: it must be free, or with `steal` it is taken over.
    ///
    /// # Errors
    /// As [`Store::take_edit_lock`] and [`Store::steal_edit_lock`].
    pub fn take_edit_lock(&self, image: &ImageName, holder: &str, steal: bool) -> Result<EditLock> {
        match (&self.changer()?, steal) {
            (Opened::Local(store), false) => store.take_edit_lock(image, holder, unix_ms()),
            (Opened::Local(store), true) => store.steal_edit_lock(image, holder, unix_ms()),
            (Opened::Remote(store), _) => store.origin().take_edit_lock(image, holder, steal),
        }
    }

    /// Releases an edit lock.
    ///
    /// # Errors
    /// As [`Store::release_edit_lock`]; `Missing` when nobody holds it.
    pub fn release_edit_lock(&self, edit_lock: &EditLock) -> Result<()> {
        match &self.changer()? {
            Opened::Local(store) => store.release_edit_lock(edit_lock),
            Opened::Remote(store) => store.origin().release_edit_lock(edit_lock),
        }
    }

    /// Checks before long work whether publishing the next version of an image would be refused now.
    pub fn check_edit_lock(&self, image: &ImageName, choice: EditLockChoice) -> Result<()> {
        let number = match choice {
            EditLockChoice::Steal => return Ok(()),
            EditLockChoice::Free => None,
            EditLockChoice::Number(number) => Some(number),
        };
        edit_lock_refusal(image, number, self.edit_lock(image)?.as_ref()).map_or(Ok(()), Err)
    }

    /// Forgets one version of an image, or all. Returns their names.
    ///
    /// # Errors
    /// As [`Store::forget`].
    pub fn forget(&self, image: &ImageName, number: Option<u64>) -> Result<Vec<String>> {
        match &self.changer()? {
            Opened::Local(store) => {
                Ok(store.forget(image, number)?.iter().map(ToString::to_string).collect())
            }
            Opened::Remote(store) => store.origin().forget(image, number),
        }
    }

    /// Protects one version of an image from being forgotten, or all present ones; `protect` false ends that. Returns the
    /// versions whose protection changed.
    ///
    /// # Errors
    /// As [`Store::protect`].
    pub fn protect(&self, image: &ImageName, number: Option<u64>, protect: bool) -> Result<Vec<VersionName>> {
        match &self.changer()? {
            Opened::Local(store) => store.protect(image, number, protect),
            Opened::Remote(store) => store.origin().protect(image, number, protect),
        }
    }

    /// Returns all protected versions, by image and number.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn protected(&self) -> Result<Vec<VersionName>> {
        match &self.0 {
            Opened::Local(store) => store.protected(),
            Opened::Remote(store) => store.origin().protected(),
        }
    }

    /// Returns the quotas and what is used of them, ordered by prefix.
    ///
    /// # Errors
    /// As [`Store::quotas`].
    pub fn quotas(&self) -> Result<Vec<QuotaUse>> {
        match &self.0 {
            Opened::Local(store) => store.quotas(&|_| true),
            Opened::Remote(store) => store.origin().quotas(),
        }
    }

    /// Sets the quota of an image and all images below it, or removes it. Returns the quota before.
    ///
    /// # Errors
    /// As [`Store::set_quota`].
    pub fn set_quota(&self, prefix: &ImageName, limit_bytes: Option<u64>) -> Result<Option<Quota>> {
        match &self.changer()? {
            Opened::Local(store) => store.set_quota(prefix, limit_bytes),
            Opened::Remote(store) => store.origin().set_quota(prefix, limit_bytes),
        }
    }

    /// Renames an image and those below it. Returns the names before and after.
    ///
    /// # Errors
    /// As [`Store::rename`]; `Transient` when another process writes the store.
    pub fn rename(&self, from: &ImageName, to: &ImageName) -> Result<Vec<(String, String)>> {
        match &self.changer()? {
            Opened::Local(store) => {
                let renamed = store.rename(from, to)?;
                Ok(renamed.iter().map(|it| (it.from.to_string(), it.to.to_string())).collect())
            }
            Opened::Remote(store) => store.origin().rename(from, to),
        }
    }

    /// Adds a signature to a version.
    ///
    /// # Errors
    /// As [`Store::sign`]; as [`OpenStore::images`].
    pub fn sign(&self, name: &VersionName, signature: &Signature) -> Result<Version> {
        match &self.changer()? {
            Opened::Local(store) => store.sign(name, signature),
            Opened::Remote(store) => store.origin().sign(name, signature),
        }
    }

    /// Returns the store's id.
    ///
    /// # Errors
    /// `Transient` when an origin is down.
    pub fn id(&self) -> Result<StoreId> {
        match &self.0 {
            Opened::Local(store) => Ok(store.id()),
            Opened::Remote(store) => store.origin().id(),
        }
    }

    /// The log of changes, of one image or of all.
    ///
    /// # Errors
    /// When the catalog or its logs cannot be read; as [`OpenStore::images`].
    pub fn changes(&self, image: Option<&ImageName>) -> Result<History> {
        match &self.0 {
            Opened::Local(store) => {
                let mut history = store.changes_after(0, usize::MAX)?;
                let is_wanted = |images: Vec<&ImageName>| image.is_none_or(|image| images.contains(&image));
                history.changes.retain(|change| is_wanted(change.action.images()));
                Ok(history)
            }
            Opened::Remote(store) => store.origin().changes(image),
        }
    }

    /// Returns the catalog, for callers that poll all versions.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn catalog(&self) -> Result<Catalog> {
        Ok(match &self.0 {
            Opened::Local(store) => Catalog::Local(store.clone()),
            Opened::Remote(store) => Catalog::Remote(Watch::start(store.origin().clone())?),
        })
    }

    /// Returns the source of a recipe's frames and pages.
    pub fn source(&self, score: Score, options: SourceOptions) -> Arc<dyn Source> {
        stack(&self.0, None, score, options)
    }

    /// As [`OpenStore::source`], with a hoard in front, if there is one.
    pub fn hoarded_source(
        &self,
        hoard: Option<&Arc<Hoard>>,
        score: Score,
        options: SourceOptions,
    ) -> Arc<dyn Source> {
        stack(&self.0, hoard, score, options)
    }

    /// Returns the kind of store, for operations that differ between the two.
    pub fn opened(&self) -> &Opened {
        &self.0
    }

    /// Returns the source through an origin's cache; `None` without one.
    pub fn cached_source(&self, score: Score, options: SourceOptions) -> Option<Arc<CachedSource>> {
        match &self.0 {
            Opened::Local(_) => None,
            Opened::Remote(store) => store.cached_source(score, options),
        }
    }

    /// The origin, if it is one.
    pub fn remote(&self) -> Option<&RemoteStore> {
        match &self.0 {
            Opened::Local(_) => None,
            Opened::Remote(store) => Some(store),
        }
    }

    /// The cache that an origin is read through.
    pub fn cache(&self) -> Option<&Arc<NodeCache>> {
        match &self.0 {
            Opened::Local(_) => None,
            Opened::Remote(store) => store.cache(),
        }
    }

    /// Refreshes the view of the store, if it needs that, to see later additions.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn refresh(&self) -> Result<()> {
        match &self.0 {
            Opened::Local(store) => store.refresh(),
            Opened::Remote(_) => Ok(()),
        }
    }

    /// Lets `add` add a version of this image in a session, and in another session if an origin loses the first one:
    /// that session finds the data that the origin has, and `lost` is told the reason. `known` sets how much of the
    /// existing data that the version relies on is read back.
    ///
    /// # Errors
    /// The errors of `add`; `Transient` when another process writes the store for too long.
    pub fn add<T>(
        &self,
        image: &ImageName,
        known: KnownCheck,
        lost: &dyn Fn(&str),
        mut add: impl FnMut(&mut OpenSession) -> Result<T>,
    ) -> Result<T> {
        let mut left = SESSIONS_MAX;
        loop {
            let mut session = self.session(image, known)?;
            left -= 1;
            match add(&mut session) {
                Err(error) if session.is_lost() && left > 0 => {
                    lost(&format!("starting again, because the origin lost the upload: {error}"));
                }
                result => return result,
            }
        }
    }

    fn session(&self, image: &ImageName, known: KnownCheck) -> Result<OpenSession> {
        let store = match &self.changer()? {
            Opened::Remote(store) => {
                let session = store.origin().session(image, known == KnownCheck::All)?;
                return Ok(OpenSession::Remote { session, cache: store.cache().cloned() });
            }
            // Only a store opened for writing has taken over interrupted data.
            Opened::Local(store) if store.salvaged().is_some() => store.clone(),
            Opened::Local(store) => Arc::new(Store::open_writer(store.place())?),
        };
        let session = store.session()?.with_known_check(known);
        Ok(OpenSession::Local { store, session: Some(Box::new(session)) })
    }
}
