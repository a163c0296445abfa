//! Reports of a comparison: events while it runs, and totals at the end.

use serde::Serialize;

/// The change of a path between the versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// Only the second version has it.
    Added,
    /// Only the first version has it.
    Removed,
    /// Both versions have it, and it differs.
    Modified,
    /// It could not be read in one of them: whether it differs is unknown.
    Unreadable,
}

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathDifference {
    /// Its change.
    pub change: FileChange,
    /// The partition; `None` for a disk without partitions.
    pub partition: Option<u32>,
    /// The path, from the root of the filesystem. Bytes that are not UTF-8 are written as `\xNN`, encrypted names as
    /// `[encrypted:HEX]`.
    pub path: String,
    /// For a modified path, what differs: `type`, `contents`, `target`, `device`, `mode`, `owner`, `mtime`, `xattrs`,
    /// `flags`, `project`, `links`.
    pub what: Vec<&'static str>,
    /// Differing bytes of its contents, in pieces of up to 4 KiB; data after the end of the shorter file counts in
    /// full.
    pub changed_bytes: u64,
    /// Why it could not be read.
    pub reason: Option<String>,
}

/// The comparison of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartitionDifference {
    /// Its number; `None` for a disk without partitions, and outside of partitions.
    pub partition: Option<u32>,
    /// `ext4`, `xfs`, …; `unallocated` outside of partitions; empty if unknown.
    pub filesystem: String,
    /// Whether its files were compared, or only its blocks.
    pub by_files: bool,
    /// Bytes with different data, or with data on one disk only. Unknown if it moved.
    pub changed_bytes: Option<u64>,
    /// Paths that only the second version has.
    pub added: u64,
    /// Paths that only the first version has.
    pub removed: u64,
    /// Paths that both versions have, and that differ.
    pub modified: u64,
    /// Paths that could not be read.
    pub unreadable: u64,
    /// Other differences and notices, in sentences.
    pub notes: Vec<String>,
    /// Whether it counts as different.
    pub differs: bool,
}

/// An event of a comparison.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum DiffEvent {
    /// A difference other than a path, such as the partition table.
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
        /// The first version's state there: `data`, `zero` or `free`.
        a: &'static str,
        /// The second version's state there.
        b: &'static str,
    },
    /// A path.
    Path(PathDifference),
    /// A partition was compared.
    Partition(PartitionDifference),
}

/// The totals.
#[derive(Clone, Debug, Serialize)]
pub struct DiffReport {
    /// The first version, `lab/debian12@3`, or the score if that was asked for; with the place in it, `lab/debian12@3:1/etc`.
    pub a: String,
    /// The second.
    pub b: String,
    /// Their scores.
    pub score_a: String,
    /// See `score_a`.
    pub score_b: String,
    /// Whether there is any difference.
    pub differs: bool,
    /// Paths or partitions that could not be read.
    pub unreadable: u64,
    /// Bytes with different data.
    pub changed_bytes: u64,
    /// Bytes of data where the second has zeros or free space.
    pub only_a_bytes: u64,
    /// Bytes of data where the first has zeros or free space.
    pub only_b_bytes: u64,
    /// Bytes of zeros where the other has free space.
    pub freed_bytes: u64,
    /// Blocks of the second version that the first does not have anywhere: its additional cost. `null` if only places in the
    /// versions were compared.
    pub new_blocks: Option<u64>,
    /// Their bytes.
    pub new_bytes: Option<u64>,
    /// Paths that only the second version has.
    pub added: u64,
    /// Paths that only the first version has.
    pub removed: u64,
    /// Paths that both versions have, and that differ.
    pub modified: u64,
    /// Duration in seconds.
    pub seconds: f64,
}
