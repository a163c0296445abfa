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
use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};
use platter_store::{Consistency, ImageName, Store, StorePlace, Token, VersionRecord};
use platter_vdisk::{BlockCache, BlockDevice};
use serde::{Deserialize, Serialize};

use super::attach::new_cache;
use super::control::{self, Words};
use super::disk::{Base, Frozen, LiveDisk};
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
/// the edit token is given back.
///
/// # Errors
/// `Refused` when nothing was written, or the token was taken over: what was written is kept. `Missing` when the image
/// has no writable disk. What the store says.
pub fn publish(request: &PublishRequest, progress: &dyn Progress) -> Result<PublishReport> {
    let words = Words {
        labels: request.labels.clone(),
        notes: request.notes.clone(),
        tool_version: request.tool_version.clone(),
    };
    if let Some(server) = control::serving(request.store.dir(), &request.disk)? {
        return server.publish(request.disk.as_str(), &words);
    }
    let (store, disk) = open_detached(&request.store, &request.disk)?;
    let cache = new_cache(CACHE_BYTES)?;
    let mut report = publish_disk(&disk, &request.store, (&store, &cache), &words, progress)?;
    end_editing(&disk, &store)?;
    report.attached = false;
    Ok(report)
}

/// Throws away what was written to a disk that no process serves, and gives the edit token back.
///
/// # Errors
/// `Missing` when the image has no writable disk; `Refused` when a process serves it.
pub fn discard(store: &StorePlace, image: &ImageName) -> Result<u64> {
    let (store, disk) = open_detached(store, image)?;
    let (_, written) = disk.state()?;
    end_editing(&disk, &store)?;
    Ok(written)
}

/// Opens the disk that was left when its process ended.
fn open_detached(place: &StorePlace, image: &ImageName) -> Result<(Arc<Store>, LiveDisk)> {
    let store = Arc::new(Store::open_reader(place)?);
    let token = store.token(image)?.ok_or_else(|| {
        Error::missing(format!("nobody edits {image}: `platter attach --write {image}` begins to"))
    })?;
    let score = store.resolve(image.as_str())?.score;
    let cache = new_cache(CACHE_BYTES)?;
    let disk = LiveDisk::writable(image.to_string(), place, (&store, &cache), (image.clone(), token), score)?;
    Ok((store, disk))
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
    let frozen = disk.freeze()?;
    if frozen.changed.is_empty() {
        return Err(Error::refused(format!("nothing was written to {} since {}", disk.name, frozen.base)));
    }
    progress.begin("publishing", frozen.changed.total());
    let store = open_writer(place)?;
    let mut report = capture_frozen(&store, &frozen, (&writing.image, &writing.token), words)?;
    drop(store);
    reader.refresh()?;
    let score = reader.resolve(&report.version)?.score;
    disk.rebase(Base::open(reader, cache, score)?)?;
    // The last that has the frozen overlay's file open: a filesystem that discards takes seconds to give its space back.
    std::thread::spawn(move || drop(frozen));
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
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
        token: Some(token.number),
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
        ..VersionRecord::draft(image.clone(), captured.score, unix_ms())
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
        attached: true,
        seconds: 0.0,
        notes,
    })
}

/// A virtual disk as surveys and captures see disks.
struct View<'a> {
    device: &'a dyn BlockDevice,
    sector_size: u32,
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
