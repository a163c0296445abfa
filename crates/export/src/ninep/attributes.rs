//! What clients see of a node: what identifies it, its permissions, its owner.
//!
//! Owns that permissions are made up from whether a node can be changed, and that everything belongs to the user whom the
//! server runs as: a tree knows neither, and a socket that only its owner may connect to asks for no more.

use rustix::process::{getgid, getuid};

use super::wire::{Attributes, Qid};
use crate::tree::{Node, NodeKind};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// The bits that a change of permissions names.
pub(super) const PERMISSIONS: u32 = 0o7777;

/// What a client may know a node by. What cannot be written is what it was as long as its version stays, so that clients
/// may keep it; of what can be, nothing is promised.
pub(super) fn qid(node: &Node) -> Qid {
    let is_directory = node.kind == NodeKind::Directory;
    let time = node.modified_unix_ms as u64;
    let version = if is_directory || node.writable { 0 } else { ((time >> 32) as u32 ^ time as u32).max(1) };
    Qid { is_directory, version, path: node.id }
}

/// What `stat` shall tell of a node.
pub(super) fn attributes(node: &Node) -> Attributes {
    let (mode, length, allocated) = match node.kind {
        NodeKind::Directory => (DIRECTORY | if node.writable { 0o755 } else { 0o555 }, 0, 0),
        NodeKind::File { length, allocated } => {
            (FILE | if node.writable { 0o644 } else { 0o444 }, length, allocated)
        }
    };
    Attributes {
        qid: qid(node),
        mode,
        user: getuid().as_raw(),
        group: getgid().as_raw(),
        length,
        allocated,
        modified_unix_ms: node.modified_unix_ms,
    }
}
