//! Every endpoint of the API: method, path, required role and scope.
//!
//! The only table of endpoints: the origin routes and authorizes with it, clients take paths from it, and the OpenAPI
//! description is generated from it.

use crate::Role;

/// An endpoint: a method and a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the route of each says what it is")]
pub enum Endpoint {
    Health,
    Metrics,
    OpenApi,
    Store,
    StoreKeys,
    Images,
    Versions,
    Resolve,
    Partitions,
    Files,
    FileContents,
    Frames,
    Nodes,
    ReportNode,
    Events,
    BeginUpload,
    Need,
    UploadFrames,
    PublishUpload,
    ImportUpload,
    EndUpload,
    EditLocks,
    TakeEditLock,
    ReleaseEditLock,
    Clone,
    Forget,
    Rename,
    Sign,
    Protect,
    ProtectedVersions,
    Quotas,
    SetQuota,
    Changes,
    Hoard,
    HoardChanges,
    BootSet,
    RecordBootSet,
    UnregisterBootSet,
    AccessTokens,
    AddAccessToken,
    RemoveAccessToken,
    Growth,
    Costs,
    Disks,
    Casts,
    AskForCast,
    AskForHoardCast,
    TellOfCast,
    Collect,
    Standing,
    Fence,
    Replica,
    Followers,
    RemoveFollower,
}

/// The part of the store that an endpoint accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only public data.
    Nothing,
    /// All images; the reply contains only those that the token may read.
    Readable,
    /// One image, which may not exist.
    Image,
    /// An image and all images below it.
    Tree,
    /// The whole origin; needs the pattern `*`.
    Everything,
}

impl Endpoint {
    /// All endpoints.
    pub const ALL: [Self; 54] = [
        Self::Health,
        Self::Metrics,
        Self::OpenApi,
        Self::Store,
        Self::StoreKeys,
        Self::Images,
        Self::Versions,
        Self::Resolve,
        Self::Partitions,
        Self::Files,
        Self::FileContents,
        Self::Frames,
        Self::Nodes,
        Self::ReportNode,
        Self::Events,
        Self::BeginUpload,
        Self::Need,
        Self::UploadFrames,
        Self::PublishUpload,
        Self::ImportUpload,
        Self::EndUpload,
        Self::EditLocks,
        Self::TakeEditLock,
        Self::ReleaseEditLock,
        Self::Clone,
        Self::Forget,
        Self::Rename,
        Self::Sign,
        Self::Protect,
        Self::ProtectedVersions,
        Self::Quotas,
        Self::SetQuota,
        Self::Changes,
        Self::Hoard,
        Self::HoardChanges,
        Self::BootSet,
        Self::RecordBootSet,
        Self::UnregisterBootSet,
        Self::AccessTokens,
        Self::AddAccessToken,
        Self::RemoveAccessToken,
        Self::Growth,
        Self::Costs,
        Self::Disks,
        Self::Casts,
        Self::AskForCast,
        Self::AskForHoardCast,
        Self::TellOfCast,
        Self::Collect,
        Self::Standing,
        Self::Fence,
        Self::Replica,
        Self::Followers,
        Self::RemoveFollower,
    ];

    /// Method and path.
    pub fn route(self) -> (&'static str, &'static str) {
        match self {
            Self::Health => ("get", "/healthz"),
            Self::Metrics => ("get", "/metrics"),
            Self::OpenApi => ("get", "/api/v1/openapi.json"),
            Self::Store => ("get", "/api/v1/store"),
            Self::StoreKeys => ("get", "/api/v1/store/keys"),
            Self::Images => ("get", "/api/v1/images"),
            Self::Versions => ("get", "/api/v1/versions"),
            Self::Resolve => ("get", "/api/v1/resolve"),
            Self::Partitions => ("get", "/api/v1/partitions"),
            Self::Files => ("get", "/api/v1/files"),
            Self::FileContents => ("get", "/api/v1/files/contents"),
            Self::Frames => ("post", "/api/v1/frames"),
            Self::Nodes => ("get", "/api/v1/nodes"),
            Self::ReportNode => ("post", "/api/v1/nodes"),
            Self::Events => ("get", "/api/v1/events"),
            Self::BeginUpload => ("post", "/api/v1/uploads"),
            Self::Need => ("post", "/api/v1/uploads/{id}/need"),
            Self::UploadFrames => ("post", "/api/v1/uploads/{id}/frames"),
            Self::PublishUpload => ("post", "/api/v1/uploads/{id}/publish"),
            Self::ImportUpload => ("post", "/api/v1/uploads/{id}/import"),
            Self::EndUpload => ("delete", "/api/v1/uploads/{id}"),
            Self::EditLocks => ("get", "/api/v1/edit-locks"),
            Self::TakeEditLock => ("post", "/api/v1/edit-locks"),
            Self::ReleaseEditLock => ("delete", "/api/v1/edit-locks/{image}/{number}"),
            Self::Clone => ("post", "/api/v1/clone"),
            Self::Forget => ("post", "/api/v1/forget"),
            Self::Rename => ("post", "/api/v1/rename"),
            Self::Sign => ("post", "/api/v1/sign"),
            Self::Protect => ("post", "/api/v1/protect"),
            Self::ProtectedVersions => ("get", "/api/v1/protected"),
            Self::Quotas => ("get", "/api/v1/quotas"),
            Self::SetQuota => ("post", "/api/v1/quotas"),
            Self::Changes => ("get", "/api/v1/changes"),
            Self::Hoard => ("get", "/api/v1/hoard"),
            Self::HoardChanges => ("get", "/api/v1/hoard/changes"),
            Self::BootSet => ("get", "/api/v1/hoard/boot-sets/{id}"),
            Self::RecordBootSet => ("post", "/api/v1/hoard/record"),
            Self::UnregisterBootSet => ("post", "/api/v1/hoard/unregister"),
            Self::AccessTokens => ("get", "/api/v1/tokens"),
            Self::AddAccessToken => ("post", "/api/v1/tokens"),
            Self::RemoveAccessToken => ("delete", "/api/v1/tokens/{id}"),
            Self::Growth => ("get", "/api/v1/growth"),
            Self::Costs => ("get", "/api/v1/costs"),
            Self::Disks => ("get", "/api/v1/disks"),
            Self::Casts => ("get", "/api/v1/casts"),
            Self::AskForCast => ("post", "/api/v1/casts"),
            Self::AskForHoardCast => ("post", "/api/v1/hoard/cast"),
            Self::TellOfCast => ("post", "/api/v1/casts/{id}"),
            Self::Collect => ("post", "/api/v1/collect"),
            Self::Standing => ("get", "/api/v1/standing"),
            Self::Fence => ("post", "/api/v1/fence"),
            Self::Replica => ("post", "/api/v1/replica"),
            Self::Followers => ("get", "/api/v1/followers"),
            Self::RemoveFollower => ("delete", "/api/v1/followers/{id}"),
        }
    }

