//! The parts of each endpoint's description that are written by hand: summary, parameters, types of body and reply, and
//! its own error statuses.

use platter_records::{
    CollectReport, EditLock, Follower, HoardChanges, HoardSnapshot, ImageName, QuotaUse, Registered,
    VersionRecord, schema,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::schemas::Schemas;
use crate::{
    AccessToken, AddAccessTokenRequest, AskForCastRequest, AskForHoardCastRequest, BeginUploadReply,
    CastOffer, CastStatus, ChangesReply, CloneRequest, CollectRequest, CostsReply, DirectoryPage, Endpoint,
    FenceRequest, ForgetReport, ForgetRequest, Growth, HoardCastOffer, ImportReply, ImportRequest,
    ListedCast, ListedDisk, NewToken, NodePeersReply, NodeReport, NodesReply, PartitionEntry, ProtectReport,
    ProtectRequest, PublishReply, PublishRequest, RenameReport, RenameRequest, ReplicaReply, ReplicaRequest,
    ResolveReply, SetQuotaReport, SetQuotaRequest, SignRequest, StandingReply, StoreFacts, StoreKeys,
    TakeEditLockRequest, UnregisterReply, UnregisterRequest, UploadFramesReply, VersionFacts,
};

const BYTES: &str = "application/octet-stream";
const FRAMES: &str = "application/x-platter-frames";
const BOOT_SET: &str = "application/x-platter-boot-set";

/// Returns the endpoint's summary.
pub(super) fn summary(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Health => "Check that the origin runs",
        Endpoint::Metrics => "Counters for Prometheus",
        Endpoint::OpenApi => "This description",
        Endpoint::Store => "The store",
        Endpoint::StoreKeys => "The keys of an encrypted store, for reading and writing its blocks",
        Endpoint::Images => "The newest version of every image",
        Endpoint::Versions => "All versions of an image, or of every image",
        Endpoint::Resolve => "Resolve a name or a score",
        Endpoint::Partitions => "Partitions and logical volumes of a version",
        Endpoint::Files => "Names in a directory of a version, 500 at a time",
        Endpoint::FileContents => "Contents of a file of a version",
        Endpoint::Frames => "Frames that hold some blocks",
        Endpoint::Nodes => "All nodes that reported within a day",
        Endpoint::ReportNode => "Report a node, and get the other nodes of its sharing group",
        Endpoint::Events => "Events as they happen",
        Endpoint::BeginUpload => "Begin an upload",
        Endpoint::EndUpload => "End an upload; its blocks stay in the store",
        Endpoint::Need => "Which blocks must be sent",
        Endpoint::UploadFrames => "Send frames",
        Endpoint::PublishUpload => "Publish an upload",
        Endpoint::ImportUpload => "Import an upload as a version of another store",
        Endpoint::EditLocks => "All held edit locks",
        Endpoint::TakeEditLock => "Take an edit lock",
        Endpoint::ReleaseEditLock => "Release an edit lock",
        Endpoint::Clone => "Publish a copy of a version as the next version of another image",
        Endpoint::Forget => "Forget one version or all versions of an image",
        Endpoint::Rename => "Rename an image and all images below it",
        Endpoint::Sign => "Add a signature to a version",
        Endpoint::Protect => "Protect versions from being forgotten, or end that",
        Endpoint::ProtectedVersions => "All protected versions",
        Endpoint::Quotas => "Quotas of readable images, and what is used of them",
        Endpoint::SetQuota => "Set or remove the quota of an image and all images below it",
        Endpoint::Changes => "The log of changes: who did what, when and from where",
        Endpoint::AccessTokens => "All access tokens",
        Endpoint::AddAccessToken => "Make an access token",
        Endpoint::RemoveAccessToken => "Remove an access token",
        Endpoint::Hoard => "The boot sets that nodes hoard",
        Endpoint::HoardChanges => "Changes of the hoard since a revision",
        Endpoint::BootSet => "A boot set",
        Endpoint::RecordBootSet => "Register a boot set for a version",
        Endpoint::UnregisterBootSet => "Remove boot sets from the hoard",
        Endpoint::Growth => "Growth of the store",
        Endpoint::Costs => "What each image costs: the bytes that no other image needs",
        Endpoint::Disks => "Live disks of this machine, and disks with local changes",
        Endpoint::Casts => "Casts of the last ten minutes",
        Endpoint::AskForCast => "Cast a version on demand, or join its running cast",
        Endpoint::AskForHoardCast => "Cast the hoard to nodes that lack its newest revision",
        Endpoint::TellOfCast => "Report the state of a cast",
        Endpoint::Collect => "Delete what no version needs",
        Endpoint::Standing => "What the store is among its copies",
        Endpoint::Fence => "Tell the store that a follower has replaced it: it accepts no more changes",
        Endpoint::Replica => "The changes that a follower applies",
        Endpoint::Followers => "The registered followers",
        Endpoint::RemoveFollower => "Remove the registration of a follower",
    }
}

