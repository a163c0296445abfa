//! Fills the cache with a whole disk: every page and block is copied from the hoard of this machine, or fetched with lower
//! priority than readers, pinned, and made durable. Only then is the disk reported as fully local.
//!
//! With peers, a fill waits for no particular block: nodes that are filled at the same time fetch different parts from
//! the origin, and then exchange them. In disk order, all would wait for the same node.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use platter_api::FillStatus;
use platter_cache::{Cache, PinName};
use platter_image::frame::{FrameDecoder, Verify};
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Error, Extent, FrameIndex, IoContext, Kind, Result, Score};
use platter_store::Hoard;

use super::source::{CachedSource, Want};

/// Blocks fetched at a time while a reader is active.
const BATCH_BESIDE: usize = 16;
/// Blocks announced at a time when no reader is active: enough that each of many peers is the home of some.
const WINDOW: usize = 16384;
/// Interval of checks for arrived blocks; after this time without any, one is requested directly.
const GATHER_LOOK: Duration = Duration::from_millis(200);
const GATHER_PATIENCE: Duration = Duration::from_secs(2);
/// A reader counts as active this long after it waited.
const MOMENT: Duration = Duration::from_secs(1);
/// Longest pause before each batch in favour of a waiting reader.
const WAY_TIME_MAX: Duration = Duration::from_millis(500);
/// Interval of checks whether a reader waits, or whether to end.
const LOOK: Duration = Duration::from_millis(5);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(3);
/// Interval of checks whether a filled disk is still complete.
const WATCH: Duration = Duration::from_secs(5);
/// How many times blocks that were dropped meanwhile are fetched again.
const ROUNDS_MAX: usize = 8;
/// The beginning of the names of all sets of pins of filled disks.
pub const PINS_PREFIX: &str = "disk-";

/// The filling of a disk.
pub struct Fill {
    score: Score,
    /// The hoard of this machine, which is asked first.
    hoard: Option<Arc<Hoard>>,
    status: Mutex<FillStatus>,
    stop: AtomicBool,
    /// Held while pins are made, so that none are made after a stop.
    pinning: Mutex<()>,
}

/// Called when a disk is filled.
pub type OnFilled = Box<dyn Fn() + Send>;

impl Fill {
    /// Prepares a fill; starts nothing.
    pub fn new(score: Score, hoard: Option<Arc<Hoard>>) -> Arc<Self> {
        Arc::new(Self {
            score,
            hoard,
            status: Mutex::default(),
            stop: AtomicBool::new(false),
            pinning: Mutex::default(),
        })
    }

    /// Starts filling in a thread of its own, which ends after [`Fill::stop`].
    ///
    /// # Errors
    /// `Io` when no thread can be started.
    pub fn start(
        source: Arc<CachedSource>,
        score: Score,
        hoard: Option<Arc<Hoard>>,
        on_filled: OnFilled,
    ) -> Result<Arc<Self>> {
        let fill = Self::new(score, hoard);
        let running = fill.clone();
        thread::Builder::new()
            .name("fill".to_owned())
            .spawn(move || running.run(&source, &*on_filled))
            .context(|| "starting the thread of a fill".to_owned())?;
        Ok(fill)
    }

    /// Fills once, while `look` sees the progress; its error ends the fill soon. All of the disk is durable and pinned on return.
    ///
    /// # Errors
    /// Those of `look`; `Missing` when a block was found nowhere; `Transient` when the origin is down; `Refused` when the cache
    /// cannot hold the disk; `Io`.
    pub fn once(&self, source: &CachedSource, look: &mut dyn FnMut(&FillStatus) -> Result<()>) -> Result<()> {
        thread::scope(|scope| {
            let fill = || self.fill(source);
            let filling = thread::Builder::new().name("fill".to_owned()).spawn_scoped(scope, fill);
            let filling = filling.context(|| "starting the thread of a fill".to_owned())?;
            let mut looked = Ok(());
            while !filling.is_finished() && looked.is_ok() {
                thread::sleep(LOOK * 10);
                looked = look(&self.status());
            }
            if looked.is_err() {
                self.stop();
            }
            let filled = filling.join().unwrap_or_else(|_| Err(Error::bug("the thread of a fill panicked")));
            looked.and(filled)?;
            match self.is_stopped() {
                true => Err(Error::transient("the fill was stopped")),
                false => Ok(()),
            }
        })
    }

    /// The disk that is filled.
    pub fn score(&self) -> Score {
        self.score
    }

