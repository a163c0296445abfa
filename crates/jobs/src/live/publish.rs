//! Turns what was written to a live disk into the next version of its image, by work that follows what changed.
//!
//! The filesystems of the frozen disk are asked as in a capture: of a clean one, files are cut along themselves and
//! freed blocks are dropped; one that needs recovery counts whole, and the version says that it is as after a power
//! cut (DESIGN D15). What was not written is taken over from the version below without being read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use platter_disk::capture::{Base as CaptureBase, CaptureOptions};
use platter_disk::{SurveyOptions, survey};
use platter_image::page::State;
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result, Score};
use platter_store::{
    Consistency, ImageName, NumberChoice, Store, StorePlace, Token, VersionName, VersionRecord,
};
use platter_vdisk::{BlockCache, BlockDevice, Overlay};
use serde::{Deserialize, Serialize};

use super::attach::new_cache;
use super::control::{self, OnDetach, Words};
use super::disk::{Base, Frozen, LiveDisk, Writing};
use super::overlays::{self, Overlays};
use crate::Progress;
use crate::capture::filesystems;
use crate::token::unix_ms;

/// How long the store's lock is waited for: a capture of another disk may have it.
const LOCK_TIME: Duration = Duration::from_secs(60);
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// Memory for blocks when a disk is published that no process serves.
const CACHE_BYTES: usize = 64 << 20;

/// Which disk to publish, and what to say of the version.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// The store.
    pub store: StorePlace,
    /// The image whose writable disk it is.
    pub disk: ImageName,
    /// The edit token that the disk was written under; the one that somebody holds if none is named.
    pub token: Option<u64>,
    /// Publish it as the first version of this new image: a branch. Then the edit ends.
    pub branch: Option<ImageName>,
    /// Words of the user's.
    pub labels: BTreeMap<String, String>,
    /// A sentence of the user's.
    pub notes: String,
    /// What is doing this, such as `platter 0.1.0`.
    pub tool_version: String,
}

/// A published version of a live disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishReport {
    /// `lab/debian12@4`.
    pub version: String,
    /// Its score.
    pub score: String,
    /// The score it was written above.
    pub base: String,
    /// `clean`: every filesystem was unmounted. `crash`: as after a power cut.
    pub consistency: Consistency,
    /// Bytes written since the version before.
    pub written_bytes: u64,
    /// Blocks that the store did not have, and their bytes.
    pub new_blocks: u64,
    /// See `new_blocks`.
    pub new_raw_bytes: u64,
    /// Bytes that the store grew by for blocks and recipe.
    pub new_stored_bytes: u64,
    /// Whether the disk goes on, above the new version.
    pub attached: bool,
    /// Wall time.
    pub seconds: f64,
    /// What was odd, in sentences.
    pub notes: Vec<String>,
}

/// Publishes a disk: by the process that serves it, which goes on above the new version; or, when none does, here. Then
/// the edit token is given back. A branch ends the edit in both cases, and needs no token: the disk of one that was
/// lost may become one.
///
/// # Errors
/// `Refused` when nothing was written, the token was taken over, or the branch's name is another image's: what was
/// written is kept. `Missing` when the image has no such disk. What the store says.
pub fn publish(request: &PublishRequest, progress: &dyn Progress) -> Result<PublishReport> {
    let words = Words {
        labels: request.labels.clone(),
        notes: request.notes.clone(),
        tool_version: request.tool_version.clone(),
        branch: request.branch.clone(),
    };
    let (image, place) = (&request.disk, &request.store);
    let store = Arc::new(Store::open_reader(place)?);
    let wanted = Wanted::find(&store, image, request.token)?;
    if let Some((server, status)) = control::serving(place.dir(), image, wanted.number())? {
        if words.branch.is_none() {
            return server.publish(image.as_str(), &words);
        }
        if status.written_bytes == Some(0) {
            return Err(nothing_written(image.as_str(), &status.base));
        }
        let published = server.detach(image.as_str(), OnDetach::Publish, &words)?;
        return published.ok_or_else(|| nothing_written(image.as_str(), &status.base));
    }
    let disk = wanted.open(place, &store, image)?;
    let cache = new_cache(CACHE_BYTES)?;
    let mut report = publish_disk(&disk, place, (&store, &cache), &words, progress)?;
    end_editing(&disk, &store)?;
    report.attached = false;
    Ok(report)
}

/// Throws away what was written to a disk that no process serves, and gives the edit token back. `token` says which
/// disk of the image, the held one if it says nothing.
///
/// # Errors
/// `Missing` when the image has no such disk; `Refused` when a process serves it.
pub fn discard(place: &StorePlace, image: &ImageName, token: Option<u64>) -> Result<u64> {
    let store = Arc::new(Store::open_reader(place)?);
    let disk = Wanted::find(&store, image, token)?.open(place, &store, image)?;
    let (_, written) = disk.state()?;
    end_editing(&disk, &store)?;
    Ok(written)
}

