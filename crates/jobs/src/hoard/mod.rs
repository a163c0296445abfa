//! The hoard as a person asks for it: boot sets recorded or imported and registered at the origin, and kept whole on a node.
//!
//! - `boots`: what a boot read, and the recipe of what was booted, make a boot set
//! - `observed`: the same of a boot that a node observed, registered if it is new
//! - `machine`: a virtual machine that boots headless until a marker
//! - `recording`: both together, over a throwaway overlay
//! - `manage`: register, unregister, follow, the daily work
//! - `sync`: a node's replica, brought to the origin's newest revision
//! - `casting`: one node's replica to many at once
//! - `layered`: reads of what is hoarded come from the replica, all others from below
//! - `status`, `growth`, `plot`: what it costs

mod boots;
mod casting;
mod growth;
mod machine;
mod manage;
mod observed;
mod plot;
mod recording;
mod status;
mod sync;

pub use casting::{HoardCastRequest, HoardReceiveRequest, hoard_cast, hoard_receive};
pub use growth::Fit;
pub use machine::{Accelerator, Machine, Marker};
pub use manage::{
    FollowSettings, HoardDailyReport, HoardDailyRequest, ImportRequest, RegisterReport, UnregisterReport,
    hoard_daily, hoard_follow, hoard_followed, hoard_import, hoard_list, hoard_unregister,
};
pub use observed::{Observation, ObservedBoot, Observer, is_settled, register_observed};
pub use plot::growth_svg;
pub use recording::{RecordRequest, hoard_record};
pub use status::{HoardStatus, MemberFigures, NodeRevision, hoard_status};
pub use sync::{HoardSyncReport, HoardSyncRequest, hoard_place, hoard_sync, hoard_sync_from};
