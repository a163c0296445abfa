//! What is asked over a control socket, and what is answered.

use std::collections::BTreeMap;

use platter_records::ImageName;
use serde::{Deserialize, Serialize};

use super::status::Attached;
use crate::disk_request::{DiskRequest, OnDetach};
use crate::handover::Estate;
use crate::publish_report::PublishReport;
use platter_api::DiskStatus;
use platter_fetch::EditLockChoice;
use platter_jobs::CloneReport;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// Hand everything over to the process that asks.
    TakeOver,
    /// Which disks the process serves.
    Disks,
    /// Serve another disk.
    Attach(DiskRequest),
    /// Publish a disk that the process serves.
    Publish { disk: String, words: Words },
    /// Stop serving a disk. Without `then`, what its request said becomes of what was written.
    Detach { disk: String, then: Option<OnDetach>, words: Words },
    /// Publish an image's disk, as the command does: served by this process or by another, or waiting.
    PublishImage { image: ImageName, edit_lock: Option<u64>, words: Words },
    /// Throw away what was written to an image's disk that nobody serves, as the command does.
    Discard { image: ImageName, edit_lock: Option<u64> },
    /// Clone a version, as the command does.
    Clone { version: String, name: ImageName, next: bool, edit_lock: EditLockChoice, tool_version: String },
}

/// What a user says of a version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Words {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) notes: String,
    pub(crate) tool_version: String,
    /// Publish as the first version of this new image, not as the next one of the disk's own.
    #[serde(default)]
    pub(crate) branch: Option<ImageName>,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// What is handed over. Each further step is a byte of the process that asks.
    Estate(Estate),
    Disks(Vec<DiskStatus>),
    Attached(Attached),
    Published(PublishReport),
    Detached(Option<PublishReport>),
    /// Bytes that had been written.
    Discarded(u64),
    Cloned(CloneReport),
    /// An error: its kind as a word, what it says, and what its causes say.
    Failed {
        kind: String,
        messages: Vec<String>,
    },
}

/// Reads a line as a question and as an answer, and writes what was understood again. For tests of the format.
pub fn read_control_line(line: &[u8]) -> [Option<String>; 2] {
    let question = serde_json::from_slice::<Question>(line).ok();
    let answer = serde_json::from_slice::<Answer>(line).ok();
    [
        question.and_then(|question| serde_json::to_string(&question).ok()),
        answer.and_then(|answer| serde_json::to_string(&answer).ok()),
    ]
}
