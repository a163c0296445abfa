//! A store that was opened to be read, wherever it is: what the jobs need that work over both kinds.

use std::sync::Arc;

use platter_image::{BlockId, Result, Score};
use platter_store::{
    BootSet, HoardChanges, HoardSnapshot, ImageName, Resolved, Store, Token, Version, token_refusal,
};
use platter_vdisk::Source;

use crate::StoreLocation;
use crate::remote::{RemoteStore, SourceOptions};
use crate::token::TokenChoice;

/// A store of this machine, or an origin's.
#[derive(Clone)]
pub struct OpenStore(pub(crate) Opened);

/// Which of them.
#[derive(Clone)]
pub(crate) enum Opened {
    Local(Arc<Store>),
    Remote(RemoteStore),
}

impl OpenStore {
    /// Opens a store to be read. An origin is asked when there is a question.
    ///
    /// # Errors
    /// As [`Store::open_reader`]; `Refused` or `Missing` when an origin's certificate can be believed by nothing.
    pub fn open_reader(location: &StoreLocation) -> Result<Self> {
        Ok(Self(match location {
            StoreLocation::Local(place) => Opened::Local(Arc::new(Store::open_reader(place)?)),
            StoreLocation::Remote(options) => Opened::Remote(RemoteStore::open(options)?),
        }))
    }

    /// Every image that has versions, by name: each by its newest version.
    ///
    /// # Errors
    /// What the store says; `Transient` when an origin is away.
    pub fn images(&self) -> Result<Vec<Version>> {
        match &self.0 {
            Opened::Local(store) => store.images(),
            Opened::Remote(store) => store.images(),
        }
    }

    /// The versions of an image, the newest first.
    ///
    /// # Errors
    /// `Missing` when there is no such image; as [`OpenStore::images`].
    pub fn history(&self, image: &ImageName) -> Result<Vec<Version>> {
        match &self.0 {
            Opened::Local(store) => store.history(image),
            Opened::Remote(store) => store.history(image),
        }
    }

    /// What `NAME`, `NAME@7`, `NAME@latest` or a score stands for.
    ///
    /// # Errors
    /// `Refused` for text that is none of these, `Missing`; as [`OpenStore::images`].
    pub fn resolve(&self, text: &str) -> Result<Resolved> {
        match &self.0 {
            Opened::Local(store) => store.resolve(text),
            Opened::Remote(store) => store.resolve(text),
        }
    }

    /// The edit token of an image; `None` when nobody has it.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn token(&self, image: &ImageName) -> Result<Option<Token>> {
        match &self.0 {
            Opened::Local(store) => store.token(image),
            Opened::Remote(store) => store.token(image),
        }
    }

    /// All edit tokens that somebody has, by image.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn tokens(&self) -> Result<Vec<Token>> {
        match &self.0 {
            Opened::Local(store) => store.tokens(),
            Opened::Remote(store) => store.tokens(),
        }
    }

    /// The boot sets that nodes hoard.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn hoard(&self) -> Result<HoardSnapshot> {
        match &self.0 {
            Opened::Local(store) => store.hoard(),
            Opened::Remote(store) => store.hoard(),
        }
    }

    /// What changed in the hoard since a revision.
    ///
    /// # Errors
    /// As [`OpenStore::images`].
    pub fn hoard_changes(&self, epoch: &str, since: u64) -> Result<HoardChanges> {
        match &self.0 {
            Opened::Local(store) => store.hoard_changes(epoch, since),
            Opened::Remote(store) => store.hoard_changes(epoch, since),
        }
    }

    /// A boot set.
    ///
    /// # Errors
    /// `Missing`, `Corrupt`; as [`OpenStore::images`].
    pub fn boot_set(&self, id: &BlockId) -> Result<BootSet> {
        match &self.0 {
            Opened::Local(store) => store.boot_set(id),
            Opened::Remote(store) => store.boot_set(id),
        }
    }

    /// Where the frames and pages of a recipe come from.
    pub(crate) fn source(&self, score: Score, options: SourceOptions) -> Arc<dyn Source> {
        match &self.0 {
            Opened::Local(store) => store.clone(),
            Opened::Remote(store) => Arc::new(store.source(score, options)),
        }
    }

    /// Whether publishing the next version of an image would be refused now: asked before long work.
    pub(crate) fn check_token(&self, image: &ImageName, choice: TokenChoice) -> Result<()> {
        let number = match choice {
            TokenChoice::Steal => return Ok(()),
            TokenChoice::Free => None,
            TokenChoice::Number(number) => Some(number),
        };
        token_refusal(image, number, self.token(image)?.as_ref()).map_or(Ok(()), Err)
    }
}
