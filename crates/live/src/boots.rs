//! Boots of a node's disks: detected as they happen, kept while the origin is down, and registered at the origin, so
//! that every node hoards them.
//!
//! Owns the watched disks and the boots that are not registered yet. A disk is watched only while another boot of its
//! version would be useful. A node whose access token may not write registers nothing, so it watches nothing either.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use platter_image::Score;
use platter_records::{BOOT_GAP_MS_MAX, BootSetRecord};
use platter_store::Hoard;
use platter_vdisk::{BlockDevice, Boot, BootWatch};

use platter_fetch::unix_ms;
use platter_jobs::{ObservedBoot, Observer, is_settled};

/// Maximum number of boots that wait for the origin, one per version. If there are more, the oldest is dropped. One takes about 100
/// KiB, at most 1 MiB.
const WAITING_MAX: usize = 32;
/// Pause before a boot is registered again, when the origin is down.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum delay of registering. Each node has another delay, so that of many nodes that boot at the same time, the
/// others learn of the first one's boot.
const SPREAD: Duration = Duration::from_secs(1);
/// Most disks that are watched after their client closed them, until the pause that ends a boot. One takes at most 3 MiB.
const CLOSED_MAX: usize = 32;
/// A version is no longer watched after this many boots that added nothing.
const KNOWN_BOOTS_MAX: u32 = 2;
/// Maximum number of versions for which this count is kept.
const KNOWN_MAX: usize = 4096;

/// The recorder of boots.
pub(super) struct BootRecorder {
    pub(super) observer: Observer,
    pub(super) hoard: Arc<Hoard>,
    /// The delay of this node, up to [`SPREAD`].
    delay: Duration,
    state: Mutex<State>,
    /// Boots are being registered.
    pub(super) is_registering: AtomicBool,
}

#[derive(Default)]
struct State {
    is_forbidden: bool,
    watches: Vec<(Score, Arc<BootWatch>)>,
    waiting: VecDeque<Waiting>,
    /// For each version, the boots that added nothing since the last one that did.
    known: HashMap<Score, KnownBoots>,
}

/// Boots that added nothing.
#[derive(Clone, Copy, Default)]
struct KnownBoots {
    count: u32,
    /// The end of the last one, in milliseconds since 1970.
    ended_unix_ms: i64,
}

/// An unregistered boot.
struct Waiting {
    observed: ObservedBoot,
    due: Instant,
}

