//! Turns what was written to a live disk into the next version of its image, by work that follows what changed.
//!
//! The filesystems of the frozen disk are asked as in a capture: of a clean one, files are cut along themselves and
//! freed blocks are dropped; one that needs recovery counts whole, and the version says that it is as after a power
//! cut (design: overlays). What was not written is taken over from the version below without being read.
//!
//! Why nothing is dropped of a disk that is served on: it stands on the version afterwards, and must read as before. No file
//! system on it can prove that nobody wants what it calls free: a guest that swaps there wants it back.
//!
//! However often it is cut and tried again, it makes one version: what is published must follow the version that the disk
//! stands on, whose number the commit compares, as it compares the edit lock's. Where a later one is there already,
//! it is this very disk's, which its record tells, or the disk is not published.

use std::time::Instant;

use platter_disk::capture::{Base as CaptureBase, CaptureOptions};
use platter_disk::{SurveyOptions, survey};
use platter_image::chunking::Region;
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{Error, ErrorKind, Extent, Extents, Result, Score};
use platter_records::{Consistency, ImageName, UnreadableRecord, Version, VersionRecord};
use platter_store::KnownCheck;
use platter_vdisk::DiskView;

use super::control::Words;
use super::disk::{Base, Frozen, LiveDisk, Writing};
use super::publish::{kept, lost_edit_lock, nothing_written};
use super::publish_report::PublishReport;
use super::sources::Sources;
use platter_fetch::OpenStore;
use platter_fetch::unix_ms;
use platter_jobs::Progress;
use platter_jobs::filesystems;
use platter_records::PublishedVersion;
use platter_records::Repairs;

/// Publishes what was written to a disk so far, while it goes on.
pub(super) fn publish_disk(
    disk: &LiveDisk,
    sources: &Sources,
    words: &Words,
    progress: &dyn Progress,
) -> Result<PublishReport> {
    let started = Instant::now();
    let writing = disk
        .writing()
        .ok_or_else(|| Error::refused(format!("{} is read-only: attach it with --write", disk.name)))?;
    let _one = disk.publishing();
    if words.branch.is_none() {
        check_edit_lock(&sources.store, writing).map_err(kept)?;
    }
    loop {
        let frozen = disk.freeze()?;
        if frozen.changed.is_empty() {
            return Err(nothing_written(&disk.name, &frozen.base.to_string()));
        }
        progress.begin("publishing", frozen.changed.total());
        // Before the last turn, too: if that fails, clients have the disk again.
        let is_served_on = words.branch.is_none() && (disk.is_open() || !frozen.is_whole);
        let mut report = match capture_frozen(sources, (&frozen, is_served_on), writing, words, progress) {
            // It was taken over while the disk was read.
            Err(error) if error.kind() == ErrorKind::Refused && words.branch.is_none() => {
                check_edit_lock(&sources.store, writing)?;
                return Err(error);
            }
            report => report.map_err(kept)?,
        };
        if words.branch.is_none() {
            stand_on(disk, sources, &report).map_err(|error| {
                error
                    .within(format!("{} is published, but the disk does not stand on it yet", report.version))
            })?;
        }
        let is_whole = frozen.is_whole;
        // The last that has the frozen overlay's file open: a filesystem that discards takes seconds to give its space back.
        std::thread::spawn(move || drop(frozen));
        if is_whole || words.branch.is_some() {
            report.seconds = started.elapsed().as_secs_f64();
            return Ok(report);
        }
    }
}

/// Puts a disk above the version that was published of it.
fn stand_on(disk: &LiveDisk, sources: &Sources, report: &PublishReport) -> Result<()> {
    sources.store.refresh()?;
    let score = sources.store.resolve(&report.version)?.score;
    disk.rebase(Base::open(sources, score)?)
}

/// Refuses a disk whose edit_lock is another's by now, saying what can be done.
fn check_edit_lock(store: &OpenStore, writing: &Writing) -> Result<()> {
    match store
        .check_edit_lock(&writing.image, platter_fetch::EditLockChoice::Number(writing.edit_lock.number))
    {
        Err(error) if error.kind() == ErrorKind::Refused => {
            Err(lost_edit_lock(&writing.image, writing.edit_lock.number))
        }
        checked => checked,
    }
}

