//! Publishes the changes of a live disk as the next version of its image, with work proportional to the changes.
//!
//! The filesystems of the frozen disk are surveyed as in a capture: a clean one is cut along its files, and freed
//! blocks are dropped; one that needs recovery is stored in full, and the version is marked as crash-consistent
//! (design: overlays). Unchanged ranges are taken from the version below without being read.
//!
//! Nothing is dropped from a disk that stays attached, because it stands on the new version afterwards and must read as
//! before. Its file systems cannot prove that free space is unused: a guest may swap there.
//!
//! However often publishing is interrupted and retried, it creates one version: the new version must follow the version
//! on which the disk stands, whose number the commit compares, like the number of the edit lock. If a later version
//! already exists, it is either made from this disk, which its record shows, or the disk is not published.

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

/// Publishes the current changes of a disk, which stays in use.
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
            return Err(nothing_written(&disk.name, &named(&sources.store, &writing.image, frozen.base)));
        }
        progress.begin("publishing", frozen.changed.total());
        // Also before the last turn: if it fails, clients use the disk again.
        let is_served_on = words.branch.is_none() && (disk.is_open() || !frozen.is_whole);
        let mut report = match capture_frozen(sources, (&frozen, is_served_on), writing, words, progress) {
            // The edit lock may have been taken over while the disk was read.
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
        // This drops the last reference to the frozen overlay's file: a filesystem that discards takes seconds to
        // release its space. Without a thread, this one waits for it.
        drop(std::thread::Builder::new().spawn(move || drop(frozen)));
        if is_whole || words.branch.is_some() {
            report.seconds = started.elapsed().as_secs_f64();
            return Ok(report);
        }
    }
}

/// Puts a disk above the version that was published from it.
fn stand_on(disk: &LiveDisk, sources: &Sources, report: &PublishReport) -> Result<()> {
    sources.store.refresh()?;
    let score = sources.store.resolve(&report.version)?.score;
    disk.rebase(Base::open(sources, score)?)
}

/// Refuses a disk whose edit lock was taken over, with what can be done.
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

/// Returns the version on which a disk stands, preferably of its own image.
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

/// Describes a version by its name, or by its score if no version has that score.
pub(super) fn named(store: &OpenStore, image: &ImageName, base: Score) -> String {
    let version = base_version(store, image, base).ok().flatten();
    version.map_or_else(|| format!("score {base}"), |version| version.name.to_string())
}

/// The existing versions of the image to be published.
struct Standing {
    /// Number of its newest version; 0 when it has none.
    newest: u64,
    /// That version, if it was made from this disk, by an attempt whose result was lost.
    ours: Option<Version>,
}

impl Standing {
    /// Checks an image. `base` must be the score of its newest version, unless that is ours; without `base`, the image
    /// must not exist.
    ///
    /// # Errors
    /// `Refused` when there is another version.
    fn of(store: &OpenStore, image: &ImageName, base: Option<Score>, sources: &[String]) -> Result<Self> {
        let newest = match store.resolve(image.as_str()) {
            Err(error) if error.kind() == ErrorKind::Missing => return Ok(Self { newest: 0, ours: None }),
            resolved => resolved?.version,
        };
        let newest = newest.ok_or_else(|| Error::bug(format!("{image} resolves to no version")))?;
        let number = newest.name.number;
        if base == Some(newest.record.score) {
            return Ok(Self { newest: number, ours: None });
        }
        if sources.contains(&newest.record.source) {
            return Ok(Self { newest: number, ours: Some(newest) });
        }
        Err(Error::refused(match base {
            Some(base) => format!(
                "{} is newer than the version below this disk ({}), and publishing would undo it: nothing was published, \
                 and the changes are kept: publish them to a new name",
                newest.name,
                named(store, image, base)
            ),
            None => {
                format!("{image} exists, its newest version is {}: publish to a new name", newest.name)
            }
        }))
    }

    /// Returns the version that an earlier attempt made from the disk, if there is one.
    ///
    /// # Errors
    /// `Refused` when an earlier attempt made a new image from it, and more was written since.
    fn published(&self, score: Score, base: Option<Score>) -> Result<Option<Version>> {
        match &self.ours {
            Some(version) if version.record.score == score => Ok(Some(version.clone())),
            Some(version) if base.is_none() => Err(Error::refused(format!(
                "{} was published from this disk before further writes: publish to a new name",
                version.name
            ))),
            _ => Ok(None),
        }
    }
}

/// The survey of a frozen disk.
struct Surveyed {
    consistency: Consistency,
    notes: Vec<String>,
    filesystems: Vec<platter_records::FilesystemRecord>,
    regions: Vec<Region>,
}

/// Surveys a frozen disk. If it stays attached, all of `data` is kept, whatever its file systems consider free.
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

/// Returns the kept part of a region; if the disk stays attached, also all of `data` in it.
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
    // Checked before anything is read, and again before publishing.
    Standing::of(store, image, base, &frozen.sources)?;
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
        source: frozen.sources.last().cloned().unwrap_or_default(),
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
            let standing = Standing::of(store, image, base, &frozen.sources)?;
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

/// Returns a draft that copies from the version below which parts were skipped or unreadable, because they are still
/// missing.
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

/// Returns the ranges that may hold data: those of the version below, and the changes.
fn data_of(recipe: &Recipe<impl PageSource>, changed: &Extents) -> Result<Extents> {
    let mut data = Vec::new();
    for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
        let entry = entry?;
        data.extend(matches!(entry.state, State::Data { .. }).then_some(entry.extent));
    }
    data.extend(changed.iter());
    Ok(Extents::from_unsorted(data))
}