    /// The lowest role that may use it; `None` if no token is needed.
    pub fn role(self) -> Option<Role> {
        match self {
            Self::Health => None,
            Self::Metrics
            | Self::OpenApi
            | Self::Store
            | Self::StoreKeys
            | Self::Images
            | Self::Versions
            | Self::Resolve
            | Self::Partitions
            | Self::Files
            | Self::FileContents
            | Self::Frames
            | Self::Nodes
            | Self::ReportNode
            | Self::Events
            | Self::EditLocks
            | Self::ProtectedVersions
            | Self::Quotas
            | Self::Hoard
            | Self::HoardChanges
            | Self::BootSet
            | Self::Growth
            | Self::Costs
            | Self::Disks
            | Self::Casts
            | Self::AskForCast
            | Self::AskForHoardCast => Some(Role::Read),
            Self::BeginUpload
            | Self::Need
            | Self::UploadFrames
            | Self::PublishUpload
            | Self::EndUpload
            | Self::TakeEditLock
            | Self::ReleaseEditLock
            | Self::Clone
            | Self::Sign
            | Self::RecordBootSet => Some(Role::Write),
            Self::ImportUpload
            | Self::Forget
            | Self::Rename
            | Self::Protect
            | Self::Changes
            | Self::UnregisterBootSet
            | Self::AccessTokens
            | Self::AddAccessToken
            | Self::RemoveAccessToken
            | Self::TellOfCast
            | Self::Collect
            | Self::SetQuota
            | Self::Standing
            | Self::Fence
            | Self::Replica
            | Self::Followers
            | Self::RemoveFollower => Some(Role::Admin),
        }
    }

    /// Its scope.
    pub fn scope(self) -> Scope {
        match self {
            Self::Health | Self::OpenApi => Scope::Nothing,
            Self::Metrics
            | Self::Nodes
            | Self::Costs
            | Self::AccessTokens
            | Self::AddAccessToken
            | Self::RemoveAccessToken
            | Self::Collect
            | Self::SetQuota
            | Self::Standing
            | Self::Fence
            | Self::Replica
            | Self::Followers
            | Self::RemoveFollower => Scope::Everything,
            // The origin finds the image, and checks access, with the id of the upload.
            Self::Store
            | Self::StoreKeys
            | Self::Images
            | Self::ReportNode
            | Self::Events
            | Self::EditLocks
            | Self::ProtectedVersions
            | Self::Quotas
            | Self::Changes
            | Self::Hoard
            | Self::HoardChanges
            | Self::BootSet
            | Self::Growth
            | Self::Disks
            | Self::Casts
            | Self::AskForHoardCast
            | Self::Need
            | Self::UploadFrames
            | Self::EndUpload => Scope::Readable,
            Self::Versions
            | Self::Resolve
            | Self::Partitions
            | Self::Files
            | Self::FileContents
            | Self::Frames
            | Self::BeginUpload
            | Self::PublishUpload
            | Self::ImportUpload
            | Self::TakeEditLock
            | Self::ReleaseEditLock
            | Self::Clone
            | Self::Sign
            | Self::Forget
            | Self::Protect
            | Self::RecordBootSet
            | Self::UnregisterBootSet
            | Self::AskForCast
            | Self::TellOfCast => Scope::Image,
            Self::Rename => Scope::Tree,
        }
    }
}
