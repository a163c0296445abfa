//! Live disks: versions attached as virtual disks, read and written by others, and published as new versions.
//!
//! Owns the processes' side of it: which disks a process serves, where their overlays lie, the control socket by which
//! other processes ask about them. Must never let two processes write one disk, nor remove an overlay whose contents
//! are in no version unless the user said so.

mod attach;
mod control;
mod disk;
mod overlays;
mod publish;
mod record;
mod served;
mod servers;
#[cfg(test)]
mod tests;
mod tree;

pub use attach::{AttachRequest, Attached, LiveEvent, OnEvent, attach};
pub use control::{CacheStatus, DiskStatus, ListedDisk, OnDetach, detach, disks, served_disks};
pub(crate) use publish::View;
pub use publish::{PublishReport, PublishRequest, discard, publish};
pub use record::{ReadSize, RecordReport, TraceSummary, trace_summary};
pub use servers::{FuseAddress, ServeAddress};
pub use tree::ImageTree;