impl BootRecorder {
    /// Creates the recorder of a node with this hoard.
    pub(super) fn new(observer: Observer, hoard: Arc<Hoard>) -> Arc<Self> {
        let number = blake3_part(&observer.node);
        let delay = SPREAD * u32::from(number) / u32::from(u8::MAX);
        let (state, is_registering) = Default::default();
        Arc::new(Self { observer, hoard, delay, state, is_registering })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Watches a disk of this version, if another boot of it would be useful.
    pub(super) fn watch(&self, score: Score, disk: &Arc<dyn BlockDevice>) -> Option<Arc<BootWatch>> {
        if !self.wants(score) {
            return None;
        }
        let watch = Arc::new(BootWatch::new(disk.clone()));
        self.state().watches.push((score, watch.clone()));
        Some(watch)
    }

    fn wants(&self, score: Score) -> bool {
        let state = self.state();
        let is_known = state.known.get(&score).is_some_and(|boots| boots.count >= KNOWN_BOOTS_MAX);
        !state.is_forbidden && !is_known && !is_settled(&self.hoard, score)
    }

    /// Sets whether the access token may register boot sets, according to the origin. If not, nothing is watched any
    /// more.
    pub(super) fn set_allowed(&self, is_allowed: bool) {
        let mut state = self.state();
        state.is_forbidden = !is_allowed;
        if !is_allowed {
            state.waiting.clear();
            let watches = std::mem::take(&mut state.watches);
            watches.iter().for_each(|(_, watch)| watch.stop());
        }
    }

    /// Collects boots that have ended. To be called about every second.
    pub(super) fn look(&self) {
        let mut ended = Vec::new();
        let mut closed = 0;
        self.state().watches.retain(|(score, watch)| {
            ended.extend(watch.poll().map(|boot| (*score, boot)));
            // One reference is in this list.
            let is_closed = Arc::strong_count(watch) == 1;
            closed += usize::from(is_closed);
            watch.is_on() && (!is_closed || closed <= CLOSED_MAX && watch.is_observing())
        });
        for (score, boot) in ended {
            self.keep(score, boot);
        }
    }

    /// Keeps a boot until it is registered. Of two boots of one version, keeps the one that read more.
    fn keep(&self, score: Score, boot: Boot) {
        if !self.wants(score) {
            self.stop_watching(score);
            return;
        }
        let observed = ObservedBoot { score, boot, time_unix_ms: unix_ms() };
        let mut state = self.state();
        match state.waiting.iter_mut().find(|waiting| waiting.observed.score == score) {
            Some(waiting) => {
                let size = |it: &ObservedBoot| it.boot.ranges.iter().map(|range| range.length).sum::<u64>();
                if size(&observed) > size(&waiting.observed) {
                    waiting.observed = observed;
                }
            }
            None => {
                if state.waiting.len() >= WAITING_MAX {
                    state.waiting.pop_front();
                }
                state.waiting.push_back(Waiting { observed, due: Instant::now() + self.delay });
            }
        }
    }

    fn stop_watching(&self, score: Score) {
        let watches = &mut self.state().watches;
        for (_, watch) in watches.iter().filter(|(of, _)| *of == score) {
            watch.stop();
        }
        watches.retain(|(of, _)| *of != score);
    }

    pub(super) fn has_due(&self) -> bool {
        let now = Instant::now();
        self.state().waiting.iter().any(|waiting| waiting.due <= now)
    }

    pub(super) fn take_due(&self) -> Option<ObservedBoot> {
        let (now, mut state) = (Instant::now(), self.state());
        let at = state.waiting.iter().position(|waiting| waiting.due <= now)?;
        state.waiting.remove(at).map(|waiting| waiting.observed)
    }

    /// Whether this node observed a boot of this version, so its cache has the boot's blocks.
    pub(super) fn has_observed(&self, record: &BootSetRecord) -> bool {
        record.nodes.contains(&self.observer.mark(record.score))
    }

    /// Postpones a boot, because the origin is down.
    pub(super) fn postpone(&self, observed: ObservedBoot) {
        let mut state = self.state();
        let is_superseded = state.waiting.iter().any(|waiting| waiting.observed.score == observed.score);
        if !is_superseded && !state.is_forbidden && state.waiting.len() < WAITING_MAX {
            state.waiting.push_back(Waiting { observed, due: Instant::now() + RETRY });
        }
    }

    /// Notes that this boot added nothing. Pieces of one boot count once.
    pub(super) fn note_known(&self, observed: &ObservedBoot) {
        let mut state = self.state();
        let known = state.known_boots(observed.score);
        let begin = observed.time_unix_ms.saturating_sub_unsigned(observed.boot.duration_ms);
        if known.count == 0 || begin > known.ended_unix_ms.saturating_add(BOOT_GAP_MS_MAX) {
            known.count += 1;
        }
        known.ended_unix_ms = observed.time_unix_ms;
        drop(state);
        self.stop_if_unwanted(observed.score);
    }

    /// Notes that this boot was added, so the set was incomplete and may still be.
    pub(super) fn note_added(&self, observed: &ObservedBoot) {
        self.state().known.remove(&observed.score);
    }

    /// Notes that boots of this version cannot be registered.
    pub(super) fn note_refused(&self, score: Score) {
        self.state().known_boots(score).count = KNOWN_BOOTS_MAX;
        self.stop_if_unwanted(score);
    }

    fn stop_if_unwanted(&self, score: Score) {
        if !self.wants(score) {
            self.stop_watching(score);
        }
    }
}

impl State {
    fn known_boots(&mut self, score: Score) -> &mut KnownBoots {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.entry(score).or_default()
    }
}

/// A number from 0 to 255, different for most texts.
fn blake3_part(text: &str) -> u8 {
    platter_image::BlockId::of(platter_image::Kind::Data, text.as_bytes()).0[0]
}

#[cfg(test)]
mod tests {
    use platter_image::{BlockId, Extent};
    use platter_store::StorePlace;

    use platter_image::Result;

    use super::*;

    fn recorder() -> (tempfile::TempDir, Arc<BootRecorder>) {
        let folder = tempfile::tempdir().unwrap();
        let hoard = Hoard::open(&StorePlace::on_system(folder.path())).unwrap();
        let observer = Observer { node: "node".into(), tool_version: String::new() };
        (folder, BootRecorder::new(observer, hoard))
    }

