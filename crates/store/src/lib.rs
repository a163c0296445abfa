//! Stores frames and names: packs, an index over them, and a catalog of versions and edit locks.
//!
//! Packs are authoritative (design: packs): append-only files of frames, each with a footer that lists its blocks. The index
//! is a cache on disk that footers recreate. The catalog (SQLite) records which packs are valid and which versions
//! exist; `rebuild` recreates it from the packs alone. Nothing is reported done before it is durable (design: durable). After the
//! first failed write the store accepts no more writes until it is opened again.
//!
//! A separate crate because it depends on a database. It reaches all files through [`platter_vfs::Vfs`], except those of
//! SQLite. SQLite is given the name of an SQLite VFS, so that both can run on a simulated disk.

mod accounts;
mod assigned;
mod block_index;
mod block_lengths;
mod catalog;
mod check;
mod clock;
mod collect;
mod discard;
mod edit_lock;
mod exposure;
mod followers;
mod forget;
mod heal;
mod health;
mod history;
mod hoard;
mod home;
mod import;
mod indexing;
mod key_slots;
mod known;
mod lack;
mod leases;
mod losses;
mod mend;
mod one_block;
mod pack_set;
mod pack_writer;
mod place;
mod presence;
mod protect;
mod published;
mod quarantine;
mod quota;
mod read_back;
mod readers;
mod rebuild;
mod recipe_check;
mod rename;
mod replica;
mod reserve;
mod resolve;
mod resurrect;
mod salvage;
mod scrub;
mod session;
mod sign;
mod standing;
mod store;
mod suitable;

pub use catalog::{ChangeLogContents, PackState, ReplicatedChange, RowChange, RowKey, read_change_log};
pub use check::{CheckOptions, CheckProgress, CheckReport, Finding, Severity, Verdict};
pub use discard::Discarded;
pub use exposure::Exposure;
pub use followers::FollowLock;
pub use heal::{HealReport, HealSource, HealedFrom, PieceOnDisk, WantedBlock};
pub use health::{Condition, Observation, Observations, decode_health};
pub use hoard::{Added, DailyReport, DailyRequest, Hoard, HoardManifest, HoardWriter, ReplicaFacts};
pub use home::Home;
pub use known::KnownCheck;
pub use place::{PACK_LENGTH_TARGET, StorePlace};
pub use platter_collection::{CollectRequest, RetentionPolicy, RetentionVerdict};
pub use presence::missing_blocks;
pub use published::{Published, Repaired};
pub use quota::Limit;
pub use readers::MoreRoots;
pub use rebuild::{RebuildReport, rebuild};
pub use rename::Renamed;
pub use replica::{ChangeTexts, Continuation};
pub use salvage::Salvaged;
pub use scrub::{NextPack, Scrub, Scrubbed};
pub use session::{ParkedPack, Resumed, Session};
pub use standing::StandingChange;
pub use store::{LOCK_WAIT, Store};
