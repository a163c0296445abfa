//! Events of a process that serves disks.

use platter_export::fuse::FuseEvent;
use platter_export::nbd::NbdEvent;
use platter_export::ninep::NinepEvent;

use super::attached::Attached;
use super::publish_report::PublishReport;
use super::record::RecordReport;

/// An event.
#[derive(Debug)]
pub enum LiveEvent<'a> {
    /// A disk is served.
    Attached(&'a Attached),
    /// A disk was published.
    Published(&'a PublishReport),
    /// A disk is no longer served; `kept` says whether its changes are kept.
    Detached {
        /// Its name in exports.
        disk: &'a str,
        /// Whether its changes are kept in its overlay.
        kept: bool,
    },
    /// A node ends; it serves this disk again when it is restarted.
    Stopped {
        /// Its name in exports.
        disk: &'a str,
    },
    /// All of a disk is held here, durably: it is fully local.
    Filled {
        /// Its name in exports.
        disk: &'a str,
    },
    /// A disk's recording has ended.
    Recorded(&'a RecordReport),
    /// An event of the NBD server.
    Nbd(&'a NbdEvent<'a>),
    /// An event of the mounted tree.
    Fuse(&'a FuseEvent<'a>),
    /// An event of the 9P server.
    Ninep(&'a NinepEvent<'a>),
    /// A successor has received everything, and continues as soon as this process has ended: it must end at once,
    /// without closing anything.
    HandedOver,
    /// A notice for people.
    Note(String),
}

/// Receives events, from many threads; must not block.
pub type OnEvent = Box<dyn Fn(&LiveEvent<'_>) + Send + Sync>;
