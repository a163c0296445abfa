//! Fills the cache with a whole disk: every page and block is fetched with lower priority than readers, pinned, and
//! made durable. Only then is the disk reported as fully local.
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
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Error, Extent, IoContext, Kind, Result, Score};

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
    status: Mutex<FillStatus>,
    stop: AtomicBool,
    /// Held while pins are made, so that none are made after a stop.
    pinning: Mutex<()>,
}

/// Called when a disk is filled.
pub type OnFilled = Box<dyn Fn() + Send>;

impl Fill {
    /// Starts filling in a thread of its own, which ends after [`Fill::stop`].
    ///
    /// # Errors
    /// `Io` when no thread can be started.
    pub fn start(source: Arc<CachedSource>, score: Score, on_filled: OnFilled) -> Result<Arc<Self>> {
        let fill = Arc::new(Self {
            score,
            status: Mutex::default(),
            stop: AtomicBool::new(false),
            pinning: Mutex::default(),
        });
        let running = fill.clone();
        thread::Builder::new()
            .name("fill".to_owned())
            .spawn(move || running.run(&source, &*on_filled))
            .context(|| "starting the thread of a fill".to_owned())?;
        Ok(fill)
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
        let wanted = contents(source, self.score)?;
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
            let missing: Vec<_> = wanted.iter().filter(|(_, id)| !cache.holds(id)).copied().collect();
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

/// Reads a recipe's pages for a fill: yields to readers, and does not count as one.
struct Pages<'a>(&'a CachedSource);

impl PageSource for Pages<'_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.0.page_for(id, Want::Fill)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.0.will_need_pages(ids);
    }
}

/// Returns all pages and blocks of a disk, each once: pages first, then blocks in disk order.
fn contents(source: &CachedSource, score: Score) -> Result<Vec<(Kind, BlockId)>> {
    let pages = Pages(source);
    let recipe = Recipe::open(score, &pages)?;
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
