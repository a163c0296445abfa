//! Surveys a disk, captures it, and publishes it as the next version of an image.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use platter_disk::capture::{CaptureCounts, CaptureOptions, Captured};
use platter_disk::device::Watch;
use platter_disk::refusal::{self, Reason};
use platter_disk::{Source, Survey, SurveyOptions, survey};
use platter_formats::Format;
use platter_image::chunking::Region;
use platter_image::recipe::Recipe;
use platter_image::{BlockId, DiskRead, Domain, Error, ErrorKind, FrameStore, Result, Score};
use platter_records::{Consistency, FilesystemRecord, ImageName, Version, VersionRecord};
use platter_store::KnownCheck;

use super::input::{Input, InputOptions, Window, format_of_path, refuse_wrong_path};
use super::spool;
use crate::audit::{Audit, AuditReport};
use crate::edit_lock;
use crate::unreadable;
use crate::{CaptureReport, Progress};
use platter_fetch::EditLockChoice;
use platter_fetch::{OpenStore, StoreLocation};
use platter_records::PublishedVersion;
use platter_records::Repairs;

/// The request to capture a disk.
#[derive(Clone, Debug)]
pub struct CaptureRequest {
    /// The store.
    pub store: StoreLocation,
    /// A block device, a raw file, or an image in another format.
    pub source: PathBuf,
    /// How it holds the disk, and what of it is captured.
    pub input: InputOptions,
    /// The image to which a version is added.
    pub name: ImageName,
    /// Options of the survey.
    pub survey: SurveyOptions,
    /// Capture a source that is in use, and publish even if it was written during the capture.
    pub allow_in_use: bool,
    /// Store zeros for unreadable sectors, instead of ending the capture.
    pub skip_bad: bool,
    /// Compare the kept data with what other programs consider used.
    pub audit: bool,
    /// Sector size of the disk whose image a raw file is, such as 4096 bytes.
    pub sector_size: Option<u32>,
    /// Compression options.
    pub options: CaptureOptions,
    /// How much of the existing data that the version relies on is read back.
    pub known: KnownCheck,
    /// Labels of the user.
    pub labels: BTreeMap<String, String>,
    /// A note of the user.
    pub notes: String,
    /// The edit lock to publish under.
    pub edit_lock: EditLockChoice,
    /// Name and version of the program, such as `platter 0.1.0`.
    pub tool_version: String,
}

/// Captures a disk and publishes it.
///
/// # Errors
/// `Refused` when the source must not or cannot be captured as it is, or somebody else edits the image; `Io`; the
/// store's errors. The store then has the same versions as before, and may keep blocks that the next capture can use.
pub fn capture(request: &CaptureRequest, progress: &dyn Progress) -> Result<CaptureReport> {
    let source = &request.source;
    let is_standard_input = spool::is_standard_input(source);
    let said = request.input.format;
    let format = said.unwrap_or_else(|| format_of_path(source, request.survey.raw));
    let words = if is_standard_input { "standard input".to_owned() } else { source.display().to_string() };
    let words = request.input.partition.map_or(words.clone(), |number| format!("{words}:{number}"));
    if !is_standard_input {
        refuse_wrong_path(source, format)?;
    }
    let disk = request.input.disk.as_deref();
    if disk.is_some() && format != Format::Clonezilla {
        return Err(Error::refused(format!(
            "--disk names a disk in a folder of Clonezilla, and {words} is {format}"
        )));
    }
    let force = if request.allow_in_use { &Reason::ALL[..] } else { &[] };
    for backing in &request.input.backing {
        refusal::check_source(&backing.path, force)?;
    }
    if is_standard_input || format.is_stream() {
        let directories = request.store.directories();
        let temporary = std::env::temp_dir();
        let directory = directories.first().unwrap_or(&temporary);
        let is_encrypted = match &request.store {
            StoreLocation::Local(place) => place.read_key_file()?.is_some(),
            remote => OpenStore::open_reader(remote)?.domain()?.is_encrypted(),
        };
        let is_decoded = format.is_stream();
        let (spooled, format) = spool::unpack(source, (format, disk), directory, is_encrypted, progress)?;
        let disk = spooled.open(request.sector_size)?;
        refuse_empty(&disk, &words)?;
        let input = Input::new(disk, format, &request.input.backing)?.unpacked(&words, is_decoded);
        refuse_useless_options(request, &input, true)?;
        return capture_as(request, &input, &words, progress);
    }
    let is_in_use = refusal::check_source(source, force)?;
    let disk = match is_in_use {
        true => Source::open(source, request.sector_size)?,
        false => Source::open_alone(source, request.sector_size)?,
    };
    refuse_empty(&disk, &words)?;
    let input = Input::new(disk, format, &request.input.backing)?;
    refuse_useless_options(request, &input, false)?;
    capture_as(request, &input, &words, progress)
}