    /// Returns its progress.
    pub fn status(&self) -> FillStatus {
        self.status.lock().clone()
    }

    /// Ends it soon. Held blocks and pins stay.
    pub fn stop(&self) {
        let _pinning = self.pinning.lock();
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run(&self, source: &CachedSource, on_filled: &dyn Fn()) {
        let mut told = false;
        while !self.is_stopped() {
            match self.fill(source) {
                Ok(()) if self.is_stopped() => {}
                Ok(()) => {
                    if !std::mem::replace(&mut told, true) {
                        on_filled();
                    }
                    self.watch(source.node().cache());
                }
                Err(error) => {
                    self.status.lock().trouble = Some(error.with_causes());
                    self.sleep(PAUSE);
                }
            }
        }
    }

    /// Fills the disk once. Returns when all of it is durable, or when it was stopped.
    fn fill(&self, source: &CachedSource) -> Result<()> {
        let cache = source.node().cache();
        let pages = Pages { source, hoard: self.hoard.as_deref() };
        let wanted = contents(&pages, self.score)?;
        let ids: Vec<BlockId> = wanted.iter().map(|(_, id)| *id).collect();
        let set = pin_name(self.score)?;
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        {
            let _pinning = self.pinning.lock();
            if self.is_stopped() {
                return Ok(());
            }
            if cache.pinned(&set).ok().flatten() != Some(sorted) {
                cache.pin(&set, &ids)?;
            }
        }
        for _ in 0..ROUNDS_MAX {
            let mut missing: Vec<_> = wanted.iter().filter(|(_, id)| !cache.holds(id)).copied().collect();
            self.copy_hoarded(source, &missing)?;
            missing.retain(|(_, id)| !cache.holds(id));
            *self.status.lock() = FillStatus {
                blocks: wanted.len() as u64,
                held: (wanted.len() - missing.len()) as u64,
                ..FillStatus::default()
            };
            if missing.is_empty() {
                cache.sync()?;
                // A failed sync drops frames that may be lost, and damage drops frames as well.
                if ids.iter().all(|id| cache.holds(id)) {
                    self.status.lock().filled = true;
                    return Ok(());
                }
            }
            self.fetch_all(source, &missing)?;
            if self.is_stopped() {
                return Ok(());
            }
        }
        Err(Error::transient("parts of the disk are evicted from the cache as fast as they are fetched"))
    }

    /// Copies into the cache what the hoard has of these: a hoard may change, and what is filled must not depend on it. What cannot be
    /// read there, or is not accepted by the cache, is left to be fetched.
    fn copy_hoarded(&self, source: &CachedSource, missing: &[(Kind, BlockId)]) -> Result<()> {
        let Some(hoard) = &self.hoard else { return Ok(()) };
        // After a failure, the previous view of the hoard stays valid.
        let _ = hoard.refresh();
        let (mut decoder, mut stored) = (FrameDecoder::new()?, Vec::new());
        for (_, id) in missing {
            if self.is_stopped() {
                return Ok(());
            }
            // Its frame may have come with another block.
            if source.node().cache().holds(id) {
                continue;
            }
            let Ok(Some(place)) = hoard.locate(id) else { continue };
            let read = hoard.read_frame(place.frame, &mut stored);
            if let Ok((header, _)) = read.and_then(|()| decoder.decode(&stored, Verify::Hashes)) {
                source.node().put(&stored, &header);
            }
        }
        Ok(())
    }

    fn fetch_all(&self, source: &CachedSource, missing: &[(Kind, BlockId)]) -> Result<()> {
        let cache = source.node().cache();
        let mut rest = missing;
        while !rest.is_empty() && !self.is_stopped() {
            self.give_way(source);
            let alone = !source.node().has_readers(MOMENT);
            if alone {
                rest = &rest[self.gather(source, rest)?..];
                continue;
            }
            let (now, after) = rest.split_at(rest.len().min(BATCH_BESIDE));
            source.will_fill(now);
            let lacking = now.iter().filter(|(_, id)| !cache.holds(id)).count();
            for (kind, id) in now {
                if self.is_stopped() {
                    return Ok(());
                }
                find_for_good(source, *kind, id)?;
            }
            self.status.lock().held += lacking as u64;
            rest = after;
        }
        Ok(())
    }

    /// Announces blocks, up to a window ahead of the arrived ones, until all are held or a reader waits. Returns how
    /// many are held, from the first on.
    fn gather(&self, source: &CachedSource, rest: &[(Kind, BlockId)]) -> Result<usize> {
        let cache = source.node().cache();
        let (mut told, mut waited) = (0, Duration::ZERO);
        // Places in `rest`, in order.
        let mut coming: Vec<usize> = Vec::new();
        loop {
            let before = coming.len();
            coming.retain(|at| !cache.holds(&rest[*at].1));
            let came = before - coming.len();
            self.status.lock().held += came as u64;
            let first = coming.first().copied().unwrap_or(told);
            let is_over = coming.is_empty() && told == rest.len();
            if is_over || self.is_stopped() || source.node().has_readers(MOMENT) {
                return Ok(first);
            }
            let more = told..rest.len().min(told + WINDOW - coming.len());
            source.will_fill(&rest[more.clone()]);
            coming.extend(more.clone());
            told = more.end;
            waited = if came > 0 { Duration::ZERO } else { waited + GATHER_LOOK };
            if waited >= GATHER_PATIENCE {
                // The hint may have been ignored, or the fetch failed: requesting the block directly reports the error.
                waited = Duration::ZERO;
                let (kind, id) = rest[first];
                find_for_good(source, kind, &id)?;
                let again: Vec<_> = coming.iter().map(|at| rest[*at]).collect();
                source.will_fill(&again);
            }
            self.sleep(GATHER_LOOK);
        }
    }

    /// Lets a waiting reader go first, for a limited time.
    fn give_way(&self, source: &CachedSource) {
        let mut waited = Duration::ZERO;
        while source.node().is_waited_for() && waited < WAY_TIME_MAX && !self.is_stopped() {
            thread::sleep(LOOK);
            waited += LOOK;
        }
    }

    /// Returns when the cache has dropped something that may belong to the disk.
    fn watch(&self, cache: &Cache) {
        let losses = |cache: &Cache| (cache.counts().damaged, cache.counts().write_failures);
        let before = losses(cache);
        while !self.is_stopped() && losses(cache) == before {
            self.sleep(WATCH);
        }
    }

    fn sleep(&self, time: Duration) {
        let mut slept = Duration::ZERO;
        while slept < time && !self.is_stopped() {
            thread::sleep(LOOK * 10);
            slept += LOOK * 10;
        }
    }
}

/// Makes the cache hold a block or page.
///
/// # Errors
/// `Missing` when it was not found anywhere; `Refused` when the cache does not accept it; the errors of fetching.
fn find_for_good(source: &CachedSource, kind: Kind, id: &BlockId) -> Result<()> {
    if !source.fetch(kind, id)? {
        return Err(Error::missing(format!("{kind:?} {id} was not found anywhere")));
    }
    if source.node().cache().holds(id) {
        return Ok(());
    }
    Err(Error::refused("the cache cannot hold all of the disk: its limit is too small, or writing failed"))
}

/// The name of the pin set that keeps a filled disk in the cache.
///
/// # Errors
/// Never, because a score's digits are a valid name.
pub fn pin_name(score: Score) -> Result<PinName> {
    format!("{PINS_PREFIX}{score}").parse()
}

/// Reads a recipe's pages for a fill: from the hoard first, yields to readers, and does not count as one.
struct Pages<'a> {
    source: &'a CachedSource,
    hoard: Option<&'a Hoard>,
}

impl PageSource for Pages<'_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let hoarded = self.hoard.filter(|hoard| hoard.holds(id)).and_then(|hoard| hoard.page(id).ok());
        hoarded.map_or_else(|| self.source.page_for(id, Want::Fill), Ok)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        let is_absent = |id: &&BlockId| self.hoard.is_none_or(|hoard| !hoard.holds(id));
        self.source.will_need_pages(&ids.iter().filter(is_absent).copied().collect::<Vec<_>>());
    }
}

/// Returns all pages and blocks of a disk, each once: pages first, then blocks in disk order.
fn contents(pages: &Pages<'_>, score: Score) -> Result<Vec<(Kind, BlockId)>> {
    let recipe = Recipe::open(score, pages)?;
    let whole = Extent::new(0, recipe.root().disk_length);
    let (mut seen, mut wanted) = (HashSet::new(), Vec::new());
    recipe.visit_pages(whole, &mut |id| {
        if seen.insert(*id) {
            wanted.push((Kind::Page, *id));
        }
        Ok(())
    })?;
    for entry in recipe.entries(whole) {
        if let State::Data { block, .. } = entry?.state
            && seen.insert(block)
        {
            wanted.push((Kind::Data, block));
        }
    }
    Ok(wanted)
}
