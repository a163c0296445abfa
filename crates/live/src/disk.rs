//! One live disk: a version, the overlays of its writer above it, and the device that exports serve.
//!
//! While a disk is published, its overlay is frozen and another is put on top; afterwards the new one is above the new
//! version, and the frozen one is removed. After a failed publish there are two, which still form one disk.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platter_image::{Domain, Error, Extent, Extents, Result, Score};
use platter_records::{EditLock, ImageName};
use platter_vdisk::{Allocation, BlockDevice, BootWatch, Overlay, OverlayOptions, WatchPause};

use super::overlays::{Overlays, boot_id};
use super::place::LivePlace;
use super::sources::Sources;

/// Most overlays on top of each other: this many attempts to publish can fail with writes in between; later ones reuse
/// the frozen overlays.
const OVERLAYS_MAX: usize = 16;

/// A served disk.
pub(super) struct LiveDisk {
    /// Its name in exports.
    pub(super) name: String,
    length: u64,
    writing: Option<Writing>,
    layers: RwLock<Option<Layers>>,
    /// Whether clients may use it. Changed under the lock on `layers`.
    open: AtomicBool,
    /// Held during publishing, which is done once at a time.
    publishing: Mutex<()>,
}

/// The right to write, and the overlays.
pub(super) struct Writing {
    pub(super) image: ImageName,
    pub(super) edit_lock: EditLock,
    /// The identity domain of the store, and so of the overlays.
    domain: Domain,
    overlays: Mutex<Option<Overlays>>,
}

/// The layers of the disk, from the bottom.
struct Layers {
    base: Base,
    /// The overlays with their numbers; the last one takes the writes.
    overlays: Vec<(u64, Arc<Overlay>)>,
}

/// The version at the bottom.
#[derive(Clone)]
pub(super) struct Base {
    pub(super) score: Score,
    pub(super) device: Arc<dyn BlockDevice>,
    /// The identity domain of its blocks.
    domain: Domain,
    /// Detects its boots, if enabled; part of `device`.
    watch: Option<Arc<BootWatch>>,
}

/// While this is held, no other thread publishes the disk.
pub(super) struct Publishing<'a> {
    _one: MutexGuard<'a, ()>,
    /// Publishing also reads the disk, which must not count as a boot.
    _pause: Option<WatchPause>,
}

/// A frozen state of a disk, which is no longer written.
pub(super) struct Frozen {
    pub(super) base: Score,
    pub(super) view: Arc<dyn BlockDevice>,
    /// The changed ranges above the base.
    pub(super) changed: Extents,
    /// The last is the source text of a version made from it. The others are the source texts of earlier attempts: this disk
    /// still contains everything that they may have published.
    pub(super) sources: Vec<String>,
    /// Nothing has been written above it yet.
    pub(super) is_whole: bool,
}

impl Base {
    pub(super) fn open(sources: &Sources, score: Score) -> Result<Self> {
        let disk = sources.disk(score)?;
        let domain = disk.domain();
        let disk: Arc<dyn BlockDevice> = Arc::new(disk);
        let watch = sources.boots().and_then(|boots| boots.watch(score, &disk));
        let device = watch.clone().map_or(disk, |watch| watch);
        Ok(Self { score, device, domain, watch })
    }
}

impl Layers {
    fn top(&self) -> Arc<dyn BlockDevice> {
        match self.overlays.last() {
            Some((_, overlay)) => overlay.clone(),
            None => self.base.device.clone(),
        }
    }

    fn changed(&self) -> Extents {
        changed(&self.overlays)
    }
}

/// The ranges that any of these overlays contains.
fn changed(overlays: &[(u64, Arc<Overlay>)]) -> Extents {
    let dirty = overlays.iter().flat_map(|(_, overlay)| overlay.dirty().iter().copied().collect::<Vec<_>>());
    Extents::from_unsorted(dirty.collect())
}

impl LiveDisk {
    /// Creates a read-only disk.
    pub(super) fn read_only(name: String, base: Base) -> Self {
        Self {
            name,
            length: base.device.length(),
            writing: None,
            layers: RwLock::new(Some(Layers { base, overlays: Vec::new() })),
            open: AtomicBool::new(true),
            publishing: Mutex::new(()),
        }
    }

    /// Opens a writable disk under this edit lock: above `score`, or above the version below the existing
    /// overlays.
    pub(super) fn writable(
        name: String,
        place: &LivePlace,
        sources: &Sources,
        (image, edit_lock): (ImageName, EditLock),
        score: Score,
    ) -> Result<Self> {
        let overlays = Overlays::lock(place.dir(), &image, edit_lock.number)?;
        Self::on_overlays(name, overlays, sources, (image, edit_lock), score)
    }

