//! What is said of each endpoint by hand: a summary, its parameters, the types it takes and gives, and the refusals that
//! are its own.

use platter_records::{EditLock, HoardChanges, HoardSnapshot, ImageName, Registered, VersionRecord, schema};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::schemas::Schemas;
use crate::{
    AccessToken, AddAccessTokenRequest, BeginUploadReply, CastStatus, ChangesReply, CloneRequest, Endpoint,
    ForgetReport, ForgetRequest, Growth, ListedCast, ListedDisk, NewToken, NodePeersReply, NodeReport,
    NodesReply, PublishReply, PublishRequest, RenameReport, RenameRequest, ResolveReply, StoreFacts,
    TakeEditLockRequest, UnregisterReply, UnregisterRequest, UploadFramesReply, VersionFacts,
};

const BYTES: &str = "application/octet-stream";
const FRAMES: &str = "application/x-platter-frames";
const BOOT_SET: &str = "application/x-platter-boot-set";

/// What it does, in a few words.
pub(super) fn summary(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Health => "Whether the origin runs",
        Endpoint::Metrics => "Counters for Prometheus",
        Endpoint::OpenApi => "This description",
        Endpoint::Store => "The store",
        Endpoint::Images => "The newest version of every image",
        Endpoint::Versions => "All versions of an image, or of every image",
        Endpoint::Resolve => "What a name or a score stands for",
        Endpoint::Frames => "Frames that hold some blocks",
        Endpoint::Nodes => "All nodes that reported within a day",
        Endpoint::ReportNode => "A node tells of itself, and hears of the others",
        Endpoint::Events => "Events as they happen",
        Endpoint::BeginUpload => "Begin an upload",
        Endpoint::EndUpload => "End an upload; its blocks stay in the store",
        Endpoint::Need => "Which blocks must be sent",
        Endpoint::UploadFrames => "Send frames",
        Endpoint::PublishUpload => "Publish what was uploaded",
        Endpoint::EditLocks => "All held edit locks",
        Endpoint::TakeEditLock => "Take an edit lock",
        Endpoint::ReleaseEditLock => "Release an edit lock",
        Endpoint::Clone => "Make a version the next one of another image",
        Endpoint::Forget => "Forget a version, or all of an image",
        Endpoint::Rename => "Rename an image and all below it",
        Endpoint::Changes => "The log of changes: who did what, when and from where",
        Endpoint::AccessTokens => "All access tokens",
        Endpoint::AddAccessToken => "Make an access token",
        Endpoint::RemoveAccessToken => "Remove an access token",
        Endpoint::Hoard => "The boot sets that nodes hoard",
        Endpoint::HoardChanges => "What changed in the hoard since a revision",
        Endpoint::BootSet => "A boot set",
        Endpoint::RecordBootSet => "Register a boot set for a version",
        Endpoint::UnregisterBootSet => "Take boot sets out of the hoard",
        Endpoint::Growth => "How the store grew",
        Endpoint::Disks => "Live disks of this machine, and disks that somebody edits",
        Endpoint::Casts => "Casts of the last ten minutes",
        Endpoint::TellOfCast => "Tell how a cast stands",
    }
}

/// What else a reader has to know.
pub(super) fn note(endpoint: Endpoint) -> Option<&'static str> {
    match endpoint {
        Endpoint::ReportNode => Some("A node hears only of nodes whose tokens read the same images."),
        Endpoint::BootSet => Some("Its bytes are described in docs/formats/boot-set.md."),
        Endpoint::RecordBootSet => Some(
            "A boot set whose record has boots was observed by a node: it refines what other nodes observed.",
        ),
        _ => None,
    }
}

