//! Live disks: versions attached as virtual disks, read and written by others, and published as new versions.
//!
//! Owns the processes' side of it: which disks a process serves, where their overlays lie, the control socket by which
//! other processes ask about them. Where the store is, here or behind an origin, only [`crate::OpenStore`] knows. Must never let two processes write one disk, nor remove an overlay whose contents
//! are in no version unless the user said so.

mod address;
mod agent;
mod answering;
mod attach;
mod boots;
mod client;
mod control;
mod disk;
mod disk_request;
mod event;
mod fills;
mod handover;
mod hoarding;
mod inherited;
mod list;
mod opener;
mod overlays;
mod own_server;
mod place;
mod preflight;
mod publish;
mod publish_report;
mod record;
mod remembered;
mod served;
mod served_disk;
mod servers;
mod sources;
#[cfg(test)]
mod tests;
mod tree;
mod version;

pub use address::{
    FuseAddress, NbdAddress, NinepAddress, ServeAddress, ServersRequest, TlsFolder, TreeAccess,
};
pub use attach::{AttachRequest, NodeRequest, attach};
pub use client::{attach_at, clone_at, detach, detach_at, discard_at, publish_at, running_node};
pub use control::{Attached, read_control_line};
pub use disk_request::{DiskRequest, OnDetach, WriteRequest};
pub use event::{LiveEvent, OnEvent};
pub use list::{DiskList, disks, disks_of_node, served_disks};
pub use place::LivePlace;
pub use publish::{PublishRequest, discard, publish};
pub use publish_report::PublishReport;
pub use record::{ReadSize, RecordReport, TraceSummary, trace_summary};
pub(crate) use sources::new_cache;
#[cfg(test)]
pub(crate) use tests::capture_bytes;
pub use tree::ImageTree;
pub(crate) use version::View;
