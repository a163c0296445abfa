//! Records the boot of a version: a machine boots it over NBD with a temporary overlay, and its reads of the version
//! become its boot set.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use platter_image::{Domain, Error, Extent, IoContext, Result, Score};
use platter_records::{BootSet, VersionName};
use platter_vdisk::{
    Allocation, BlockDevice, Count, Overlay, OverlayOptions, RecipeDisk, Record, Recording, Source, Trace,
    TraceHeader,
};
use platter_vfs::{OpenMode, OsVfs, Vfs};

use super::boots::{BootFacts, boot_set_of};
use super::machine::{Booted, Machine};
use super::manage::{RegisterReport, register};
use crate::Progress;
use crate::one_disk::{Scratch, while_served};
use platter_fetch::SourceOptions;
use platter_fetch::{OpenStore, StoreLocation};
use platter_fetch::{memory_cache, unix_ms};

/// Memory for decoded blocks while a machine boots, in bytes.
const CACHE_BYTES: usize = 256 << 20;
/// The disk's name for the machine.
const DISK: &str = "boot";

/// The request to record a boot.
#[derive(Clone, Debug)]
pub struct RecordRequest {
    /// The store of the version and the boot set.
    pub store: StoreLocation,
    /// `NAME` or `NAME@7`.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// Name and version of the program, such as `platter 0.1.0`.
    pub tool_version: String,
    /// Set to true to end the job.
    pub stop: Arc<AtomicBool>,
}

/// Boots a version until the marker, and registers its reads as the boot set.
///
/// # Errors
/// `Missing` when there is no such version, or no QEMU; `Refused` for a score, or when the marker does not appear; the
/// store's errors.
pub fn hoard_record(request: &RecordRequest, progress: &dyn Progress) -> Result<RegisterReport> {
    let store = OpenStore::open_reader(&request.store)?;
    let resolved = store.resolve(&request.version)?;
    let version = resolved.version.ok_or_else(|| {
        Error::refused("a boot set belongs to a version: name one with this score, as NAME or NAME@7")
    })?;
    let source = store.source(resolved.score, SourceOptions::default());
    progress.begin(&format!("booting {}", version.name), 0);
    let (trace, booted) = record(source.clone(), (resolved.score, store.domain()?), request)?;
    if trace.lost > 0 {
        progress.note(&format!("{} requests were too fast to be recorded: record it again", trace.lost));
    }
    let set = set_of(&trace, &booted, &version.name, request, &*source)?;
    register(&request.store, &version.name, &set)
}

fn set_of(
    trace: &Trace,
    booted: &Booted,
    version: &VersionName,
    request: &RecordRequest,
    source: &dyn Source,
) -> Result<BootSet> {
    let facts = BootFacts {
        marker: request.machine.until.to_string(),
        command: booted.command.clone(),
        accelerator: booted.accelerator.into(),
        time_unix_ms: unix_ms(),
        duration_ms: Some(booted.duration.as_millis() as u64),
        tool_version: request.tool_version.clone(),
        ..BootFacts::default()
    };
    boot_set_of(trace, version, facts, source)
}

/// A disk that is shared with others.
struct Shared(Arc<dyn BlockDevice>);

impl BlockDevice for Shared {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn is_writable(&self) -> bool {
        self.0.is_writable()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.0.read(buffer, offset)
    }

    fn is_near(&self, range: Extent) -> Option<bool> {
        self.0.is_near(range)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.write(bytes, offset)
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.0.write_zeroes(range)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.0.extents(range, visit)
    }
}

/// Boots the disk with this score. Returns its trace.
fn record(
    source: Arc<dyn Source>,
    (score, domain): (Score, Domain),
    request: &RecordRequest,
) -> Result<(Trace, Booted)> {
    let scratch = Scratch::make()?;
    let base: Arc<dyn BlockDevice> = Arc::new(RecipeDisk::open(score, source, memory_cache(CACHE_BYTES)?)?);
    let header = TraceHeader { base_score: score, disk_length: base.length(), began_unix_ms: unix_ms() };
    // The overlay is never opened again.
    let options = OverlayOptions { base_score: score, domain, edit_lock: 1, boot_id: [1; 16] };
    let overlay = Overlay::create(&OsVfs, &scratch.path("overlay"), &options, base)?;
    let trace_path = scratch.path("trace");
    let file = OsVfs.open(&trace_path, OpenMode::CreateNew).context(|| "making a trace".to_owned())?;
    let recording = Recording::start(file, &header)?;
    let recorded: Arc<dyn BlockDevice> = Arc::new(Record::new(Arc::new(overlay), recording.clone()));
    let disk = Arc::new(Count::new(Shared(recorded)));
    let boot = |uri: &str| request.machine.boot(uri, &|| disk.counts().reads, &request.stop);
    let booted = while_served(DISK, disk.clone(), &scratch, boot)?;
    recording.finish()?;
    Ok((read_trace(&trace_path)?, booted))
}

/// Reads a trace from its file.
pub(super) fn read_trace(path: &Path) -> Result<Trace> {
    let opened = fs::File::open(path).context(|| format!("opening {}", path.display()))?;
    Trace::read(opened).map_err(|error| error.within(path.display().to_string()))
}
