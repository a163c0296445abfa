//! The location of a store: a directory of this machine, or behind an origin.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use platter_api::SERVE_SOCKET;
use platter_client::{OriginStore, ServerAddress, ServerOptions};
use platter_image::{Error, Result};
use platter_store::StorePlace;
use platter_transport::Trust;

use crate::node::CacheLocation;
use crate::remote::RemoteStore;

/// The location of a store.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    /// In a directory.
    Local(StorePlace),
    /// Behind an origin.
    Remote(OriginLocation),
}

/// An origin, and the cache through which it is read.
#[derive(Clone, Debug)]
pub struct OriginLocation {
    /// The origin.
    pub server: ServerOptions,
    /// A cache of previously read data, which readers use first.
    pub cache: Option<CacheLocation>,
}

impl OriginLocation {
    /// The same origin without the cache.
    #[must_use]
    pub fn uncached(&self) -> Self {
        self.server.clone().into()
    }

    /// The same origin, read through this cache.
    #[must_use]
    pub fn cached(&self, cache: CacheLocation) -> Self {
        Self { cache: Some(cache), ..self.clone() }
    }

    /// Opens it with the cache. Sends no request yet.
    ///
    /// # Errors
    /// As [`OriginStore::open`] and [`crate::NodeCache::open`].
    pub fn open(&self) -> Result<RemoteStore> {
        let address = self.server.address.to_string();
        RemoteStore::open(OriginStore::open(&self.server)?, self.cache.as_ref(), &address)
    }
}

impl From<ServerOptions> for OriginLocation {
    fn from(server: ServerOptions) -> Self {
        Self { server, cache: None }
    }
}

impl From<ServerOptions> for StoreLocation {
    fn from(server: ServerOptions) -> Self {
        Self::Remote(server.into())
    }
}

impl StoreLocation {
    /// Returns the store in a directory, for operations that need one; `doing` names the operation.
    ///
    /// # Errors
    /// `Refused` for an origin.
    pub fn local(&self, doing: &str) -> Result<&StorePlace> {
        match self {
            Self::Local(place) => Ok(place),
            Self::Remote(origin) => Err(Error::refused(format!(
                "{doing} needs a store in a directory of this machine, not the origin at {}: name one with --store, \
                 or do it on the origin",
                origin.server.address
            ))),
        }
    }

    /// The directories of this machine that belong to the store: nothing may be written to a device that holds them.
    pub fn directories(&self) -> Vec<PathBuf> {
        match self {
            Self::Local(place) => vec![place.dir().to_owned()],
            Self::Remote(origin) => origin.cache.iter().map(|cache| cache.dir.clone()).collect(),
        }
    }
}

impl From<StorePlace> for StoreLocation {
    fn from(place: StorePlace) -> Self {
        Self::Local(place)
    }
}

/// Returns an environment variable that is set and not empty.
fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the address of the origin that serves this store on this machine, if one runs.
pub fn origin_of(store: &StorePlace) -> ServerOptions {
    let address = ServerAddress::Unix(store.dir().join(SERVE_SOCKET));
    ServerOptions { address, token: None, trust: Trust::System }
}

/// Returns the origin that is writing this store of this machine, so that a change can be made there; `None` if nobody is, if another
/// process is, or if the caller set how long to wait for the store.
///
/// # Errors
/// As [`OriginStore::open`]; when its store cannot be asked for its id.
pub(super) fn writing_origin(store: &StorePlace) -> Result<Option<RemoteStore>> {
    match store.lock_wait().is_some() || !store.is_being_written() {
        true => Ok(None),
        false => serving_origin(store),
    }
}

/// Returns the origin that serves this store of this machine, if one answers.
///
/// # Errors
/// As [`OriginStore::open`]; when its store cannot be asked for its id.
pub(super) fn serving_origin(store: &StorePlace) -> Result<Option<RemoteStore>> {
    let options = origin_of(store);
    let answers = match &options.address {
        ServerAddress::Unix(path) => UnixStream::connect(path).is_ok(),
        ServerAddress::Tls { .. } => false,
    };
    if !answers {
        return Ok(None);
    }
    let origin = OriginLocation::from(options).open()?;
    // The origin of another store may listen there.
    let is_ours = origin.origin().id()? == store.store_id()?;
    Ok(is_ours.then_some(origin))
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
