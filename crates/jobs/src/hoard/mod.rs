//! Commands for the hoard: boot sets are recorded or imported and registered at the origin, and nodes keep all of them.
//!
//! - `boots`: makes a boot set from the reads of a boot and the recipe
//! - `copies`: distinguishes copies of a disk from boots
//! - `observed`: the same for a boot that a node observed, registered if it adds something
//! - `machine`: a virtual machine that boots headless until a marker
//! - `recording`: records the boot of a machine over a temporary overlay
//! - `manage`: register, unregister, follow, the daily work
//! - `sync`: updates a node's replica to the origin's newest revision
//! - `casting`: casts one node's replica to many at once
//! - `origin_cast`: the same from the cast that an origin makes when enough nodes lack a revision
//! - `layered`: reads hoarded blocks from the replica, others from below
//! - `status`, `growth`, `plot`: the cost of the hoard

mod boots;
mod casting;
mod copies;
mod growth;
mod machine;
mod manage;
mod observed;
mod origin_cast;
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
pub use origin_cast::{HoardCastOutcome, HoardOriginCastRequest, hoard_receive_from_origin};
pub use plot::growth_svg;
pub use recording::{RecordRequest, hoard_record};
pub use status::{HoardStatus, MemberFigures, NodeRevision, hoard_status};
pub use sync::{HoardSyncReport, HoardSyncRequest, hoard_place, hoard_sync, hoard_sync_from};