/// The version that a disk stands on: of its own image, if that has it.
pub(super) fn base_version(store: &OpenStore, image: &ImageName, base: Score) -> Result<Option<Version>> {
    let own = match store.history(image) {
        Err(error) if error.kind() == ErrorKind::Missing => Vec::new(),
        versions => versions?,
    };
    match own.into_iter().find(|version| version.record.score == base) {
        Some(version) => Ok(Some(version)),
        None => Ok(store.resolve(&base.to_string())?.version),
    }
}

/// What is there already of the image that gets a version.
struct Standing {
    /// The number of its newest version; 0 when it has none.
    newest: u64,
    /// That version, if it was made of this very disk, by a try whose end nobody saw.
    ours: Option<Version>,
}

impl Standing {
    /// Looks at an image. `base` is what its newest version must be, unless it is ours; without it, there must be none.
    ///
    /// # Errors
    /// `Refused` when another version is there.
    fn of(store: &OpenStore, image: &ImageName, base: Option<Score>, source: &str) -> Result<Self> {
        let newest = match store.resolve(image.as_str()) {
            Err(error) if error.kind() == ErrorKind::Missing => return Ok(Self { newest: 0, ours: None }),
            resolved => resolved?.version,
        };
        let newest = newest.ok_or_else(|| Error::bug(format!("{image} resolves to no version")))?;
        let number = newest.name.number;
        if base == Some(newest.record.score) {
            return Ok(Self { newest: number, ours: None });
        }
        if newest.record.source == source {
            return Ok(Self { newest: number, ours: Some(newest) });
        }
        Err(Error::refused(match base {
            Some(base) => format!(
                "{} came after the version that this disk stands on ({base}), and publishing would undo it: nothing was \
                 published, and what was written is kept; publish to a new name",
                newest.name
            ),
            None => {
                format!("{image} exists, its newest version is {}: publish to a new name", newest.name)
            }
        }))
    }

    /// The version that an earlier try made of the disk, if there is one.
    ///
    /// # Errors
    /// `Refused` when a new image was made of it, and more was written since.
    fn published(&self, score: Score, base: Option<Score>) -> Result<Option<Version>> {
        match &self.ours {
            Some(version) if version.record.score == score => Ok(Some(version.clone())),
            Some(version) if base.is_none() => Err(Error::refused(format!(
                "{} was published of this disk before more was written to it: publish to a new name",
                version.name
            ))),
            _ => Ok(None),
        }
    }
}

/// What a frozen disk looks like.
struct Surveyed {
    consistency: Consistency,
    notes: Vec<String>,
    filesystems: Vec<platter_records::FilesystemRecord>,
    regions: Vec<Region>,
}

/// What is on a frozen disk. Of one that is served on all of `data` is kept, whatever file systems say of it.
fn survey_frozen(disk: &DiskView<'_>, data: &Extents, is_served_on: bool) -> Result<Surveyed> {
    let (surveyed, consistency) = match survey(disk, Some(data), &SurveyOptions::default()) {
        Err(error) if error.kind() == ErrorKind::Refused => {
            let options = SurveyOptions { force: true, ..SurveyOptions::default() };
            (survey(disk, Some(data), &options)?, Consistency::Crash)
        }
        surveyed => (surveyed?, Consistency::Clean),
    };
    Ok(Surveyed {
        consistency,
        notes: surveyed.all_notes().collect(),
        filesystems: filesystems(&surveyed),
        regions: surveyed.parts.into_iter().map(|part| as_kept(part.region, data, is_served_on)).collect(),
    })
}

/// What is kept of a region: all of `data` in it, too, if the disk is served on.
fn as_kept(region: Region, data: &Extents, is_served_on: bool) -> Region {
    if !is_served_on {
        return region;
    }
    let kept = region.allocated.iter().copied().chain(data.clip(region.extent));
    Region { allocated: Extents::from_unsorted(kept.collect()), zeroed: Extents::new(), ..region }
}