/// Which disk of an image a person means.
enum Wanted {
    /// The one of the token that somebody holds.
    Held(Token),
    /// One of a token that nobody holds any more.
    Lost(u64),
}

impl Wanted {
    fn find(store: &Store, image: &ImageName, number: Option<u64>) -> Result<Self> {
        let held = store.token(image)?;
        if let Some(token) = held.filter(|held| number.is_none_or(|number| held.number == number)) {
            return Ok(Self::Held(token));
        }
        let of_image = overlays::list(store.place())?.into_iter().filter(|(name, _)| name == image);
        let lost: Vec<u64> = of_image.map(|(_, number)| number).collect();
        match (number, &lost[..]) {
            (Some(number), lost) if lost.contains(&number) => Ok(Self::Lost(number)),
            (Some(number), _) => Err(Error::missing(format!(
                "nothing lies there that was written to {image} under token {number}"
            ))),
            (None, []) => Err(Error::missing(format!(
                "nobody edits {image}: `platter attach --write {image}` begins to"
            ))),
            (None, [number, ..]) => Err(lost_token(image, *number)),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Held(token) => token.number,
            Self::Lost(number) => *number,
        }
    }

    /// Opens the disk, which was left when its process ended.
    fn open(self, place: &StorePlace, store: &Arc<Store>, image: &ImageName) -> Result<LiveDisk> {
        let token = match self {
            Self::Held(token) => token,
            Self::Lost(number) => return open_left(place, store, image, number),
        };
        let score = store.resolve(image.as_str())?.score;
        let cache = new_cache(CACHE_BYTES)?;
        LiveDisk::writable(image.to_string(), place, (store, &cache), (image.clone(), token), score)
    }
}

/// Opens what lies there of a disk whose token nobody needs to hold.
///
/// # Errors
/// `Missing` when nothing does; `Refused` when a process has it; what opening the overlays says.
pub(super) fn open_left(
    place: &StorePlace,
    store: &Arc<Store>,
    image: &ImageName,
    number: u64,
) -> Result<LiveDisk> {
    let overlays = Overlays::lock(place, image, number)?;
    let Some(lowest) = overlays.numbers()?.first().copied() else {
        overlays.remove_all()?;
        return Err(Error::missing(format!("{image} has no overlay under token {number} any more")));
    };
    let score = Overlay::header(overlays.vfs(), &overlays.path(lowest))?.base_score;
    let token = Token {
        image: image.clone(),
        number,
        holder: String::new(),
        time_unix_ms: 0,
        overlay: String::new(),
    };
    let cache = new_cache(CACHE_BYTES)?;
    LiveDisk::on_overlays(image.to_string(), overlays, (store, &cache), (image.clone(), token), score)
}

fn nothing_written(disk: &str, base: &str) -> Error {
    Error::refused(format!("nothing was written to {disk} since {base}"))
}

/// Why a disk is not published, and what can be done with it.
fn lost_token(image: &ImageName, number: u64) -> Error {
    Error::refused(format!(
        "edit token {number} of {image} was taken over or released: nothing was published, and what was written is \
         kept. `platter publish {image} NEW-NAME --token {number}` makes a new image of it, `platter discard {image} \
         --token {number}` throws it away"
    ))
}

/// The overlays go, and with them the token.
pub(super) fn end_editing(disk: &LiveDisk, store: &Store) -> Result<()> {
    let Some(writing) = disk.writing() else { return Ok(()) };
    disk.detach()?;
    writing.remove_overlays()?;
    match store.release_token(&writing.token) {
        // Somebody took it over meanwhile: it is theirs.
        Err(error) if error.kind() == ErrorKind::Refused => Ok(()),
        released => released,
    }
}

