//! A node's sharing: serves cached frames to peers, and fetches from peers before it asks the origin.

use std::io::ErrorKind::AddrInUse;
use std::net::{SocketAddr, TcpListener};

use platter_cast::peer::NodeId;
use platter_client::SharingRights;
use platter_image::{Error, IoContext, Result};

use super::node_cache::NodeCache;
use crate::driver::{Directory, Fetcher, Identity, PeerOptions};

/// File of known nodes, in the cache's directory.
const DIRECTORY: &str = "peers.json";

/// Options of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharingRequest {
    /// The address at which other nodes reach this one.
    pub address: SocketAddr,
    /// Limit of bits per second sent to all of them together.
    pub bits_per_second_max: u64,
}

impl SharingRequest {
    /// Checks the address without sharing anything. Returns false if it is in use.
    ///
    /// # Errors
    /// `Refused` for an address that no other node can reach; `Io` when this machine does not have it.
    pub fn check(&self) -> Result<bool> {
        self.check_address()?;
        match TcpListener::bind(self.address) {
            Err(error) if error.kind() == AddrInUse => Ok(false),
            bound => bound.map(|_| true).context(|| format!("listening for peers at {}", self.address)),
        }
    }

    fn check_address(&self) -> Result<()> {
        match self.address.ip().is_unspecified() {
            false => Ok(()),
            true => Err(Error::refused(format!(
                "peers at {}: name the address at which other nodes reach this one",
                self.address
            ))),
        }
    }
}

/// Starts to share the frames of a cache.
///
/// # Errors
/// `Refused` for an address that no other node can reach, and when the cache may hold blocks of images that the access
/// token does not cover; `Io` when the address is not available.
pub(super) fn begin(
    cache: &NodeCache,
    fetcher: &Fetcher,
    rights: SharingRights,
    request: &SharingRequest,
) -> Result<()> {
    request.check_address()?;
    let (dir, id) = (cache.cache().dir(), NodeId(cache.cache().id().0));
    cache.audience().share_with(rights)?;
    let identity = Identity::open(dir, id)?;
    let directory = Directory::open(dir.join(DIRECTORY), rights.group, id);
    let usual = PeerOptions::new(rights.group, Some(request.address));
    let options = PeerOptions { share_bits_per_second: request.bits_per_second_max, ..usual };
    fetcher.share(&options, identity, directory)
}
