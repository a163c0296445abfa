//! All versions of a store, for callers that poll them: the tree, whose names follow them.

use std::sync::Arc;

use platter_image::Result;
use platter_records::Version;
use platter_store::Store;

use platter_client::Watch;

/// The catalog of a store. Checking for changes is cheap, wherever the store is.
pub enum Catalog {
    /// The current catalog of a store in a directory.
    Local(Arc<Store>),
    /// A recent copy of an origin's catalog.
    Remote(Watch),
}

impl Catalog {
    /// A number that changes whenever the versions may have changed.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn generation(&self) -> Result<i64> {
        match self {
            Self::Local(store) => store.generation(),
            Self::Remote(watch) => Ok(watch.generation()),
        }
    }

    /// Every version of every image, by image and number.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn versions(&self) -> Result<Arc<Vec<Version>>> {
        match self {
            Self::Local(store) => store.versions().map(Arc::new),
            Self::Remote(watch) => Ok(watch.versions()),
        }
    }

    /// Makes a change by the caller visible to it at once. If the origin is down, it becomes visible later.
    pub fn changed(&self) {
        match self {
            Self::Local(_) => {}
            Self::Remote(watch) => drop(watch.look()),
        }
    }
}
