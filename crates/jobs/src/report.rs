//! What jobs report when they are done: facts with units in their names, ready to be printed or made JSON.

use platter_records::{FilesystemRecord, UnreadableOmitted, UnreadableRecord};
use serde::Serialize;

use crate::AuditReport;
use platter_records::Repairs;

/// A capture that was published.
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
    /// Bytes somebody can still read.
    pub allocated_bytes: u64,
    /// Bytes in no partition that were left out because the user said so.
    pub skipped_gap_bytes: u64,
    /// Of these, bytes that are not zeros at the end of their blocks.
    pub data_bytes: u64,
    /// Of these, zeros.
    pub zero_bytes: u64,
    /// Blocks that the store did not have.
    pub new_blocks: u64,
    /// Of the data, what stands in them.
    pub new_raw_bytes: u64,
    /// Bytes that the store grew by for blocks and recipe.
    pub new_stored_bytes: u64,
    /// What it did for other versions.
    #[serde(flatten)]
    pub repairs: Repairs,
    /// What could not be read, and is zeros.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
    /// What could not be read besides, and is not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable_omitted: Option<UnreadableOmitted>,
    /// What other programs say, if they were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditReport>,
    /// Wall time.
    pub seconds: f64,
    /// What was odd, in sentences.
    pub notes: Vec<String>,
}

/// What was read back from a target and compared with the version, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Data.
    pub data_bytes: u64,
    /// Zeros.
    pub zero_bytes: u64,
    /// Free space, which was not compared: it keeps what the target held.
    pub free_bytes_left_out: u64,
}

impl Compared {
    /// The same, with everything else of a disk of that length counted as free space.
    pub(crate) fn of_disk(self, length: u64) -> Self {
        Self { free_bytes_left_out: length.saturating_sub(self.data_bytes + self.zero_bytes), ..self }
    }
}

/// An installed disk.
#[derive(Clone, Debug, Serialize)]
pub struct InstallReport {
    /// `lab/debian12@3`, or the score if that was asked for.
    pub version: String,
    /// The score all of whose blocks were verified before they were written.
    pub score: String,
    /// Where to.
    pub target: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Data written.
    pub written_bytes: u64,
    /// Zeros made.
    pub zeroed_bytes: u64,
    /// Whether the target was read back and compared.
    pub read_back: bool,
    /// What of it was.
    pub compared: Option<Compared>,
    /// Whether the backup GPT was moved to the end of a larger target.
    pub backup_gpt_moved: bool,
    /// Wall time.
    pub seconds: f64,
    /// What was odd, in sentences.
    pub notes: Vec<String>,
}

/// A raw file.
#[derive(Clone, Debug, Serialize)]
pub struct ExportReport {
    /// `lab/debian12@3`, or the score if that was asked for.
    pub version: String,
    /// The score all of whose blocks were verified before they were written.
    pub score: String,
    /// Where to.
    pub file: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Data written.
    pub written_bytes: u64,
    /// Wall time.
    pub seconds: f64,
}

/// How one receiver of a cast ended.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiverReport {
    /// What it calls itself.
    pub name: String,
    /// `receiving`, `silent`, `stalled`, `done`, `failed` or `lost`.
    pub state: String,
    /// The score it verified.
    pub score: Option<String>,
    /// Why it failed.
    pub reason: Option<String>,
    /// Bytes it wrote.
    pub written_bytes: u64,
    /// From its joining to its result.
    pub seconds: f64,
    /// Bytes written each second.
    pub bytes_per_second: f64,
    /// Symbols that it made from repair symbols.
    pub repaired_symbols: u64,
}

impl ReceiverReport {
    /// Whether nothing more is to be expected of it.
    pub fn has_ended(&self) -> bool {
        !matches!(self.state.as_str(), "receiving" | "silent" | "stalled")
    }
}

/// A finished cast.
#[derive(Clone, Debug, Serialize)]
pub struct CastReport {
    /// `lab/debian12@3`, or the score if that was asked for.
    pub version: String,
    /// The score.
    pub score: String,
    /// Bytes of all chunks: what must be sent once.
    pub cast_bytes: u64,
    /// Source symbols of all chunks.
    pub symbols: u64,
    /// Symbols sent, repeated and repair ones included.
    pub symbols_sent: u64,
    /// Of these, repair symbols.
    pub symbols_repair: u64,
    /// Bytes on the wire, headers included.
    pub wire_bytes: u64,
    /// From the first receiver's start to the last one's result.
    pub seconds: f64,
    /// Every receiver that ever joined.
    pub receivers: Vec<ReceiverReport>,
}

/// A received disk.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveReport {
    /// What the sender called it.
    pub version: String,
    /// The score all of whose blocks were verified before they were written.
    pub score: String,
    /// Where to.
    pub target: String,
    /// Data written.
    pub written_bytes: u64,
    /// Whether the target was read back and compared.
    pub read_back: bool,
    /// What of it was.
    pub compared: Option<Compared>,
    /// Whether the backup GPT was moved to the end of a larger target.
    pub backup_gpt_moved: bool,
    /// Wall time since joining.
    pub seconds: f64,
    /// Symbols received.
    pub symbols: u64,
    /// Symbols made from repair symbols.
    pub repaired_symbols: u64,
    /// Symbols received in vain.
    pub duplicate_symbols: u64,
    /// Chunks that came wrong by multicast and were fetched from the sender alone.
    pub fetched_chunks: u64,
    /// Whether the sender knows.
    pub acknowledged: bool,
    /// Whether the score was given beforehand. If not, the sender was trusted by the name that it gave.
    pub score_given: bool,
    /// What was odd, in sentences.
    pub notes: Vec<String>,
}