/// Returns an additional remark.
pub(super) fn note(endpoint: Endpoint) -> Option<&'static str> {
    match endpoint {
        Endpoint::ReportNode => Some("The reply lists only nodes whose tokens read the same images."),
        Endpoint::BootSet => Some("The format is described in docs/formats/boot-set.md."),
        Endpoint::RecordBootSet => Some(
            "A boot set whose record counts boots was observed by a node. It is merged with those of other nodes.",
        ),
        Endpoint::Files => Some("Links on the path are followed. Of a file, the reply has the file itself."),
        Endpoint::FileContents => {
            Some("Links on the path are followed. A request for one range of bytes gets this range.")
        }
        _ => None,
    }
}

/// Returns the parameters of path, query and headers.
pub(super) fn parameters(endpoint: Endpoint, schemas: &mut Schemas) -> Vec<Value> {
    let image = schemas.of_request::<ImageName>();
    match endpoint {
        Endpoint::Versions => {
            vec![optional(
                "image",
                "Such as lab/debian12; without it, all images that the token may read",
                image,
            )]
        }
        Endpoint::Resolve => vec![
            query("name", "NAME, NAME@7 or a score", of(schema::version_query)),
            optional("missing", "true: also report blocks that are missing in the store", boolean()),
        ],
        Endpoint::Partitions | Endpoint::Files | Endpoint::FileContents => in_version(endpoint),
        Endpoint::Events => {
            vec![header("Last-Event-ID", "Continue after this event", text_schema())]
        }
        Endpoint::BeginUpload => vec![
            optional(
                "verify_known",
                "Read all older blocks that the version needs, not only a sample",
                boolean(),
            ),
            optional("image", "The image to publish: 403 if the token does not cover it", image),
        ],
        Endpoint::EndUpload
        | Endpoint::Need
        | Endpoint::UploadFrames
        | Endpoint::PublishUpload
        | Endpoint::ImportUpload => {
            vec![path("id", "Id of the upload", text_schema())]
        }
        Endpoint::ReleaseEditLock => vec![
            path("image", "Percent-encoded: lab%2Fdebian12", image),
            path("number", "The lock's number", number()),
        ],
        Endpoint::Changes => vec![
            optional("image", "Only changes of this image", image),
            optional("after", "Only changes with higher numbers", number()),
        ],
        Endpoint::Costs => vec![optional(
            "count",
            "true: count now, unless nothing has changed since the last time, which can take minutes",
            boolean(),
        )],
        Endpoint::RemoveAccessToken => vec![path("id", "Its id", text_schema())],
        Endpoint::RemoveFollower => vec![path("id", "The id of its store", of(schema::short_id))],
        Endpoint::HoardChanges => vec![
            query("since", "The revision that the node has; 0 if it has none", number()),
            optional("epoch", "The epoch of this revision", text_schema()),
        ],
        Endpoint::BootSet => vec![path("id", "Its name", of(schema::id))],
        Endpoint::RecordBootSet => vec![
            query("image", "Such as lab/debian12", image),
            query("number", "The version's number", number()),
        ],
        Endpoint::TellOfCast => {
            vec![path("id", "Chosen by the sender: 32 hexadecimal digits", of(schema::short_id))]
        }
        _ => Vec::new(),
    }
}