    /// As [`LiveDisk::writable`], with locked overlays.
    pub(super) fn on_overlays(
        name: String,
        overlays: Overlays,
        sources: &Sources,
        (image, edit_lock): (ImageName, EditLock),
        score: Score,
    ) -> Result<Self> {
        let layers = open_layers(&overlays, sources, edit_lock.number, score)?;
        let domain = layers.base.domain;
        Ok(Self {
            name,
            length: layers.base.device.length(),
            writing: Some(Writing { image, edit_lock, domain, overlays: Mutex::new(Some(overlays)) }),
            layers: RwLock::new(Some(layers)),
            open: AtomicBool::new(true),
            publishing: Mutex::new(()),
        })
    }

    pub(super) fn writing(&self) -> Option<&Writing> {
        self.writing.as_ref()
    }

    /// Returns the score at the bottom, and the bytes written above it.
    pub(super) fn state(&self) -> Result<(Score, u64)> {
        let layers = self.layers();
        let layers = layers.as_ref().ok_or_else(detached)?;
        Ok((layers.base.score, layers.changed().total()))
    }

    /// Whether it is being published.
    pub(super) fn is_publishing(&self) -> bool {
        self.publishing.try_lock().is_none()
    }

    /// Waits for another thread's publishing to end, and blocks others.
    pub(super) fn publishing(&self) -> Publishing<'_> {
        let one = self.publishing.lock();
        let watch = self.layers().as_ref().and_then(|layers| layers.base.watch.clone());
        Publishing { _one: one, _pause: watch.map(|watch| watch.pause()) }
    }

    /// Freezes the disk: puts a new overlay above the current writes. A frozen, unpublished overlay is reused if
    /// nothing was written above it, or the limit of overlays is reached.
    pub(super) fn freeze(&self) -> Result<Frozen> {
        let writing =
            self.writing.as_ref().ok_or_else(|| Error::refused(format!("{} is read-only", self.name)))?;
        let mut layers = self.layers_mut();
        let layers = layers.as_mut().ok_or_else(detached)?;
        let base = layers.base.score;
        let (view, all) = (layers.top(), layers.changed());
        view.flush()?;
        if all.is_empty() {
            return Ok(Frozen { base, view, changed: all, sources: Vec::new(), is_whole: true });
        }
        let frozen = |view, changed, is_whole, overlays: &[_]| {
            let sources = writing.sources(overlays)?;
            Ok(Frozen { base, view, changed, sources, is_whole })
        };
        if let [below @ .., (_, top)] = &layers.overlays[..]
            && let Some((_, newest)) = below.last()
        {
            let is_whole = top.dirty().is_empty();
            if is_whole || layers.overlays.len() >= OVERLAYS_MAX {
                return frozen(newest.clone() as _, changed(below), is_whole, &layers.overlays);
            }
        }
        let number = layers.overlays.last().map_or(0, |(number, _)| *number) + 1;
        let options = overlay_options(base, writing.edit_lock.number, writing.domain)?;
        let overlay = writing.with_overlays(|overlays| {
            Overlay::create(overlays.vfs(), &overlays.path(number), &options, view.clone())
        })?;
        layers.overlays.push((number, Arc::new(overlay)));
        frozen(view, all, true, &layers.overlays)
    }

    /// Puts the disk above the new version that contains the frozen overlays, and removes these.
    pub(super) fn rebase(&self, base: Base) -> Result<()> {
        let Some(writing) = &self.writing else { return Ok(()) };
        let mut layers = self.layers_mut();
        let layers = layers.as_mut().ok_or_else(detached)?;
        let Some((number, top)) = layers.overlays.pop() else { return Ok(()) };
        top.rebase(base.score, base.device.clone())?;
        layers.base = base;
        for (frozen, _) in std::mem::replace(&mut layers.overlays, vec![(number, top)]) {
            writing.with_overlays(|overlays| overlays.remove(frozen))?;
        }
        Ok(())
    }

    /// Allows or forbids use by clients. On return, no request is under way that was admitted before.
    pub(super) fn set_open(&self, open: bool) {
        let _alone = self.layers_mut();
        self.open.store(open, Ordering::Relaxed);
    }

    /// Whether clients may use it.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Ends all use of the disk: requests fail from now on. Its writes are durable.
    pub(super) fn detach(&self) -> Result<()> {
        match self.layers_mut().take() {
            Some(layers) => layers.top().flush(),
            None => Ok(()),
        }
    }

    fn layers(&self) -> RwLockReadGuard<'_, Option<Layers>> {
        self.layers.read()
    }

    fn layers_mut(&self) -> RwLockWriteGuard<'_, Option<Layers>> {
        self.layers.write()
    }

    fn on_top<T>(&self, act: impl FnOnce(&dyn BlockDevice) -> Result<T>) -> Result<T> {
        let layers = self.layers();
        let layers = layers.as_ref().filter(|_| self.open.load(Ordering::Relaxed)).ok_or_else(detached)?;
        match layers.overlays.last() {
            Some((_, overlay)) => act(&**overlay),
            None => act(&*layers.base.device),
        }
    }
}

