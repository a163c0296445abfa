//! Live disks: versions that are attached as virtual disks, read and written by clients, and published as new versions.
//!
//! Owns the agent of a host: the disks that a process serves, the places of their overlays, and the control socket for
//! other processes. Only [`platter_fetch::OpenStore`] knows whether the store is local or behind an origin. It is a
//! crate of its own because it is the only one that keeps running and serves disks; jobs end. Must never let two
//! processes write one disk, nor remove an overlay with unpublished changes unless the user requested that.

mod address;
mod agent;
mod answering;
mod attach;
mod attached;
mod boots;
mod casting;
mod client;
mod control;
mod disk;
mod disk_request;
mod estate;
mod event;
mod fills;
mod handover;
mod hoarding;
mod inherited;
mod known_locks;
mod limits;
mod list;
mod node_cast;
mod opener;
mod overlays;
mod own_server;
mod place;
mod preflight;
mod publish;
mod publish_report;
mod record;
mod registering;
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
pub use attached::Attached;
pub use client::{
    attach_at, clone_at, detach, detach_at, discard_at, node_of_disk, publish_at, running_node,
};
pub use control::{NodeCastRequest, read_control_line};
pub use disk_request::{DiskRequest, OnDetach, WriteRequest};
pub use event::{LiveEvent, OnEvent};
pub use list::{DiskList, disks, disks_of_node, served_disks};
pub use node_cast::{NodeCast, cast_at};
pub use overlays::bases as overlay_bases;
pub use place::LivePlace;
pub use platter_export::fuse::FuseEvent;
pub use platter_export::nbd::{NbdEvent, NbdTls};
pub use platter_export::ninep::NinepEvent;
pub use publish::{PublishRequest, discard, publish};
pub use publish_report::PublishReport;
pub use record::{ReadSize, RecordReport, TraceSummary, trace_summary};
pub use tree::ImageTree;
