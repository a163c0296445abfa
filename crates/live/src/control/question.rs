//! Requests and replies of the control socket.

use std::collections::BTreeMap;

use platter_records::ImageName;
use serde::{Deserialize, Serialize};

use super::cast::{CastNews, NodeCastRequest};
use crate::attached::Attached;
use crate::disk_request::{DiskRequest, OnDetach};
use crate::estate::{Claim, Estate};
use crate::publish_report::PublishReport;
use platter_api::ListedDisk;
use platter_fetch::EditLockChoice;
use platter_image::{Error, ErrorKind, Result};
use platter_jobs::CloneReport;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// Hand everything over to the requesting process, if that can serve the same.
    TakeOver(Claim),
    /// List the disks that the process serves.
    Disks,
    /// Serve more disks: all of them, or none.
    Attach(Vec<DiskRequest>),
    /// Publish a disk that the process serves.
    Publish { disk: String, words: Words },
    /// Stop serving a disk. Without `then`, its `on_detach` decides about its changes.
    Detach { disk: String, then: Option<OnDetach>, words: Words },
    /// Publish an image's disk like the command does, whether it is served by this process, by another, or by none.
    PublishImage { image: ImageName, edit_lock: Option<u64>, words: Words },
    /// Discard the changes to an image's disk that nobody serves, like the command does.
    Discard { image: ImageName, edit_lock: Option<u64> },
    /// Clone a version like the command does.
    Clone { version: String, name: ImageName, next: bool, edit_lock: EditLockChoice, tool_version: String },
    /// Read a version for a cast.
    Cast(NodeCastRequest),
}

/// Labels and notes of a user for a version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Words {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) notes: String,
    pub(crate) tool_version: String,
    /// Publish as the first version of this new image, instead of the next version of the disk's image.
    #[serde(default)]
    pub(crate) branch: Option<ImageName>,
}

/// A reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The estate to hand over. The requesting process then sends [`Step::Take`] and gets the parcels.
    ///
    /// [`Step::Take`]: crate::estate::Step::Take
    Estate(Estate),
    Disks(Vec<ListedDisk>),
    Attached(Vec<Attached>),
    Published(PublishReport),
    Detached(Option<PublishReport>),
    /// Bytes that were discarded.
    Discarded(u64),
    Cloned(CloneReport),
    Cast(CastNews),
    /// An error: its kind as a word, its message, and those of its causes.
    Failed {
        kind: String,
        messages: Vec<String>,
    },
}

impl Answer {
    /// The reply, unless it is an error.
    ///
    /// # Errors
    /// That error.
    pub(crate) fn or_error(self) -> Result<Self> {
        match self {
            Self::Failed { kind, messages } => {
                // An unknown kind from a newer Platter: the failure and its message are still known.
                let kind = ErrorKind::from_word(&kind).unwrap_or(ErrorKind::Io);
                Err(Error::from_messages(kind, messages))
            }
            answer => Ok(answer),
        }
    }
}

/// Parses a line as a request and as a reply, and serializes the results again. For tests of the format.
pub fn read_control_line(line: &[u8]) -> [Option<String>; 2] {
    let question = serde_json::from_slice::<Question>(line).ok();
    let answer = serde_json::from_slice::<Answer>(line).ok();
    [
        question.and_then(|question| serde_json::to_string(&question).ok()),
        answer.and_then(|answer| serde_json::to_string(&answer).ok()),
    ]
}
