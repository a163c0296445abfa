//! A node's sharing: what its cache holds is given to peers, and had from them before the origin is asked.

use std::net::SocketAddr;
use std::sync::Arc;

use platter_cast::peer::NodeId;
use platter_image::frame::FrameHeader;
use platter_image::{BlockId, Error, Kind, Result};
use platter_store::cache::Cache;

use super::node_cache::NodeCache;
use crate::peers::{Directory, HeldChanges, Holdings, Identity, OriginFrames, PeerOptions, Peers};
use crate::remote::RemoteStore;

/// Where nodes are remembered, in the cache's directory.
const DIRECTORY: &str = "peers.json";

/// What came ahead of its reader must not go before he comes to it.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// How a node shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharingRequest {
    /// Where other nodes reach this one.
    pub address: SocketAddr,
    /// Ceiling of what is sent to all of them, bits per second.
    pub bits_per_second_max: u64,
    /// Most bytes of memory for frames that came from other nodes, or go to them; at most 128 MiB are used.
    pub memory_bytes_max: u64,
}

/// What a cache holds, as peers may have it.
struct HeldByCache(Cache);

impl Holdings for HeldByCache {
    fn frame(&self, kind: Kind, id: &BlockId) -> Option<Arc<[u8]>> {
        // Not counted: what peers read is no read of this node's disks.
        let place = self.0.place_of(kind, id)?;
        let mut stored = Vec::new();
        self.0.read(place.frame, &mut stored).then(|| stored.into())
    }

    fn keep(&self, stored: &[u8], header: &FrameHeader) {
        // What it does not take, whoever wanted it has all the same.
        self.0.put(stored, header);
    }

    fn changes(&self, since: u64) -> HeldChanges {
        let changes = self.0.changes(since);
        HeldChanges {
            added: changes.added,
            dropped: changes.dropped,
            whole: changes.whole,
            mark: changes.mark,
        }
    }

    fn own_reads(&self) -> u64 {
        self.0.counts().hits
    }
}

/// Begins to share what a cache holds.
///
/// # Errors
/// `Refused` for an address that no other node can reach, and when the cache may hold blocks of images that the access
/// token does not cover; `Transient` when the origin is away and never said what the token covers; `Io` when the address
/// is not available.
pub(super) fn begin(cache: &NodeCache, store: &RemoteStore, request: &SharingRequest) -> Result<Peers> {
    if request.address.ip().is_unspecified() {
        return Err(Error::refused(format!(
            "peers at {}: name the address at which other nodes reach this one",
            request.address
        )));
    }
    let (dir, id) = (cache.cache().dir(), NodeId(cache.cache().id().0));
    let rights = store.sharing_rights()?;
    cache.audience().share_with(rights)?;
    let identity = Identity::open(dir, id)?;
    let directory = Directory::open(dir.join(DIRECTORY), rights.group, id);
    let usual = PeerOptions::new(rights.group, Some(request.address));
    let options = PeerOptions {
        share_bits_per_second: request.bits_per_second_max,
        memory_bytes_max: usual.memory_bytes_max.min(request.memory_bytes_max.max(MEMORY_BYTES_MIN)),
        ..usual
    };
    let holdings = Arc::new(HeldByCache(cache.cache().clone()));
    let origin: Arc<dyn OriginFrames> = Arc::new(store.without_cache());
    Peers::start(&options, identity, directory, holdings, &origin)
}