/// Publishes what was written to a disk so far, while it goes on.
pub(super) fn publish_disk(
    disk: &LiveDisk,
    place: &StorePlace,
    (reader, cache): (&Arc<Store>, &Arc<BlockCache>),
    words: &Words,
    progress: &dyn Progress,
) -> Result<PublishReport> {
    let started = Instant::now();
    let writing = disk
        .writing()
        .ok_or_else(|| Error::refused(format!("{} is read-only: attach it with --write", disk.name)))?;
    let _one = disk.publishing();
    if words.branch.is_none() {
        check_token(reader, writing)?;
    }
    let frozen = disk.freeze()?;
    if frozen.changed.is_empty() {
        return Err(nothing_written(&disk.name, &frozen.base.to_string()));
    }
    progress.begin("publishing", frozen.changed.total());
    let store = open_writer(place)?;
    let report = capture_frozen(&store, &frozen, (&writing.image, &writing.token), words);
    drop(store);
    let mut report = match report {
        // It was taken over while the disk was read.
        Err(error) if error.kind() == ErrorKind::Refused && words.branch.is_none() => {
            check_token(reader, writing)?;
            return Err(error);
        }
        report => report?,
    };
    reader.refresh()?;
    if words.branch.is_none() {
        let score = reader.resolve(&report.version)?.score;
        disk.rebase(Base::open(reader.clone(), cache, score)?)?;
    }
    // The last that has the frozen overlay's file open: a filesystem that discards takes seconds to give its space back.
    std::thread::spawn(move || drop(frozen));
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Refuses a disk whose token is another's by now, saying what can be done.
fn check_token(store: &Store, writing: &Writing) -> Result<()> {
    match store.check_token(&writing.image, Some(writing.token.number)) {
        Err(error) if error.kind() == ErrorKind::Refused => {
            Err(lost_token(&writing.image, writing.token.number))
        }
        checked => checked,
    }
}

/// Refuses a name that an image has.
fn check_new(store: &Store, branch: &ImageName) -> Result<()> {
    match store.version(branch, NumberChoice::Latest) {
        Ok(newest) => Err(Error::refused(format!(
            "{branch} exists, its newest version is {}: publish to a new name",
            newest.name
        ))),
        Err(error) if error.kind() == ErrorKind::Missing => Ok(()),
        Err(error) => Err(error),
    }
}

/// The version that a disk stands on: of its own image, if that has it.
fn base_version(store: &Store, image: &ImageName, base: Score) -> Result<Option<VersionName>> {
    let own = match store.history(image) {
        Err(error) if error.kind() == ErrorKind::Missing => Vec::new(),
        versions => versions?,
    };
    match own.into_iter().find(|version| version.record.score == base) {
        Some(version) => Ok(Some(version.name)),
        None => Ok(store.resolve(&base.to_string())?.version.map(|version| version.name)),
    }
}

fn open_writer(place: &StorePlace) -> Result<Store> {
    let until = Instant::now() + LOCK_TIME;
    loop {
        match Store::open_writer(place) {
            Err(error) if error.kind() == ErrorKind::Transient && Instant::now() < until => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            opened => return opened,
        }
    }
}

fn capture_frozen(
    store: &Store,
    frozen: &Frozen,
    (image, token): (&ImageName, &Token),
    words: &Words,
) -> Result<PublishReport> {
    words.branch.as_ref().map_or(Ok(()), |branch| check_new(store, branch))?;
    let origin = words.branch.as_ref().map(|_| base_version(store, image, frozen.base)).transpose()?;
    let recipe = Recipe::open(frozen.base, store)?;
    let root = *recipe.root();
    let disk = View { device: &*frozen.view, sector_size: root.sector_size };
    let whole = Extent::new(0, root.disk_length);
    let mut data = Vec::new();
    for entry in recipe.entries(whole) {
        let entry = entry?;
        data.extend(matches!(entry.state, State::Data { .. }).then_some(entry.extent));
    }
    data.extend(frozen.changed.iter());
    let data = Extents::from_unsorted(data);
    let (surveyed, consistency) = match survey(&disk, Some(&data), &SurveyOptions::default()) {
        Err(error) if error.kind() == ErrorKind::Refused => {
            let options = SurveyOptions { force: true, ..SurveyOptions::default() };
            (survey(&disk, Some(&data), &options)?, Consistency::Crash)
        }
        surveyed => (surveyed?, Consistency::Clean),
    };
    let notes = surveyed.all_notes().collect();
    let filesystems = filesystems(&surveyed);
    let regions: Vec<_> = surveyed.parts.into_iter().map(|part| part.region).collect();
    let options =
        CaptureOptions { cut_policy: root.cut_policy, domain: root.domain, ..CaptureOptions::default() };
    let entries = |range| recipe.entries(range).collect();
    let base = CaptureBase { entries: &entries, changed: &frozen.changed };
    let session = store.session()?;
    let captured =
        platter_disk::capture::capture(&disk, &regions, Some(&base), &session, options, &mut |_| {})?;
    let draft = VersionRecord {
        token: words.branch.is_none().then_some(token.number),
        cloned_from: origin.flatten(),
        source: format!("live disk of {image}, token {}", token.number),
        cut_policy: options.cut_policy.0,
        disk_length: root.disk_length,
        sector_size: root.sector_size,
        allocated_bytes: captured.counts.allocated,
        filesystems,
        labels: words.labels.clone(),
        consistency,
        notes: words.notes.clone(),
        tool_version: words.tool_version.clone(),
        ..VersionRecord::draft(words.branch.as_ref().unwrap_or(image).clone(), captured.score, unix_ms())
    };
    let version = session.publish(draft)?;
    Ok(PublishReport {
        version: version.name.to_string(),
        score: captured.score.to_string(),
        base: frozen.base.to_string(),
        consistency,
        written_bytes: frozen.changed.total(),
        new_blocks: captured.counts.new_blocks,
        new_raw_bytes: captured.counts.new_raw,
        new_stored_bytes: captured.counts.new_stored,
        attached: words.branch.is_none(),
        seconds: 0.0,
        notes,
    })
}

/// A virtual disk as surveys and captures see disks.
pub(crate) struct View<'a> {
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) sector_size: u32,
}

impl DiskRead for View<'_> {
    fn length(&self) -> u64 {
        self.device.length()
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.device.read(buffer, offset).map_err(std::io::Error::other)
    }
}
