//! The edit lock under which a version is published.

use serde::{Deserialize, Serialize};

/// The edit lock under which a version is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EditLockChoice {
    /// Under none: refused while somebody holds the image's lock.
    #[default]
    Free,
    /// Under the lock of that number, which was taken before: refused once another holder has taken over.
    Number(u64),
    /// The holder of the lock loses it to this publication, and cannot publish unpublished changes any more.
    Steal,
}