/// Refuses a source without contents: a disk has some, and a program that failed prints nothing.
fn refuse_empty(source: &Source, words: &str) -> Result<()> {
    match source.length() {
        0 => Err(Error::refused(format!(
            "{words} has no bytes, so nothing was stored: did the program that should have written it fail?"
        ))),
        _ => Ok(()),
    }
}

/// Refuses options that mean nothing for this source.
fn refuse_useless_options(request: &CaptureRequest, input: &Input, is_unpacked: bool) -> Result<()> {
    let is_part = request.input.partition.is_some();
    let is_raw = input.is_raw() && !is_unpacked;
    let refused = [
        (request.skip_bad && !is_raw, "--skip-bad: only raw disks have bad sectors"),
        (request.audit && !is_raw, "--audit: other programs can examine raw disks only"),
        (request.audit && is_part, "--audit: name the whole disk, or the device of the partition"),
        (request.sector_size.is_some() && !input.is_raw(), "--sector-size: the image states it"),
        (request.survey.raw && is_part, "--raw: it ignores the partition table"),
    ];
    match refused.into_iter().find(|(is_useless, _)| *is_useless) {
        Some((_, what)) => Err(Error::refused(format!("this source cannot be captured with {what}"))),
        None => Ok(()),
    }
}

/// Refuses a sector size that contradicts the partition table.
fn refuse_other_sectors(given: Option<u32>, stated: u32) -> Result<()> {
    match given.filter(|given| *given != stated) {
        Some(given) => Err(Error::refused(format!(
            "the partition table is valid with sectors of {stated} bytes, not {given}: write --sector-size {stated}"
        ))),
        None => Ok(()),
    }
}

/// Captures and publishes a source that is safe to read; the version's record names `words` as its source.
///
/// # Errors
/// As [`capture`].
pub fn capture_as(
    request: &CaptureRequest,
    input: &Input,
    words: &str,
    progress: &dyn Progress,
) -> Result<CaptureReport> {
    let started = Instant::now();
    if !request.survey.raw {
        input.refuse_other_format(request.input.format == Some(Format::Raw))?;
    }
    let store = OpenStore::open_writer(&request.store)?;
    store.check_edit_lock(&request.name, request.edit_lock)?;
    let mut watches = input.watch()?;
    progress.begin("reading the filesystems", 0);
    let opened = input.disk(request.skip_bad)?;
    let window = Window::new(opened.disk(), request.input.partition)?;
    let data = opened.data_extents()?.map(|data| window.of(&data));
    let surveyed = survey(&window, data.as_ref(), &request.survey)?;
    refuse_other_sectors(request.sector_size, surveyed.sector_size)?;
    refuse_cut_off(request, &surveyed)?;
    if input.is_raw() {
        let starts = surveyed.parts.iter().map(|part| window.start() + part.region.extent.offset);
        watches[0].add_starts(starts);
    }
    let mut notes = input.backing_notes()?;
    notes.extend(surveyed.all_notes());
    notes.iter().for_each(|note| progress.note(note));
    let told = notes.len();

    let known = known_record(request, words, &surveyed, window.length());
    let (table, sector_size) = (surveyed.table.kind.name().to_owned(), surveyed.sector_size);
    let regions: Vec<Region> = surveyed.parts.into_iter().map(|part| part.region).collect();
    let disk = window.with_sector_size(sector_size);
    let check = || check_unchanged(request, input, &watches, words);
    // A record that is too long is refused before the disk is read.
    let room = known.room()?;
    let draft = |captured: &Captured, change: Option<&String>| {
        let unreadable = unreadable::find(&window, &known.filesystems, &window.of(&opened.bad()), room);
        VersionRecord {
            score: captured.score,
            time_unix_ms: platter_fetch::unix_ms(),
            allocated_bytes: captured.counts.allocated,
            consistency: if change.is_some() { Consistency::Torn } else { known.consistency },
            unreadable: unreadable.listed,
            unreadable_omitted: unreadable.omitted,
            ..known.clone()
        }
    };
    let capturing = Capturing { disk: &disk, regions: &regions, check: &check, draft: &draft, progress };
    let (published, counts, change) = capturing.publish(request, &store)?;
    notes.extend(change);
    let record = &published.version.record;
    notes.extend(unreadable::note(record));
    notes[told..].iter().for_each(|note| progress.note(note));
    let audit = match request.audit {
        true => Some(audited(request, &store, record.score, sector_size, progress)?),
        false => None,
    };
    Ok(report(published, &counts, table, audit, notes, started.elapsed().as_secs_f64()))
}

