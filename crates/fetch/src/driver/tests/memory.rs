//! Memory use of a node that fetches more than fits into its memory, for example the hoard.

use std::sync::OnceLock;

use super::*;
use crate::driver::shelf::ShelfLimits;

/// The length of a request to a near origin.
const REQUEST: u64 = 1 << 20;
const LIMITS: ShelfLimits =
    ShelfLimits { bytes_max: 8 << 20, read_bytes_max: 1 << 19, ahead_bytes_max: 2 << 20 };

/// An origin that measures, after each frame, how many bytes the node has in memory.
struct Measuring {
    below: Arc<Origin>,
    fetcher: OnceLock<std::sync::Weak<Fetcher>>,
    peak: AtomicU64,
}

impl OriginFrames for Measuring {
    fn fetch(&self, request: &FramesRequest, take: &mut TakeFrame<'_>) -> Result<Vec<BlockId>> {
        self.below.fetch(request, &mut |header, stored| {
            let taken = take(header, stored);
            if let Some(fetcher) = self.fetcher.get().and_then(std::sync::Weak::upgrade) {
                let bytes = fetcher.shared().look(|machine| machine.shelf.bytes());
                self.peak.fetch_max(bytes, Ordering::SeqCst);
            }
            taken
        })
    }
}

#[test]
fn what_is_announced_at_once_is_fetched_once_and_little_of_it_is_in_memory() {
    let universe = Universe::new(7, 6000);
    let below = Origin::of(&universe);
    let (fetcher, peak) = Default::default();
    let origin = Arc::new(Measuring { below: below.clone(), fetcher, peak });
    let peers = Fetcher::with_limits(origin.clone(), None, LIMITS);
    origin.fetcher.set(Arc::downgrade(&peers)).unwrap();
    let held = Memory::default();
    let source = source(&peers, &universe);
    // The pages: from then on the groups of all blocks are known.
    let disk = Disk { source: &source, held: &held };
    let recipe = Recipe::open(universe.score, &disk).unwrap();
    assert_eq!(recipe.entries(Extent::new(0, recipe.root().disk_length)).count(), universe.ids.len());
    let before = below.bytes.load(Ordering::SeqCst);
    source.will_fetch(Kind::Data, &universe.ids);
    // The reader returns to frames of which it read a part, and is slower than the origin.
    for (at, ids) in universe.ids.chunks(64).enumerate() {
        for n in (0..ids.len()).step_by(2).chain((1..ids.len()).step_by(2)) {
            assert_eq!(disk.block(Kind::Data, &ids[n]).unwrap(), universe.contents(at * 64 + n));
        }
    }
    let frames: u64 = universe.frames.iter().map(|stored| stored.len() as u64).sum();
    let sent = below.bytes.load(Ordering::SeqCst) - before;
    assert!(sent < frames + frames / 20, "{sent} bytes were sent for {frames}");
    let peak = origin.peak.load(Ordering::SeqCst);
    let peak_max = LIMITS.ahead_bytes_max + REQUEST + LIMITS.read_bytes_max;
    // Frames weigh slightly more than their bytes.
    assert!(peak > LIMITS.ahead_bytes_max / 2 && peak < peak_max + peak_max / 8, "{peak} bytes");
}
