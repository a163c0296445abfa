//! Reports of finished jobs: facts with units in their names, to be printed or serialized as JSON.

use platter_records::{FilesystemRecord, UnreadableOmitted, UnreadableRecord};
use serde::Serialize;

use crate::AuditReport;
use platter_records::Repairs;

/// A published capture.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureReport {
    /// `lab/debian12@3`.
    pub version: String,
    /// The image.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// 64 hexadecimal digits.
    pub score: String,
    /// `gpt`, `mbr` or `none`.
    pub partition_table: String,
    /// Filesystems found.
    pub filesystems: Vec<FilesystemRecord>,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Bytes outside of partitions that were skipped on request.
    pub skipped_gap_bytes: u64,
    /// Of the allocated bytes, those that are not trailing zeros of blocks.
    pub data_bytes: u64,
    /// Of the allocated bytes, zeros.
    pub zero_bytes: u64,
    /// Blocks that the store lacked.
    pub new_blocks: u64,
    /// Bytes of data in these.
    pub new_raw_bytes: u64,
    /// Growth of the store in bytes, for blocks and recipe.
    pub new_stored_bytes: u64,
    /// Its repairs of other versions.
    #[serde(flatten)]
    pub repairs: Repairs,
    /// Unreadable ranges, which are zeros.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
    /// Further unreadable ranges, which are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable_omitted: Option<UnreadableOmitted>,
    /// The audit with other programs, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditReport>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Notices, in sentences.
    pub notes: Vec<String>,
}

/// Bytes that were read back from a target and compared with the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Data.
    pub data_bytes: u64,
    /// Zeros.
    pub zero_bytes: u64,
    /// Free space, which was not compared because it keeps the target's old contents.
    pub free_bytes_left_out: u64,
}

impl Compared {
    /// Returns the same, with the rest of a disk of this length counted as free space.
    pub(crate) fn of_disk(self, length: u64) -> Self {
        Self { free_bytes_left_out: length.saturating_sub(self.data_bytes + self.zero_bytes), ..self }
    }
}

/// What a machine already had of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeltaReport {
    /// Data that was verified in its place on the target, and left there.
    pub kept_bytes: u64,
    /// Zeros, likewise.
    pub kept_zero_bytes: u64,
    /// Data that was copied from another place on the target, or from another disk.
    pub copied_bytes: u64,
}

/// An installed disk.
#[derive(Clone, Debug, Serialize)]
pub struct InstallReport {
    /// `lab/debian12@3`, or the score if that was asked for.
    pub version: String,
    /// The score. All blocks were verified before they were written.
    pub score: String,
    /// Where to.
    pub target: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Data written.
    pub written_bytes: u64,
    /// Bytes zeroed.
    pub zeroed_bytes: u64,
    /// Stored bytes of the frames that were read from the store.
    pub fetched_bytes: u64,
    /// What this machine already had, if that was looked for.
    pub delta: Option<DeltaReport>,
    /// Whether the target was read back and compared.
    pub read_back: bool,
    /// The compared bytes.
    pub compared: Option<Compared>,
    /// The number of the partition, if only one was written.
    pub partition: Option<u32>,
    /// The partition that was grown.
    pub grown: Option<GrownReport>,
    /// Whether the disk and its partitions have new ids.
    pub new_ids: bool,
    /// Whether the backup GPT was moved to the end of a larger target.
    pub backup_gpt_moved: bool,
    /// Duration in seconds.
    pub seconds: f64,
    /// Notices, in sentences.
    pub notes: Vec<String>,
}

/// An exported raw file.
#[derive(Clone, Debug, Serialize)]
pub struct ExportReport {
    /// `lab/debian12@3`, or the score if that was asked for.
    pub version: String,
    /// The score. All blocks were verified before they were written.
    pub score: String,
    /// Where to.
    pub file: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Data written.
    pub written_bytes: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// The result of one receiver of a cast.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiverReport {
    /// Its name.
    pub name: String,
    /// `receiving`, `slow` (far slower than the others, and served after them), `silent`, `stalled`, `done`, `failed` or `lost`.
    pub state: String,
    /// The score it verified.
    pub score: Option<String>,
    /// Why it failed.
    pub reason: Option<String>,
    /// Bytes it wrote.
    pub written_bytes: u64,
    /// Time from its joining to its result.
    pub seconds: f64,
    /// Bytes written each second.
    pub bytes_per_second: f64,
    /// Symbols that it restored from repair symbols.
    pub repaired_symbols: u64,
    /// What limits it, or mostly limited it: `sender` (it could take more), `network`, `decoding` or `disk`.
    pub limited_by: Option<String>,
}

