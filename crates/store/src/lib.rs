//! Keeps frames and names: packs, an index over them, and a catalog of versions and edit tokens.
//!
//! Packs are the truth (design: packs): append-only files of frames, each with a footer that lists its blocks. The index
//! is built from the footers at every opening. The catalog (SQLite) says which packs count and which versions exist;
//! `rebuild` makes it anew from packs alone. Nothing is reported done before it is durable (design: durable), and after the first
//! failed write nothing more is taken until the store is opened again.
//!
//! A crate of its own to fence in the database. Every file but SQLite's own is reached through [`platter_vfs::Vfs`];
//! SQLite takes the name of a VFS of its own, so that a simulated disk can stand under both.

mod block_lengths;
mod boot_set;
pub mod cache;
mod catalog;
mod check;
mod exposure;
mod forget;
mod health;
mod hoard;
mod hoard_member;
mod identity;
mod index;
mod known;
mod name;
mod pack;
mod pack_set;
mod place;
mod published;
mod quarantine;
mod rebuild;
mod record;
mod rename;
mod resolve;
mod resurrect;
mod salvage;
mod session;
mod store;
mod token;

pub use boot_set::{
    BOOT_SET_BLOCKS_MAX, BOOT_SET_LENGTH_MAX, BootBlock, BootSet, BootSetRecord, EncodedBootSet,
};
pub use catalog::{ChangeLogContents, PackState, decode_change_log};
pub use check::{CheckOptions, CheckProgress, CheckReport, Finding, Severity, Unread, Verdict};
pub use exposure::Exposure;
pub use health::{Condition, Observation, Observations, decode_health};
pub use hoard::{Added, DailyReport, DailyWish, Hoard, HoardManifest, HoardWriter, Registered, ReplicaFacts};
pub use hoard_member::{HoardChanges, HoardMember, HoardSnapshot};
pub use identity::{PackId, StoreId};
pub use index::Index;
pub use known::KnownCheck;
pub use name::{ImageName, NumberChoice, VersionName, VersionQuery};
pub use pack::{PackDirectory, read_directory};
pub use place::{PACK_LENGTH_TARGET, StorePlace};
pub use published::{Published, Repaired};
pub use rebuild::{RebuildReport, rebuild};
pub use record::{Consistency, FilesystemRecord, Parent, UnreadableOmitted, UnreadableRecord, VersionRecord};
pub use rename::Renamed;
pub use resolve::{Resolved, Version};
pub use salvage::{Discarded, Salvaged};
pub use session::{ParkedPack, Resumed, Session};
pub use store::Store;
pub use token::{Token, refusal as token_refusal};
