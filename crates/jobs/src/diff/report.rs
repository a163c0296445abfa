//! What a comparison tells: events while it runs, and the sums at the end.

use serde::Serialize;

/// What became of a path from the first version to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// Both have it, and it differs.
    Modified,
    /// It could not be read on one of them: whether it differs is not known.
    Unreadable,
}

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathDifference {
    /// What became of it.
    pub change: FileChange,
    /// The partition; `None` for a disk without partitions.
    pub partition: Option<u32>,
    /// The path, from the root of the filesystem. Bytes that are no text are written `\xNN`, encrypted names
    /// `[encrypted:HEX]`.
    pub path: String,
    /// What differs, of one that both have: `type`, `contents`, `target`, `device`, `mode`, `owner`, `mtime`, `xattrs`,
    /// `flags`, `project`, `links`.
    pub what: Vec<&'static str>,
    /// Bytes of its contents that differ, in pieces of up to 4 KiB; what one has past the end of the other counts whole.
    pub changed_bytes: u64,
    /// Why it could not be read.
    pub reason: Option<String>,
}

/// How a partition was compared, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartitionDifference {
    /// Its number; `None` for a disk without partitions, and for what is in no partition.
    pub partition: Option<u32>,
    /// `ext4`, `xfs`, …; `unallocated` for what is in no partition; empty if nothing is known.
    pub filesystem: String,
    /// Whether its files were compared, or only its blocks.
    pub by_files: bool,
    /// Bytes of other data, or data on one disk only. Not known if it moved.
    pub changed_bytes: Option<u64>,
    /// Paths only the second has.
    pub added: u64,
    /// Paths only the first has.
    pub removed: u64,
    /// Paths that both have, and that differ.
    pub modified: u64,
    /// Paths that could not be read.
    pub unreadable: u64,
    /// What else differs, or is odd, in sentences.
    pub notes: Vec<String>,
    /// Whether it counts as different.
    pub differs: bool,
}

/// What is told while disks are compared.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum DiffEvent {
    /// Something that differs and is no path, such as the partition table.
    Note {
        /// In a sentence.
        note: String,
    },
    /// A range of the disk.
    Blocks {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        length: u64,
        /// What the first has there: `data`, `zero` or `free`.
        a: &'static str,
        /// What the second has there.
        b: &'static str,
    },
    /// A path.
    Path(PathDifference),
    /// A partition is done.
    Partition(PartitionDifference),
}

/// The sums.
#[derive(Clone, Debug, Serialize)]
pub struct DiffReport {
    /// The first version, `lab/debian12@3`, or the score if that was asked for.
    pub a: String,
    /// The second.
    pub b: String,
    /// Their scores.
    pub score_a: String,
    /// See `score_a`.
    pub score_b: String,
    /// Whether anything differs of what was compared.
    pub differs: bool,
    /// Paths or partitions that could not be read.
    pub unreadable: u64,
    /// Bytes of the disks with other data.
    pub changed_bytes: u64,
    /// Bytes of data where the second has zeros or free space.
    pub only_a_bytes: u64,
    /// Bytes of data where the first has zeros or free space.
    pub only_b_bytes: u64,
    /// Bytes of zeros where the other has free space.
    pub freed_bytes: u64,
    /// Blocks of the second that stand nowhere on the first: what it costs above it.
    pub new_blocks: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Paths only the second has.
    pub added: u64,
    /// Paths only the first has.
    pub removed: u64,
    /// Paths that both have, and that differ.
    pub modified: u64,
    /// Wall time.
    pub seconds: f64,
}