fn capture_frozen(
    sources: &Sources,
    (frozen, is_served_on): (&Frozen, bool),
    writing: &Writing,
    words: &Words,
    progress: &dyn Progress,
) -> Result<PublishReport> {
    let (store, source) = (&sources.store, sources.of(frozen.base));
    let image = words.branch.as_ref().unwrap_or(&writing.image);
    let base = words.branch.is_none().then_some(frozen.base);
    // Said before anything is read; it is looked at again when there is something to publish.
    Standing::of(store, image, base, &frozen.source)?;
    let below = base_version(store, &writing.image, frozen.base)?;
    let recipe = Recipe::open(frozen.base, &*source)?;
    let root = *recipe.root();
    let disk = DiskView { device: &*frozen.view, sector_size: root.sector_size };
    let data = data_of(&recipe, &frozen.changed)?;
    let mut surveyed = survey_frozen(&disk, &data, is_served_on)?;
    let options =
        CaptureOptions { cut_policy: root.cut_policy, domain: root.domain, ..CaptureOptions::default() };
    let draft = VersionRecord {
        edit_lock: words.branch.is_none().then_some(writing.edit_lock.number),
        cloned_from: below.as_ref().filter(|_| words.branch.is_some()).map(|below| below.name.clone()),
        source: frozen.source.clone(),
        cut_policy: options.cut_policy.0,
        disk_length: root.disk_length,
        sector_size: root.sector_size,
        filesystems: std::mem::take(&mut surveyed.filesystems),
        labels: words.labels.clone(),
        consistency: surveyed.consistency,
        notes: words.notes.clone(),
        tool_version: words.tool_version.clone(),
        ..draft_above(below.as_ref(), frozen, image)
    };
    let entries = |range| recipe.entries(range).collect();
    let unchanged = CaptureBase { entries: &entries, changed: &frozen.changed };
    let (published, captured) =
        store.add(image, KnownCheck::Sample, &|why| progress.note(why), |session| {
            let captured = platter_disk::capture::capture(
                &disk,
                &surveyed.regions,
                Some(&unchanged),
                &*session,
                options,
                &mut |_| {},
            )?;
            session.finish()?;
            let standing = Standing::of(store, image, base, &frozen.source)?;
            if let Some(version) = standing.published(captured.score, base)? {
                return Ok((PublishedVersion { version, repairs: Repairs::default() }, captured));
            }
            let (score, allocated_bytes) = (captured.score, captured.counts.allocated);
            let record = VersionRecord { score, allocated_bytes, ..draft.clone() };
            Ok((session.publish(record, Some(standing.newest))?, captured))
        })?;
    surveyed.notes.extend(published.repairs.notes());
    Ok(PublishReport {
        version: published.version.name.to_string(),
        score: captured.score.to_string(),
        base: frozen.base.to_string(),
        consistency: surveyed.consistency,
        written_bytes: frozen.changed.total(),
        new_blocks: captured.counts.new_blocks,
        new_raw_bytes: captured.counts.new_raw,
        new_stored_bytes: captured.counts.new_stored,
        attached: words.branch.is_none(),
        seconds: 0.0,
        notes: surveyed.notes,
    })
}

/// A draft that says what the disk below says of what was left out of it or could not be read: that lacks still.
fn draft_above(below: Option<&Version>, frozen: &Frozen, image: &ImageName) -> VersionRecord {
    let draft = VersionRecord::draft(image.clone(), frozen.base, unix_ms());
    let Some(Version { record, .. }) = below else { return draft };
    let lacks = |range: &&UnreadableRecord| {
        let extent = Extent::new(range.offset, range.length);
        frozen.changed.clip(extent).map(|extent| extent.length).sum::<u64>() < range.length
    };
    VersionRecord {
        skipped_gap_bytes: record.skipped_gap_bytes,
        unreadable: record.unreadable.iter().filter(lacks).cloned().collect(),
        unreadable_omitted: record.unreadable_omitted,
        ..draft
    }
}

/// What may hold data: what did below, and what was written.
fn data_of(recipe: &Recipe<impl PageSource>, changed: &Extents) -> Result<Extents> {
    let mut data = Vec::new();
    for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
        let entry = entry?;
        data.extend(matches!(entry.state, State::Data { .. }).then_some(entry.extent));
    }
    data.extend(changed.iter());
    Ok(Extents::from_unsorted(data))
}
