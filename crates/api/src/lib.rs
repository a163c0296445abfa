//! The HTTP API between an origin and its clients: endpoints, requests, replies, errors, and the OpenAPI description
//! that is generated from them (`docs/api.md`).
//!
//! A separate crate, so that both sides use the same types without depending on each other. It does no I/O and makes no
//! decisions.

mod access_token;
mod cast;
mod changes;
mod collect;
mod costs;
mod disk;
mod edit_lock;
mod endpoint;
mod files;
mod growth;
mod hoard;
mod names;
mod node;
pub mod openapi;
mod pattern;
mod problem;
mod quota;
mod replica;
mod role;
mod store_facts;
mod upload;
mod version;

pub use access_token::{AccessToken, AddAccessTokenRequest, NewToken, PATTERNS_MAX, TOKEN_NAME_LENGTH_MAX};
pub use cast::{
    AskForCastRequest, AskForHoardCastRequest, CastFamily, CastOffer, CastOfferState, CastReceiver,
    CastState, CastStatus, HOARD_CAST_TITLE, HoardCastOffer, HoardCastState, ListedCast,
};
pub use changes::{CHANGES_MAX, ChangesReply};
pub use collect::CollectRequest;
pub use costs::CostsReply;
pub use disk::{CacheStatus, DiskStatus, FillStatus, ListedDisk, NodeCounters};
pub use edit_lock::TakeEditLockRequest;
pub use endpoint::{Endpoint, Scope};
pub use files::{DirectoryPage, FileEntry, FileType, PartitionEntry};
pub use growth::{Growth, GrowthPoint, ImageGrowth};
pub use hoard::{UnregisterReply, UnregisterRequest};
pub use names::{
    CloneRequest, ForgetReport, ForgetRequest, ProtectReport, ProtectRequest, RenameReport, RenameRequest,
    RenamedVersion, SignRequest,
};
pub use node::{NodeFacts, NodePeer, NodePeersReply, NodeReport, NodesReply, ReportedDisk};
pub use pattern::NamePattern;
pub use problem::{PROBLEM_LENGTH_MAX, Problem};
pub use quota::{SetQuotaReport, SetQuotaRequest};
pub use replica::{FenceRequest, ReplicaReply, ReplicaRequest, StandingReply};
pub use role::Role;
pub use store_facts::{StoreFacts, StoreKeys};
pub use upload::{
    BeginUploadReply, ImportReply, ImportRequest, PublishReply, PublishRequest, UploadFramesReply,
};
pub use version::{ResolveReply, VersionFacts};

/// File name of the default socket of an origin, in the directory of its store.
pub const SERVE_SOCKET: &str = "serve.sock";
