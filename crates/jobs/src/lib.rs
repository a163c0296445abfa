//! What a person asks for, as functions: make a store, capture, clone, install, export, cast, receive, check, rebuild,
//! and who may edit an image.
//!
//! Owns the joining of crates that do not know each other: devices, stores, the cast protocol. A crate of its own so
//! that the command line, a daemon and an installer in an initramfs ask for the same things in the same way, without
//! an async runtime. Prints nothing: it returns reports, and tells a [`Progress`].

mod audit;
mod capture;
mod cast;
mod catalog;
mod clone;
mod diff;
mod edit_lock;
mod export;
mod fetch;
mod hoard;
mod install;
mod kept_pages;
mod live;
mod location;
mod names;
mod node;
mod open_session;
mod open_store;
mod progress;
mod receive;
mod remote;
mod report;
mod target;
mod unreadable;

pub use audit::{AuditDisagreement, AuditReport, AuditedPart};
pub use capture::{CaptureRequest, capture};
pub use cast::{CastRequest, SEGMENT_DATA_MAX, cast, receiver_report};
pub use clone::{CloneReport, CloneRequest, clone};
pub use diff::{DiffEvent, DiffReport, DiffRequest, FileChange, PartitionDifference, PathDifference, diff};
pub use edit_lock::{EditLockChoice, default_holder, release_edit_lock, steal_edit_lock, take_edit_lock};
pub use export::{ExportHolesReport, LostFile, LostRange, export, export_holes};
pub use fetch::PeerCounts;
pub use hoard::{
    Accelerator, Fit, FollowSettings, HoardCastRequest, HoardDailyReport, HoardDailyRequest,
    HoardReceiveRequest, HoardStatus, HoardSyncReport, HoardSyncRequest, ImportRequest, Machine, Marker,
    MemberFigures, NodeRevision, RecordRequest, RegisterReport, UnregisterReport, growth_svg, hoard_cast,
    hoard_daily, hoard_follow, hoard_followed, hoard_import, hoard_list, hoard_place, hoard_receive,
    hoard_record, hoard_status, hoard_sync, hoard_unregister,
};
pub use install::{InstallRequest, install};
pub use live::{
    AttachRequest, Attached, DiskList, DiskRequest, FuseAddress, ImageTree, LiveEvent, LivePlace, NbdAddress,
    NinepAddress, NodeRequest, OnDetach, OnEvent, PublishReport, PublishRequest, ReadSize, RecordReport,
    ServeAddress, ServersRequest, TlsFolder, TraceSummary, TreeAccess, WriteRequest, attach, attach_at,
    clone_at, detach, detach_at, discard, discard_at, disks, disks_of_node, publish, publish_at,
    read_control_line, running_node, served_disks, trace_summary,
};
pub use location::{StoreLocation, default_store_dir, origin_of};
pub use names::{ForgetRequest, forget, rename};
pub use node::{CacheLocation, SharingRequest};
pub use open_store::OpenStore;
pub use platter_api::{
    CacheStatus, CastReceiver, CastState, CastStatus, DiskStatus, FillStatus, ForgetReport, ListedDisk,
    NodeCounters, RenameReport, RenamedVersion, SERVE_SOCKET,
};
pub use platter_cast::CHUNK_BYTES_MAX;
pub use platter_disk::SurveyOptions;
pub use platter_disk::capture::CaptureOptions;
pub use platter_disk::install::{FreeSpace, TargetState};
pub use platter_disk::refusal::{Consent, Reason, TargetContents};
pub use platter_export::fuse::FuseEvent;
pub use platter_export::nbd::{NbdEvent, NbdTls};
pub use platter_export::ninep::NinepEvent;
pub use platter_image::recipe::CutPolicy;
pub use platter_image::{Error, ErrorKind, Result, Score};
pub use platter_net::{DISCOVERY, ReceiveOptions, SendEvent, SendOptions, Wanted};
pub use platter_store::{
    BootBlock, CheckOptions, CheckReport, Consistency, EditLock, FilesystemRecord, Finding, HoardMember,
    HoardSnapshot, ImageName, KnownCheck, MissingBlocks, NumberChoice, RebuildReport, Repairs, Severity,
    Store, StorePlace, UnreadableRecord, Verdict, Version, VersionName, VersionQuery, VersionRecord,
    missing_blocks, rebuild,
};
pub use platter_transport::{Trust, make_files_private};
pub use progress::{Progress, Silent};
pub use receive::{ReceiveRequest, receive};
pub use remote::{ServerAddress, ServerOptions};
pub use report::{
    CaptureReport, CastReport, Compared, ExportReport, InstallReport, ReceiveReport, ReceiverReport,
};
pub use target::TargetRequest;
