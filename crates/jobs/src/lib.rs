//! The jobs behind the commands: make a store, capture, clone, install, export, cast, receive, check, rebuild, and edit
//! locks.
//!
//! Connects crates that do not know each other: devices, stores, the cast protocol. It is a crate of its own so that
//! the command line, a daemon and an installer in an initramfs run the same jobs in the same way, without an async
//! runtime. Prints nothing: returns reports, and reports to a [`Progress`].

mod audit;
mod capture;
mod cast;
mod cast_keys;
mod chunk_contents;
mod clone;
mod collect;
mod copies;
mod diff;
mod edit_lock;
mod export;
mod grow;
mod heal;
mod hoard;
mod install;
mod kept_pages;
mod names;
mod one_disk;
mod part;
mod progress;
mod receive;
mod report;
mod signatures;
mod target;
#[cfg(test)]
mod tests;
mod unreadable;

pub use audit::{AuditDisagreement, AuditReport, AuditedPart};
pub use capture::{
    BackingFile, CaptureRequest, Input, InputOptions, SourceName, capture, capture_as, filesystems,
};
pub use cast::{
    CastDesk, CastDeskOptions, CastRequest, Others, SEGMENT_DATA_MAX, SpoolDirectory, VersionChunks, cast,
    cast_planned, casts, describe as describe_cast, receiver_report,
};
pub use cast_keys::check_audience_of_cast;
pub use clone::{CloneReport, CloneRequest, clone, clone_from};
pub use collect::{OverlayBases, Retained, collect, image_costs, retain};
pub use copies::{
    CopiesReport, FollowRequest, PromoteReport, PromoteRequest, PushReport, PushRequest, PushedVersion,
    VersionChoice, copies, follow, options_of, promote, push, remove_follower, tell_former,
};
pub use diff::{
    DiffEvent, DiffPartition, DiffPlace, DiffReport, DiffRequest, FileChange, PartitionDifference,
    PathDifference, diff,
};
pub use edit_lock::{default_holder, release_edit_lock, steal_edit_lock, take_edit_lock};
pub use export::{
    ExportHolesReport, ExportOptions, ExportRequest, LostFile, LostRange, check_format, export, export_holes,
    export_image, export_stream, is_raw,
};
pub use heal::{Holder, heal};
pub use hoard::{
    Accelerator, Fit, FollowSettings, HoardCastOutcome, HoardCastRequest, HoardDailyReport,
    HoardDailyRequest, HoardOriginCastRequest, HoardReceiveRequest, HoardStatus, HoardSyncReport,
    HoardSyncRequest, ImportRequest, Machine, Marker, MemberFigures, NodeRevision, Observation, ObservedBoot,
    Observer, RecordRequest, RegisterReport, UnregisterReport, growth_svg, hoard_cast, hoard_daily,
    hoard_follow, hoard_followed, hoard_import, hoard_list, hoard_place, hoard_receive,
    hoard_receive_from_origin, hoard_record, hoard_status, hoard_sync, hoard_sync_from, hoard_unregister,
    is_settled, register_observed,
};
pub use install::{InstallRequest, install};
pub use names::{ForgetRequest, forget, protect, rename};
pub use platter_api::{
    AskForHoardCastRequest, CacheStatus, CastFamily, CastOffer, CastReceiver, CastState, CastStatus,
    DiskStatus, FillStatus, ForgetReport, HoardCastOffer, ListedCast, ListedDisk, NodeCounters, RenameReport,
    RenamedVersion, SERVE_SOCKET,
};
pub use platter_cast::{CHUNK_BYTES_MAX, CHUNKS_MAX, SEGMENTS_MAX, SessionSecret};
pub use platter_client::{ServerAddress, ServerOptions};
pub use platter_disk::capture::CaptureOptions;
pub use platter_disk::install::{FreeSpace, TargetState};
pub use platter_disk::refusal::{Consent, Reason, TargetContents};
pub use platter_disk::{PartitionChoices, SurveyOptions};
pub use platter_encryption::{
    Cost, KEY_FILE_LENGTH_MAX, KeyFile, MasterKey, SLOTS_MAX, Secret, SecretKind, SlotFacts,
    new_key_file_text,
};
pub use platter_fetch::{
    CacheLocation, EditLockChoice, OpenStore, OriginLocation, PeerCounts, SharingRequest, StoreLocation,
    default_store_dir, origin_of,
};
pub use platter_filesystem::names as filesystem_names;
pub use platter_formats::Format;
pub use platter_image::recipe::CutPolicy;
pub use platter_image::{Domain, Error, ErrorKind, Result, Score};
pub use platter_net::CAST_CONNECTIONS_MAX;
pub use platter_net::{
    ChunkSource, Family, Group, JoinKey, ProbeCounts, ProbeEvent, ProbeFinding, ProbeSent, ProbeSeries,
    ReceiveOptions, Segment, SendEvent, SendOptions, SenderAddress, SessionDescription, Wanted,
    probe_receiver, probe_sender,
};
pub use platter_records::{
    Actor, BootBlock, CollectReport, Consistency, EditLock, FilesystemRecord, Follower, HoardMember,
    HoardSnapshot, ImageCosts, ImageName, Imported, MissingBlocks, NumberChoice, OriginAccess, PackCount,
    Repairs, Resolved, Standing, UnreadableRecord, Version, VersionName, VersionQuery, VersionRecord,
};
pub use platter_signing::{
    SignaturePolicy, SigningKey, TrustedKey, TrustedKeys, create_key, default_directory,
};
pub use platter_store::{
    CheckOptions, CheckReport, CollectRequest, Finding, HealReport, HealedFrom, Home, KnownCheck,
    RebuildReport, RetentionPolicy, RetentionVerdict, Severity, Store, StorePlace, Verdict, WantedBlock,
    missing_blocks, rebuild,
};
pub use platter_transport::{Trust, make_files_private, raise_files_limit};
pub use progress::{Progress, Silent};
pub use receive::{OriginCastRequest, ReceiveRequest, receive};
pub use report::{
    CaptureReport, CastReport, Compared, DeltaReport, ExportReport, GrownReport, InstallReport,
    ReceiveReport, ReceiverReport, Way,
};
pub use signatures::{SignReport, VerifyReport, sign, verify};
pub use target::{DeltaChoice, TargetRequest};