/// Refuses a disk from standard input whose end is missing, unless the user insists. A pipe ends in the same way when the
/// program that writes to it fails, and nothing else shows that. A file or a device is only noted: it can be examined again.
fn refuse_cut_off(request: &CaptureRequest, surveyed: &Survey) -> Result<()> {
    let is_asked = spool::is_standard_input(&request.source) && !request.survey.force;
    match surveyed.cut_off().filter(|_| is_asked) {
        Some(what) => Err(Error::refused(format!(
            "the disk from standard input seems to be cut off: {what}; check the program that writes it, or store it as it \
             is with --force"
        ))),
        None => Ok(()),
    }
}

/// The version's record, as far as it is known before the disk is read.
fn known_record(request: &CaptureRequest, words: &str, surveyed: &Survey, disk_length: u64) -> VersionRecord {
    VersionRecord {
        source: words.to_owned(),
        cut_policy: request.options.cut_policy.0,
        disk_length,
        sector_size: surveyed.sector_size,
        allocated_bytes: disk_length,
        skipped_gap_bytes: surveyed.skipped(),
        filesystems: filesystems(surveyed),
        labels: request.labels.clone(),
        consistency: consistency(request, surveyed),
        notes: request.notes.clone(),
        tool_version: request.tool_version.clone(),
        ..VersionRecord::draft(request.name.clone(), Score(BlockId([0; 32])), platter_fetch::unix_ms())
    }
}

/// A surveyed disk to be captured, into any store.
struct Capturing<'a> {
    disk: &'a dyn DiskRead,
    regions: &'a [Region],
    /// Refuses a source that was written meanwhile, or returns the evidence if the user insists.
    check: &'a dyn Fn() -> Result<Option<String>>,
    draft: &'a dyn Fn(&Captured, Option<&String>) -> VersionRecord,
    progress: &'a dyn Progress,
}

impl Capturing<'_> {
    fn publish(
        &self,
        request: &CaptureRequest,
        store: &OpenStore,
    ) -> Result<(PublishedVersion, CaptureCounts, Option<String>)> {
        store.add(&request.name, request.known, &|why| self.progress.note(why), |session| {
            // The captured pins are held until the version is published.
            let captured = self.capture(request, store.domain()?, &*session)?;
            let change = (self.check)()?;
            self.progress.begin("publishing", 0);
            session.finish()?;
            let draft = (self.draft)(&captured, change.as_ref());
            let mut repairs = Repairs::default();
            let version = edit_lock::with_edit_lock(store, &request.name, request.edit_lock, |edit_lock| {
                let published = session.publish(VersionRecord { edit_lock, ..draft }, None)?;
                repairs = published.repairs;
                Ok(published.version)
            })?;
            Ok((PublishedVersion { version, repairs }, captured.counts, change))
        })
    }

    fn capture<S: FrameStore>(
        &self,
        request: &CaptureRequest,
        domain: Domain,
        store: &S,
    ) -> Result<Captured> {
        let total = self.regions.iter().map(|region| region.allocated.total()).sum();
        self.progress.begin("capturing", total);
        let mut done = 0;
        let mut advance = |now| {
            self.progress.advance(now - done);
            done = now;
        };
        let options = CaptureOptions { domain, ..request.options };
        platter_disk::capture::capture(self.disk, self.regions, None, store, options, &mut advance)
    }
}