/// Returns the request body.
pub(super) fn body(endpoint: Endpoint, schemas: &mut Schemas) -> Option<Value> {
    Some(match endpoint {
        Endpoint::Frames => bytes(true, BYTES),
        Endpoint::ReportNode => object::<NodeReport>(schemas),
        Endpoint::Need => bytes(false, BYTES),
        Endpoint::UploadFrames => bytes(true, FRAMES),
        Endpoint::PublishUpload => object::<PublishRequest>(schemas),
        Endpoint::ImportUpload => object::<ImportRequest>(schemas),
        Endpoint::TakeEditLock => object::<TakeEditLockRequest>(schemas),
        Endpoint::Clone => object::<CloneRequest>(schemas),
        Endpoint::Forget => object::<ForgetRequest>(schemas),
        Endpoint::Rename => object::<RenameRequest>(schemas),
        Endpoint::Sign => object::<SignRequest>(schemas),
        Endpoint::Protect => object::<ProtectRequest>(schemas),
        Endpoint::SetQuota => object::<SetQuotaRequest>(schemas),
        Endpoint::AddAccessToken => object::<AddAccessTokenRequest>(schemas),
        Endpoint::RecordBootSet => bytes(true, BYTES),
        Endpoint::UnregisterBootSet => object::<UnregisterRequest>(schemas),
        Endpoint::AskForCast => object::<AskForCastRequest>(schemas),
        Endpoint::AskForHoardCast => object::<AskForHoardCastRequest>(schemas),
        Endpoint::TellOfCast => object::<CastStatus>(schemas),
        Endpoint::Collect => object::<CollectRequest>(schemas),
        Endpoint::Fence => object::<FenceRequest>(schemas),
        Endpoint::Replica => object::<ReplicaRequest>(schemas),
        _ => return None,
    })
}

