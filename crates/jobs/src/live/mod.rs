//! Live disks: versions attached as virtual disks, read and written by others, and published as new versions.
//!
//! Owns the processes' side of it: which disks a process serves, where their overlays lie, the control socket by which
//! other processes ask about them. Where the store is, here or behind an origin, only [`crate::OpenStore`] knows. Must never let two processes write one disk, nor remove an overlay whose contents
//! are in no version unless the user said so.

mod agent;
mod attach;
mod control;
mod disk;
mod hoarding;
mod list;
mod overlays;
mod place;
mod publish;
mod record;
mod served;
mod servers;
mod sources;
#[cfg(test)]
mod tests;
mod tree;
mod version;

pub use attach::{AttachRequest, Attached, LiveEvent, NodeRequest, OnEvent, attach};
pub use control::{
    CacheStatus, DiskStatus, OnDetach, attach_at_node, detach, detach_at_node, disks_of_node,
    read_control_line,
};
pub use list::{DiskList, ListedDisk, disks, served_disks};
pub use place::LivePlace;
pub use publish::{PublishReport, PublishRequest, discard, publish};
pub use record::{ReadSize, RecordReport, TraceSummary, trace_summary};
pub use servers::{FuseAddress, ServeAddress};
pub(crate) use sources::new_cache;
#[cfg(test)]
pub(crate) use tests::capture_bytes;
pub use tree::ImageTree;
pub(crate) use version::View;