/// Parameters of the path, the query and the headers.
pub(super) fn parameters(endpoint: Endpoint, schemas: &mut Schemas) -> Vec<Value> {
    let image = schemas.of_request::<ImageName>();
    match endpoint {
        Endpoint::Versions => {
            vec![optional("image", "Such as lab/debian12; without it, all that may be read", image)]
        }
        Endpoint::Resolve => vec![
            query("name", "NAME, NAME@7 or a score", of(schema::version_query)),
            optional("missing", "true: also look for blocks of it that the origin does not have", boolean()),
        ],
        Endpoint::Events => {
            vec![header("Last-Event-ID", "Goes on after this event", text_schema())]
        }
        Endpoint::BeginUpload => vec![
            optional(
                "verify_known",
                "Read back all of what the upload relies on, not only a sample",
                boolean(),
            ),
            optional("image", "What will be published: 403 if the token is not for it", image),
        ],
        Endpoint::EndUpload | Endpoint::Need | Endpoint::UploadFrames | Endpoint::PublishUpload => {
            vec![path("id", "The upload, as it was given when it began", text_schema())]
        }
        Endpoint::ReleaseEditLock => vec![
            path("image", "Percent-encoded: lab%2Fdebian12", image),
            path("number", "The lock's number", number()),
        ],
        Endpoint::Changes => vec![
            optional("image", "Only changes of this image", image),
            optional("after", "Only changes with higher numbers", number()),
        ],
        Endpoint::RemoveAccessToken => vec![path("id", "Its id", text_schema())],
        Endpoint::HoardChanges => vec![
            query("since", "The revision that the node has; 0 if it has none", number()),
            optional("epoch", "The run of revisions that it is of", text_schema()),
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

/// The body that it takes.
pub(super) fn body(endpoint: Endpoint, schemas: &mut Schemas) -> Option<Value> {
    Some(match endpoint {
        Endpoint::Frames => bytes(true, BYTES),
        Endpoint::ReportNode => object::<NodeReport>(schemas),
        Endpoint::Need => bytes(false, BYTES),
        Endpoint::UploadFrames => bytes(true, FRAMES),
        Endpoint::PublishUpload => object::<PublishRequest>(schemas),
        Endpoint::TakeEditLock => object::<TakeEditLockRequest>(schemas),
        Endpoint::Clone => object::<CloneRequest>(schemas),
        Endpoint::Forget => object::<ForgetRequest>(schemas),
        Endpoint::Rename => object::<RenameRequest>(schemas),
        Endpoint::AddAccessToken => object::<AddAccessTokenRequest>(schemas),
        Endpoint::RecordBootSet => bytes(true, BYTES),
        Endpoint::UnregisterBootSet => object::<UnregisterRequest>(schemas),
        Endpoint::TellOfCast => object::<CastStatus>(schemas),
        _ => return None,
    })
}

/// The status of success, and its response.
pub(super) fn success(endpoint: Endpoint, schemas: &mut Schemas) -> (u16, Value) {
    match endpoint {
        Endpoint::Health => (200, text("text/plain", "It does")),
        Endpoint::Metrics => (200, text("text/plain", "docs/metrics.md explains each")),
        Endpoint::OpenApi => (200, content("application/json", "OpenAPI 3.1", json!({ "type": "object" }))),
        Endpoint::Store => reply::<StoreFacts>(schemas, 200, "What the token may know"),
        Endpoint::Images => reply::<Vec<VersionRecord>>(schemas, 200, "By name"),
        Endpoint::Versions => reply::<Vec<VersionFacts>>(
            schemas,
            200,
            "Of one image the newest first; of all by image and number",
        ),
        Endpoint::Resolve => reply::<ResolveReply>(schemas, 200, "The recipe, and a version that has it"),
        Endpoint::Frames => stream(FRAMES, "A frame stream (docs/formats/frame-stream.md)"),
        Endpoint::Nodes => reply::<NodesReply>(schemas, 200, "By id"),
        Endpoint::ReportNode => {
            reply::<NodePeersReply>(schemas, 200, "The others that were seen within a minute")
        }
        Endpoint::Events => (200, text("text/event-stream", "Server-sent events")),
        Endpoint::BeginUpload => reply::<BeginUploadReply>(schemas, 201, "Begun"),
        Endpoint::EndUpload => (204, json!({ "description": "Ended" })),
        Endpoint::Need => stream(BYTES, "One bit an id (docs/formats/frame-stream.md)"),
        Endpoint::UploadFrames => reply::<UploadFramesReply>(schemas, 200, "Taken"),
        Endpoint::PublishUpload => reply::<PublishReply>(schemas, 200, "The version, durable"),
        Endpoint::EditLocks => reply::<Vec<EditLock>>(schemas, 200, "By image"),
        Endpoint::TakeEditLock => reply::<EditLock>(schemas, 200, "Taken"),
        Endpoint::ReleaseEditLock => reply::<EditLock>(schemas, 200, "As it was"),
        Endpoint::Clone => reply::<VersionRecord>(schemas, 200, "The new version"),
        Endpoint::Forget => reply::<ForgetReport>(schemas, 200, "Their names"),
        Endpoint::Rename => reply::<RenameReport>(schemas, 200, "Versions by their names"),
        Endpoint::Changes => reply::<ChangesReply>(schemas, 200, "By number, at most 10,000"),
        Endpoint::AccessTokens => reply::<Vec<AccessToken>>(schemas, 200, "Without secrets"),
        Endpoint::AddAccessToken => reply::<NewToken>(schemas, 201, "The only time its secret is shown"),
        Endpoint::RemoveAccessToken => reply::<AccessToken>(schemas, 200, "As it was"),
        Endpoint::Hoard => reply::<HoardSnapshot>(schemas, 200, "The newest revision and its members"),
        Endpoint::HoardChanges => {
            reply::<HoardChanges>(schemas, 200, "Members that came and went; all members if whole")
        }
        Endpoint::BootSet => stream(BOOT_SET, "Head and parts"),
        Endpoint::RecordBootSet => reply::<Registered>(schemas, 200, "The revision that has it"),
        Endpoint::UnregisterBootSet => reply::<UnregisterReply>(schemas, 200, "The revision without them"),
        Endpoint::Growth => reply::<Growth>(
            schemas,
            200,
            "What the versions added, in the order in which they came, and by image",
        ),
        Endpoint::Disks => reply::<Vec<ListedDisk>>(schemas, 200, "By name"),
        Endpoint::Casts => reply::<Vec<ListedCast>>(schemas, 200, "The newest first"),
        Endpoint::TellOfCast => (204, json!({ "description": "Heard" })),
    }
}

/// Problems of its own: 404 when something does not exist, 409 when the store refuses.
pub(super) fn own_statuses(endpoint: Endpoint) -> &'static [u16] {
    match endpoint {
        Endpoint::Versions
        | Endpoint::Resolve
        | Endpoint::Frames
        | Endpoint::EndUpload
        | Endpoint::Need
        | Endpoint::RemoveAccessToken
        | Endpoint::BootSet => &[404],
        Endpoint::ReportNode | Endpoint::BeginUpload | Endpoint::AddAccessToken => &[409],
        Endpoint::UploadFrames
        | Endpoint::PublishUpload
        | Endpoint::TakeEditLock
        | Endpoint::ReleaseEditLock
        | Endpoint::Clone
        | Endpoint::Forget
        | Endpoint::Rename
        | Endpoint::RecordBootSet
        | Endpoint::UnregisterBootSet
        | Endpoint::TellOfCast => &[404, 409],
        _ => &[],
    }
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

/// A parameter: where it stands, its name, whether it is needed, what it is.
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

/// A body of an object.
fn object<T: JsonSchema>(schemas: &mut Schemas) -> Value {
    json!({ "required": true, "content": { "application/json": { "schema": schemas.of_request::<T>() } } })
}

/// A body of bytes.
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