/// Returns the status of success and its response.
pub(super) fn success(endpoint: Endpoint, schemas: &mut Schemas) -> (u16, Value) {
    match endpoint {
        Endpoint::Health => (200, text("text/plain", "The origin runs")),
        Endpoint::Metrics => (200, text("text/plain", "docs/metrics.md explains each")),
        Endpoint::OpenApi => (200, content("application/json", "OpenAPI 3.1", json!({ "type": "object" }))),
        Endpoint::Store => reply::<StoreFacts>(schemas, 200, "What the token may read of the store"),
        Endpoint::StoreKeys => {
            reply::<StoreKeys>(schemas, 200, "For memory only. They are the same for every token")
        }
        Endpoint::Images => reply::<Vec<VersionRecord>>(schemas, 200, "Ordered by name"),
        Endpoint::Versions => reply::<Vec<VersionFacts>>(
            schemas,
            200,
            "For one image the newest first; otherwise by image and number",
        ),
        Endpoint::Resolve => reply::<ResolveReply>(schemas, 200, "The recipe, and a version that has it"),
        Endpoint::Partitions => reply::<Vec<PartitionEntry>>(schemas, 200, "As `platter ls --json`"),
        Endpoint::Files => reply::<DirectoryPage>(schemas, 200, "Sorted by name"),
        Endpoint::FileContents => stream(BYTES, "The contents, as an attachment"),
        Endpoint::Frames => stream(FRAMES, "A frame stream (docs/formats/frame-stream.md)"),
        Endpoint::Nodes => reply::<NodesReply>(schemas, 200, "Ordered by id"),
        Endpoint::ReportNode => {
            reply::<NodePeersReply>(schemas, 200, "Other nodes that reported within a minute")
        }
        Endpoint::Events => (200, text("text/event-stream", "Server-sent events")),
        Endpoint::BeginUpload => reply::<BeginUploadReply>(schemas, 201, "The upload"),
        Endpoint::EndUpload => (204, json!({ "description": "Ended" })),
        Endpoint::Need => stream(BYTES, "One bit per id (docs/formats/frame-stream.md)"),
        Endpoint::UploadFrames => reply::<UploadFramesReply>(schemas, 200, "Result"),
        Endpoint::PublishUpload => reply::<PublishReply>(schemas, 200, "The version, durable"),
        Endpoint::ImportUpload => reply::<ImportReply>(schemas, 200, "Result, durable"),
        Endpoint::EditLocks => reply::<Vec<EditLock>>(schemas, 200, "Ordered by image"),
        Endpoint::TakeEditLock => reply::<EditLock>(schemas, 200, "The new lock"),
        Endpoint::ReleaseEditLock => reply::<EditLock>(schemas, 200, "The released lock"),
        Endpoint::Clone => reply::<VersionRecord>(schemas, 200, "The new version"),
        Endpoint::Forget => reply::<ForgetReport>(schemas, 200, "Names of the versions"),
        Endpoint::Rename => reply::<RenameReport>(schemas, 200, "Old and new names of the versions"),
        Endpoint::Sign => reply::<VersionRecord>(schemas, 200, "The version with the signature, durable"),
        Endpoint::Protect => reply::<ProtectReport>(schemas, 200, "Versions whose protection changed"),
        Endpoint::ProtectedVersions => reply::<Vec<String>>(schemas, 200, "Ordered by image and number"),
        Endpoint::Quotas => reply::<Vec<QuotaUse>>(schemas, 200, "Ordered by prefix"),
        Endpoint::SetQuota => reply::<SetQuotaReport>(schemas, 200, "The quota before, durable"),
        Endpoint::Changes => reply::<ChangesReply>(schemas, 200, "Ordered by number, at most 10,000"),
        Endpoint::Collect => reply::<CollectReport>(schemas, 200, "Result"),
        Endpoint::Standing => reply::<StandingReply>(schemas, 200, "Its role and epoch"),
        Endpoint::Fence => reply::<StandingReply>(schemas, 200, "What it is now, durable"),
        Endpoint::Replica => reply::<ReplicaReply>(schemas, 200, "About 4 MiB of changes, in order"),
        Endpoint::Followers => reply::<Vec<Follower>>(schemas, 200, "In the order of their registration"),
        Endpoint::RemoveFollower => (204, json!({ "description": "Removed" })),
        Endpoint::AccessTokens => reply::<Vec<AccessToken>>(schemas, 200, "Without secrets"),
        Endpoint::AddAccessToken => {
            reply::<NewToken>(schemas, 201, "The token with its secret, which is never shown again")
        }
        Endpoint::RemoveAccessToken => reply::<AccessToken>(schemas, 200, "The removed token"),
        Endpoint::Hoard => reply::<HoardSnapshot>(schemas, 200, "The newest revision and its members"),
        Endpoint::HoardChanges => {
            reply::<HoardChanges>(schemas, 200, "Added and removed members; all members if whole")
        }
        Endpoint::BootSet => stream(BOOT_SET, "Head and parts"),
        Endpoint::RecordBootSet => reply::<Registered>(schemas, 200, "The new revision"),
        Endpoint::UnregisterBootSet => reply::<UnregisterReply>(schemas, 200, "The revision without them"),
        Endpoint::Growth => reply::<Growth>(schemas, 200, "Bytes that versions added, by time and by image"),
        Endpoint::Costs => reply::<CostsReply>(schemas, 200, "As counted last"),
        Endpoint::Disks => reply::<Vec<ListedDisk>>(schemas, 200, "Ordered by name"),
        Endpoint::Casts => reply::<Vec<ListedCast>>(schemas, 200, "The newest first"),
        Endpoint::AskForCast => reply::<CastOffer>(schemas, 200, "Where to join, once the sender is ready"),
        Endpoint::AskForHoardCast => reply::<HoardCastOffer>(schemas, 200, "To wait, to join, or to fetch"),
        Endpoint::TellOfCast => (204, json!({ "description": "Accepted" })),
    }
}

