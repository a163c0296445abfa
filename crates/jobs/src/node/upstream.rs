//! What lies below a node's cache: whoever has a frame that the cache lacks.

use std::sync::Arc;

use platter_image::{BlockId, Kind, Result};

/// Somewhere frames of one recipe can be had from: an origin, or peers above one. May be asked by many threads at once, and asks
/// once for what several want.
///
/// Every frame was verified when it came to this machine: its blocks were decoded and hashed (design: verify).
pub(crate) trait Upstream: Send + Sync {
    /// The stored bytes of a frame of that kind which holds that block or page; waits for it. `None` when nobody has it.
    ///
    /// # Errors
    /// `Transient` when nobody could be asked for as long as the source tries; what else it says.
    fn fetch(&self, kind: Kind, id: &BlockId) -> Result<Option<Arc<[u8]>>>;

    /// These will be fetched soon, and likely in this order. Only a hint: does not wait.
    fn will_fetch(&self, kind: Kind, ids: &[BlockId]);

    /// Whether what was hinted at comes into the node's cache by itself, in any order. Else only [`Upstream::fetch`] brings it.
    fn keeps_hints(&self) -> bool {
        false
    }

    /// As [`platter_image::FrameSource::hint_length`].
    fn hint_length(&self) -> u64;

    /// Whether all that comes goes to the cache, and is counted, as it comes.
    fn keeps_what_comes(&self) -> bool {
        false
    }
}