impl ReceiverReport {
    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        !matches!(self.state.as_str(), "receiving" | "slow" | "silent" | "stalled")
    }
}

/// A finished cast.
#[derive(Clone, Debug, Serialize)]
pub struct CastReport {
    /// `lab/debian12@3`, or the score if that was asked for.
    pub version: String,
    /// The score.
    pub score: String,
    /// Bytes of all chunks, each of which must be sent once.
    pub cast_bytes: u64,
    /// Source symbols of all chunks.
    pub symbols: u64,
    /// Symbols sent, including repeated and repair symbols.
    pub symbols_sent: u64,
    /// Of these, repair symbols.
    pub symbols_repair: u64,
    /// Bytes on the wire, headers included.
    pub wire_bytes: u64,
    /// Time from the first receiver's start to the last one's result.
    pub seconds: f64,
    /// Datagrams and messages that were rejected: of strangers, forged, damaged, or of other sessions.
    pub rejected_datagrams: u64,
    /// Datagrams that were rejected as repetitions.
    pub repeated_datagrams: u64,
    /// Every receiver that ever joined.
    pub receivers: Vec<ReceiverReport>,
}

/// A partition that was grown to the end of the target.
#[derive(Clone, Debug, Serialize)]
pub struct GrownReport {
    /// Its number; none if the target is a partition, or a disk without a table.
    pub partition: Option<u32>,
    /// Its length in the image.
    pub bytes_before: u64,
    /// Its length now.
    pub bytes: u64,
    /// Its file system: `ext`, `xfs`, `btrfs`, `ntfs`, `fat`, `swap`, ..., or `unknown`.
    pub filesystem: String,
    /// Whether the file system was grown, too.
    pub filesystem_grown: bool,
    /// Why not.
    pub reason: Option<String>,
    /// The command that grows it later; empty if there is none.
    pub command: String,
}

/// How a received disk came to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// By a cast.
    Multicast,
    /// From the origin, for this machine alone, because the cast did not reach it.
    Origin,
}

/// A received disk.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveReport {
    /// The sender's name for it.
    pub version: String,
    /// The score. All blocks were verified before they were written.
    pub score: String,
    /// Where to.
    pub target: String,
    /// Data written.
    pub written_bytes: u64,
    /// Bytes of the symbols that were received and used.
    pub fetched_bytes: u64,
    /// What this machine already had, if that was looked for.
    pub delta: Option<DeltaReport>,
    /// Whether the target was read back and compared.
    pub read_back: bool,
    /// The compared bytes.
    pub compared: Option<Compared>,
    /// The number of the partition, if only one was written.
    pub partition: Option<u32>,
    /// The partition that was grown.
    pub grown: Option<GrownReport>,
    /// Whether the disk and its partitions have new ids.
    pub new_ids: bool,
    /// Whether the backup GPT was moved to the end of a larger target.
    pub backup_gpt_moved: bool,
    /// Time since joining, in seconds.
    pub seconds: f64,
    /// How the disk came here.
    pub way: Way,
    /// Symbols received.
    pub symbols: u64,
    /// Symbols restored from repair symbols.
    pub repaired_symbols: u64,
    /// Duplicate symbols received.
    pub duplicate_symbols: u64,
    /// Chunks that arrived damaged by multicast and were fetched from the sender alone.
    pub fetched_chunks: u64,
    /// Senders of the wanted name that were ignored, because they cast another disk.
    pub ignored_senders: u32,
    /// Datagrams and messages that were rejected: forged, damaged, or of other sessions.
    pub rejected_datagrams: u64,
    /// Datagrams that were rejected as repetitions.
    pub repeated_datagrams: u64,
    /// Whether the sender has acknowledged the result.
    pub acknowledged: bool,
    /// Whether the score was given beforehand. If not, a trusted key signed the version, or `--trust-any` was given.
    pub score_given: bool,
    /// Notices, in sentences.
    pub notes: Vec<String>,
}