fn report(
    published: PublishedVersion,
    counts: &CaptureCounts,
    table: String,
    audit: Option<AuditReport>,
    notes: Vec<String>,
    seconds: f64,
) -> CaptureReport {
    let PublishedVersion { version: Version { record, .. }, repairs } = published;
    CaptureReport {
        version: record.name().to_string(),
        name: record.image.to_string(),
        number: record.number,
        score: record.score.to_string(),
        partition_table: table,
        disk_bytes: record.disk_length,
        allocated_bytes: counts.allocated,
        skipped_gap_bytes: record.skipped_gap_bytes,
        data_bytes: counts.data,
        zero_bytes: counts.zero,
        new_blocks: counts.new_blocks,
        new_raw_bytes: counts.new_raw,
        new_stored_bytes: counts.new_stored,
        filesystems: record.filesystems,
        repairs,
        unreadable: record.unreadable,
        unreadable_omitted: record.unreadable_omitted,
        audit,
        seconds,
        notes,
    }
}

/// Compares the kept data with what other programs report of the source.
fn audited(
    request: &CaptureRequest,
    store: &OpenStore,
    score: Score,
    sector_size: u32,
    progress: &dyn Progress,
) -> Result<AuditReport> {
    progress.begin("auditing", 0);
    let source = store.source(score, Default::default());
    let recipe = Recipe::open(score, &*source)?;
    let skips_gaps = request.survey.skip_gaps;
    Audit { disk: &request.source, sector_size, skips_gaps }.run(&recipe)
}

/// Refuses a source that was written since `watch` began, or that was mounted for writing meanwhile. If the user
/// insists, returns the evidence.
fn check_unchanged(
    request: &CaptureRequest,
    input: &Input,
    watches: &[Watch<'_>],
    words: &str,
) -> Result<Option<String>> {
    // What was unpacked has no name, so nobody else can have it.
    let path = (!input.is_unpacked()).then_some(&request.source);
    let backing = request.input.backing.iter().map(|backing| &backing.path);
    let checked = path.into_iter().chain(backing).try_for_each(|path| refusal::check_source_again(path));
    let change = match checked {
        Err(error) if error.kind() == ErrorKind::Refused && !request.allow_in_use => return Err(error),
        _ => watches.iter().map(Watch::change).find_map(Result::transpose).transpose()?,
    };
    match change {
        Some(change) if request.allow_in_use => {
            Ok(Some(format!("{words} was written while it was captured ({change}): the version is torn")))
        }
        Some(change) => Err(Error::refused(format!(
            "{words} was written while it was captured ({change}), so nothing was published: stop whatever writes to it, \
             and capture again"
        ))),
        None => Ok(None),
    }
}

/// Returns the file systems of a survey, in the form of records.
pub fn filesystems(surveyed: &Survey) -> Vec<FilesystemRecord> {
    let named = surveyed.parts.iter().filter(|part| !part.filesystem.is_empty());
    named
        .filter(|part| part.partition.is_some() || part.filesystem != "unallocated")
        .map(|part| FilesystemRecord {
            partition: part.partition.unwrap_or(0),
            kind: part.filesystem.clone(),
            label: part.label.clone().unwrap_or_default(),
            uuid: part.uuid.clone().unwrap_or_default(),
            offset: part.region.extent.offset,
            length: part.region.extent.length,
            allocated: part.used,
        })
        .collect()
}

/// Only filesystems whose state was read can be clean; if the user insists, the version may be torn.
fn consistency(request: &CaptureRequest, surveyed: &Survey) -> Consistency {
    let unknown = surveyed.parts.iter().any(|part| part.partition.is_some() && part.filesystem.is_empty());
    match (request.survey.force || request.allow_in_use, request.survey.raw || unknown) {
        (true, _) => Consistency::Crash,
        (_, true) => Consistency::Unknown,
        _ => Consistency::Clean,
    }
}