impl Writing {
    /// The source texts of versions made from this disk: one for each overlay above the lowest, for everything below that
    /// overlay; the last is for the overlays that are frozen now. The text contains the id of the overlay above, which was
    /// created when those below were frozen. A disk without it, for example from a backup, may lack published changes.
    fn sources(&self, overlays: &[(u64, Arc<Overlay>)]) -> Result<Vec<String>> {
        let id = |number: u64| -> Result<u64> {
            let id = self.with_overlays(|overlays| overlays.header(number))?.id;
            Ok(u64::from_le_bytes(std::array::from_fn(|at| id[at])))
        };
        let [(lowest, _), above @ ..] = overlays else { return Ok(Vec::new()) };
        let (image, edit_lock, lowest) = (&self.image, self.edit_lock.number, id(*lowest)?);
        let source = |(number, _): &(u64, _)| {
            Ok(format!(
                "live disk of {image}, edit lock {edit_lock}, overlay {lowest:016x} below {:016x}",
                id(*number)?
            ))
        };
        above.iter().map(source).collect()
    }

    fn with_overlays<T>(&self, act: impl FnOnce(&Overlays) -> Result<T>) -> Result<T> {
        let overlays = self.overlays.lock();
        act(overlays.as_ref().ok_or_else(detached)?)
    }

    /// Removes all overlays: their contents are in a version, or not wanted.
    pub(super) fn remove_overlays(&self) -> Result<()> {
        let overlays = self.overlays.lock().take();
        overlays.map_or(Ok(()), Overlays::remove_all)
    }
}

fn detached() -> Error {
    Error::refused("the disk was detached")
}

fn overlay_options(base_score: Score, edit_lock: u64, domain: Domain) -> Result<OverlayOptions> {
    Ok(OverlayOptions { base_score, domain, edit_lock, boot_id: boot_id()? })
}

fn open_layers(overlays: &Overlays, sources: &Sources, edit_lock: u64, score: Score) -> Result<Layers> {
    let mut numbers = overlays.numbers()?;
    let score_of = |number: u64| overlays.header(number).map(|header| header.base_score);
    let score = match numbers.last() {
        Some(last) => score_of(*last)?,
        None => score,
    };
    // The newest overlay is already above a version: the lower ones were published, but not removed yet.
    let obsolete = |number: &u64| -> Result<bool> { Ok(score_of(*number)? != score) };
    while let Some(number) = numbers.first().copied().filter(|_| numbers.len() > 1) {
        if !obsolete(&number)? {
            break;
        }
        overlays.remove(number)?;
        numbers.remove(0);
    }
    let mut layers = Layers { base: Base::open(sources, score)?, overlays: Vec::new() };
    let options = overlay_options(score, edit_lock, layers.base.domain)?;
    if numbers.is_empty() {
        let overlay = Overlay::create(overlays.vfs(), &overlays.path(1), &options, layers.top())?;
        layers.overlays.push((1, Arc::new(overlay)));
    }
    for number in numbers {
        let overlay = Overlay::open(overlays.vfs(), &overlays.path(number), &options, layers.top())?;
        layers.overlays.push((number, Arc::new(overlay)));
    }
    Ok(layers)
}

impl BlockDevice for LiveDisk {
    fn length(&self) -> u64 {
        self.length
    }

    fn is_writable(&self) -> bool {
        self.writing.is_some()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.on_top(|top| top.read(buffer, offset))
    }

    fn is_near(&self, range: Extent) -> Option<bool> {
        self.on_top(|top| Ok(top.is_near(range))).ok().flatten()
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.on_top(|top| top.write(bytes, offset))
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.on_top(|top| top.write_zeroes(range))
    }

    fn flush(&self) -> Result<()> {
        self.on_top(|top| top.flush())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.on_top(|top| top.extents(range, visit))
    }
}