/// Returns the endpoint's own error statuses: 404 when something does not exist, 409 when the store refuses.
pub(super) fn own_statuses(endpoint: Endpoint) -> &'static [u16] {
    match endpoint {
        Endpoint::StoreKeys
        | Endpoint::Versions
        | Endpoint::Resolve
        | Endpoint::Frames
        | Endpoint::EndUpload
        | Endpoint::Need
        | Endpoint::RemoveAccessToken
        | Endpoint::RemoveFollower
        | Endpoint::BootSet => &[404],
        Endpoint::ReportNode
        | Endpoint::BeginUpload
        | Endpoint::AddAccessToken
        | Endpoint::Collect
        | Endpoint::Fence => &[409],
        Endpoint::UploadFrames
        | Endpoint::PublishUpload
        | Endpoint::ImportUpload
        | Endpoint::TakeEditLock
        | Endpoint::ReleaseEditLock
        | Endpoint::Clone
        | Endpoint::Forget
        | Endpoint::Rename
        | Endpoint::Sign
        | Endpoint::Protect
        | Endpoint::SetQuota
        | Endpoint::RecordBootSet
        | Endpoint::UnregisterBootSet
        | Endpoint::AskForCast
        | Endpoint::TellOfCast
        | Endpoint::Partitions
        | Endpoint::Files => &[404, 409],
        Endpoint::FileContents => &[404, 409, 416],
        _ => &[],
    }
}

/// The parameters that name a place in a version.
fn in_version(endpoint: Endpoint) -> Vec<Value> {
    let version = query("version", "NAME, NAME@7 or a score", of(schema::version_query));
    if endpoint == Endpoint::Partitions {
        return vec![version];
    }
    let path = json!({ "type": "string", "pattern": "^/" });
    let digits = json!({ "type": "string", "pattern": "^2[fF]([0-9a-fA-F]{2})*$" });
    let partition = "A number, the name of a volume, or disk; without it, the only one with files";
    vec![
        version,
        optional("partition", partition, text_schema()),
        optional("path", "From the root of the filesystem: /etc/hostname; without it, the root", path),
        optional("path_bytes", "Instead of path: its bytes in hexadecimal, which need not be UTF-8", digits),
        match endpoint {
            Endpoint::Files => {
                optional("from", "The number of the first name: `next` of the reply before", number())
            }
            _ => header("Range", "One range of bytes", text_schema()),
        },
    ]
}

fn path(name: &str, what: &str, schema: Value) -> Value {
    parameter("path", name, true, what, schema)
}

fn query(name: &str, what: &str, schema: Value) -> Value {
    parameter("query", name, true, what, schema)
}

fn optional(name: &str, what: &str, schema: Value) -> Value {
    parameter("query", name, false, what, schema)
}

fn header(name: &str, what: &str, schema: Value) -> Value {
    parameter("header", name, false, what, schema)
}

/// Returns a parameter with its place, name, description and schema.
#[expect(
    clippy::needless_pass_by_value,
    reason = "json! takes references, and callers make the schema for this call"
)]
fn parameter(place: &str, name: &str, required: bool, what: &str, schema: Value) -> Value {
    json!({ "name": name, "in": place, "required": required, "description": what, "schema": schema })
}

/// A response with one kind of content.
#[expect(
    clippy::needless_pass_by_value,
    reason = "json! takes references, and callers make the schema for this call"
)]
fn content(media: &str, what: &str, schema: Value) -> Value {
    json!({ "description": what, "content": { media: { "schema": schema } } })
}

fn reply<T: JsonSchema>(schemas: &mut Schemas, status: u16, what: &str) -> (u16, Value) {
    (status, content("application/json", what, schemas.of_reply::<T>()))
}

fn text(media: &str, what: &str) -> Value {
    content(media, what, text_schema())
}

fn stream(media: &str, what: &str) -> (u16, Value) {
    (200, content(media, what, binary()))
}

/// Returns a JSON body of type `T`.
fn object<T: JsonSchema>(schemas: &mut Schemas) -> Value {
    json!({ "required": true, "content": { "application/json": { "schema": schemas.of_request::<T>() } } })
}

/// Returns a binary body.
fn bytes(required: bool, media: &str) -> Value {
    json!({ "required": required, "content": { media: { "schema": binary() } } })
}

fn binary() -> Value {
    json!({ "type": "string", "format": "binary" })
}

fn text_schema() -> Value {
    json!({ "type": "string" })
}

fn boolean() -> Value {
    json!({ "type": "boolean" })
}

fn number() -> Value {
    json!({ "type": "integer", "format": "uint64", "minimum": 0 })
}

fn of(schema: fn(&mut SchemaGenerator) -> Schema) -> Value {
    schema(&mut SchemaGenerator::default()).to_value()
}
