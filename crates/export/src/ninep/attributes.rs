//! Attributes of a node for clients: identity, permissions, owner.
//!
//! Derives permissions from whether a node can be changed, and makes the serving user the owner of everything. A tree
//! knows neither, and access is already restricted at the socket.

use rustix::process::{getgid, getuid};

use super::wire::{Attributes, Qid};
use crate::tree::{Node, NodeKind};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// The bits that a change of permissions names.
pub(super) const PERMISSIONS: u32 = 0o7777;

/// The identity of a node for clients. Read-only contents are unchanged while the version stays, so clients may cache
/// them; nothing is promised for writable ones.
pub(super) fn qid(node: &Node) -> Qid {
    let is_directory = node.kind == NodeKind::Directory;
    let time = node.modified_unix_ms as u64;
    let version = if is_directory || node.writable { 0 } else { ((time >> 32) as u32 ^ time as u32).max(1) };
    Qid { is_directory, version, path: node.id }
}

/// The `stat` reply for a node.
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
