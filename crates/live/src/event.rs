//! What a process tells while it serves disks.

use platter_export::fuse::FuseEvent;
use platter_export::nbd::NbdEvent;
use platter_export::ninep::NinepEvent;

use super::control::Attached;
use super::publish_report::PublishReport;
use super::record::RecordReport;

/// What happens while disks are served.
#[derive(Debug)]
pub enum LiveEvent<'a> {
    /// A disk is served.
    Attached(&'a Attached),
    /// A disk was published.
    Published(&'a PublishReport),
    /// A disk is no longer served; what was written to it is kept when it says so.
    Detached {
        /// What exports called it.
        disk: &'a str,
        /// Whether what was written waits in its overlay.
        kept: bool,
    },
    /// All of a disk is held here, durably: it is fully local.
    Filled {
        /// What exports call it.
        disk: &'a str,
    },
    /// A disk's trace has ended.
    Recorded(&'a RecordReport),
    /// Something of a client of NBD.
    Nbd(&'a NbdEvent<'a>),
    /// Something of the mounted tree.
    Fuse(&'a FuseEvent<'a>),
    /// Something of a client of 9P.
    Ninep(&'a NinepEvent<'a>),
    /// Another process has all that is served here, and goes on as soon as this process has ended: it must end at once, without
    /// closing anything.
    HandedOver,
    /// Something that a person should know.
    Note(String),
}

/// Hears what happens, from many threads; must not wait.
pub type OnEvent = Box<dyn Fn(&LiveEvent<'_>) + Send + Sync>;
