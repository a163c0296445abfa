//! What is recorded about disks besides their contents: names of images and versions, version records, edit locks, boot sets
//! and their place in the hoard, ids of stores and packs.
//!
//! A separate crate, so that clients, the API and the store share these types without sharing a database. Owns their
//! text and byte forms. Does no I/O.

mod boot_set;
mod change;
mod collect_report;
mod edit_lock;
mod follower;
mod hoard_member;
mod identity;
mod image_cost;
mod imported;
mod missing_blocks;
mod name;
mod offer;
mod pack_state;
mod quota;
mod record;
mod refine;
mod repairs;
pub mod schema;
mod signature;
mod standing;
mod store_health;
mod version;

pub use boot_set::{
    BOOT_SET_BLOCKS_MAX, BOOT_SET_LENGTH_MAX, BootBlock, BootSet, BootSetHead, BootSetRecord, EncodedBootSet,
};
pub use change::{ACTOR_LENGTH_MAX, Action, Actor, ChangeRecord, History, PackChange, RenamedVersion};
pub use collect_report::{CollectReport, PackCount};
pub use edit_lock::{
    EditLock, HOLDER_LENGTH_MAX, OVERLAY_LENGTH_MAX, check_text, refusal as edit_lock_refusal,
};
pub use follower::{FOLLOWERS_MAX, Follower};
pub use hoard_member::{HoardChanges, HoardMember, HoardSnapshot, Registered};
pub use identity::{PackId, StoreId};
pub use image_cost::{ImageCost, ImageCosts};
pub use imported::Imported;
pub use missing_blocks::MissingBlocks;
pub use name::{ImageName, NumberChoice, VersionName, VersionQuery};
pub use offer::{decode_offer, encode_offer};
pub use pack_state::PackState;
pub use quota::{Quota, QuotaUse};
pub use record::{
    Consistency, FilesystemRecord, Parent, RECORD_LENGTH_MAX, UnreadableOmitted, UnreadableRecord,
    VersionRecord,
};
pub use refine::{BOOT_GAP_MS_MAX, OBSERVED_BYTES_MAX};
pub use repairs::{PublishedVersion, Repairs};
pub use signature::{SIGNATURE_LENGTH_MAX, SIGNATURES_MAX, Signature};
pub use standing::{
    Following, FormerAnswers, FormerOrigin, LeftOut, OriginAccess, Promotion, ReplicaPosition, Standing,
    Successor,
};
pub use store_health::StoreHealth;
pub use version::{Resolved, Version};