    fn score(number: u8) -> Score {
        Score(BlockId([number; 32]))
    }

    fn boot(bytes: u64) -> Boot {
        Boot { ranges: vec![Extent::new(0, bytes)], ..Boot::default() }
    }

    fn disk() -> Arc<dyn BlockDevice> {
        struct Empty;
        impl BlockDevice for Empty {
            fn length(&self) -> u64 {
                1 << 30
            }

            fn read(&self, _buffer: &mut [u8], _offset: u64) -> Result<()> {
                Ok(())
            }

            fn extents(
                &self,
                _range: Extent,
                _visit: &mut dyn FnMut(Extent, platter_vdisk::Allocation) -> bool,
            ) -> Result<()> {
                Ok(())
            }
        }
        Arc::new(Empty)
    }

    fn waiting(recorder: &BootRecorder) -> Vec<(Score, u64)> {
        let state = recorder.state();
        state.waiting.iter().map(|it| (it.observed.score, it.observed.boot.ranges[0].length)).collect()
    }

    #[test]
    fn waiting_boots_are_limited_to_one_per_version() {
        let (_folder, recorder) = recorder();
        for bytes in [10, 30, 20] {
            recorder.keep(score(1), boot(bytes));
        }
        assert_eq!(waiting(&recorder), [(score(1), 30)], "the boot that read most");
        for number in 2..100 {
            recorder.keep(score(number), boot(1));
        }
        let kept = waiting(&recorder);
        assert_eq!((kept.len(), kept[WAITING_MAX - 1].0), (WAITING_MAX, score(99)), "the newest");
    }

    #[test]
    fn a_boot_that_could_not_be_registered_is_retried_later() {
        let (_folder, recorder) = recorder();
        recorder.keep(score(1), boot(1));
        assert!(!recorder.has_due(), "other nodes may be faster");
        recorder.state().waiting[0].due = Instant::now();
        let observed = recorder.take_due().unwrap();
        assert_eq!(waiting(&recorder), []);
        recorder.postpone(observed.clone());
        assert!(!recorder.has_due() && waiting(&recorder) == [(score(1), 1)]);
        recorder.keep(score(1), boot(7));
        recorder.postpone(observed);
        assert_eq!(waiting(&recorder), [(score(1), 7)], "the newer one stays");
    }

    #[test]
    fn disks_are_watched_while_that_is_useful() {
        let (_folder, recorder) = recorder();
        let watch = recorder.watch(score(1), &disk()).unwrap();
        recorder.look();
        assert!(watch.is_on());
        let known = |time_unix_ms| {
            recorder.note_known(&ObservedBoot { score: score(1), boot: boot(1), time_unix_ms });
        };
        known(1);
        known(BOOT_GAP_MS_MAX);
        assert!(watch.is_on(), "pieces of one boot that added nothing");
        recorder.note_added(&ObservedBoot { score: score(1), boot: boot(1), time_unix_ms: BOOT_GAP_MS_MAX });
        known(3 * BOOT_GAP_MS_MAX);
        assert!(watch.is_on(), "one boot that added nothing is not enough");
        known(5 * BOOT_GAP_MS_MAX);
        assert!(!watch.is_on() && recorder.watch(score(1), &disk()).is_none());
        let other = recorder.watch(score(2), &disk()).unwrap();
        recorder.keep(score(2), boot(1));
        recorder.set_allowed(false);
        assert!(!other.is_on() && waiting(&recorder).is_empty(), "the token may only read");
        recorder.keep(score(2), boot(1));
        assert!(waiting(&recorder).is_empty() && recorder.watch(score(3), &disk()).is_none());
        recorder.set_allowed(true);
        let gone = recorder.watch(score(3), &disk());
        assert!(gone.is_some());
        drop(gone);
        recorder.look();
        assert_eq!(recorder.state().watches.len(), 0, "no client uses the disk any more");
        // A boot may end when its disk is closed.
        for opened in 1..=CLOSED_MAX + 2 {
            let closed = recorder.watch(score(3), &disk()).unwrap();
            closed.read(&mut [0; 4096], 0).unwrap();
            drop(closed);
            recorder.look();
            assert_eq!(recorder.state().watches.len(), opened.min(CLOSED_MAX));
        }
    }
}
