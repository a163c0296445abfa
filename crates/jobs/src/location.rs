//! Where a store is: in a directory of this machine, or on another one behind an origin.

use std::path::PathBuf;

use platter_api::SERVE_SOCKET;
use platter_image::{Error, Result};
use platter_store::StorePlace;

use crate::remote::{ServerAddress, ServerOptions};
use platter_transport::Trust;

/// Where a store is.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    /// In a directory.
    Local(StorePlace),
    /// Behind an origin.
    Remote(ServerOptions),
}

impl StoreLocation {
    /// The directory's store, for what is done with one only; `doing` says what that is.
    ///
    /// # Errors
    /// `Refused` for an origin's.
    pub fn local(&self, doing: &str) -> Result<&StorePlace> {
        match self {
            Self::Local(place) => Ok(place),
            Self::Remote(options) => Err(Error::refused(format!(
                "{doing} needs a store in a directory of this machine, not the origin at {}: name one with --store, \
                 or do it on the origin",
                options.address
            ))),
        }
    }
}

impl StoreLocation {
    /// The directories of this machine that belong to the store: nothing may be written to a device that holds them.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        match self {
            Self::Local(place) => vec![place.dir().to_owned()],
            Self::Remote(options) => options.cache.iter().map(|cache| cache.dir.clone()).collect(),
        }
    }
}

impl From<StorePlace> for StoreLocation {
    fn from(place: StorePlace) -> Self {
        Self::Local(place)
    }
}

/// Where programs keep what is theirs on this machine beside origins' stores: `XDG_STATE_HOME/platter/far` if that is set; else
/// `/var/lib/platter/far` for root, and `~/.local/state/platter/far` for others.
pub(crate) fn default_far_dir() -> PathBuf {
    if cfg!(test) {
        return std::env::temp_dir().join(format!("platter-tests-{}", std::process::id()));
    }
    if let Some(state) = set("XDG_STATE_HOME") {
        return state.join("platter/far");
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/platter/far");
    }
    let home = set("HOME").unwrap_or_else(|| PathBuf::from("."));
    home.join(".local/state/platter/far")
}

/// A variable of the environment that is set, and not to nothing.
fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The origin that serves that store on this machine, if one does.
pub fn origin_of(store: &StorePlace) -> ServerOptions {
    let address = ServerAddress::Unix(store.dir().join(SERVE_SOCKET));
    ServerOptions { address, token: None, trust: Trust::System, cache: None }
}

/// `PLATTER_STORE` if it is set; else `/var/lib/platter` for root, and `~/.local/share/platter` for others.
pub fn default_store_dir() -> PathBuf {
    if let Some(dir) = set("PLATTER_STORE") {
        return dir;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/platter");
    }
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.unwrap_or_else(|| PathBuf::from(".")).join("platter")
}
