//! Reads again what a session relies on: frames of before, whose blocks it does not store because the store has them.
//!
//! A capture that finds all its blocks known reads nothing of them, and would rely on a frame that rotted since. So a sample of
//! these frames is read, decoded and hashed while the capture runs; what fails is quarantined, and then not known any more:
//! the same capture stores it anew. Damage comes in clusters: once a frame of a pack has failed, every frame of that pack
//! that the session relies on is read.
//!
//! The sample: the first [`FIRST_FRAMES`] frames, and of the others one in [`ONE_IN`], chosen by a salt of the session, so
//! that different captures read different frames. A frame is read once in a session.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use platter_image::FrameAddress;

/// So many frames are read in any case.
const FIRST_FRAMES: u64 = 8;
/// Of the others, one in so many.
const ONE_IN: u64 = 256;

/// How much is read of what a session relies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KnownCheck {
    /// A sample.
    #[default]
    Sample,
    /// All of it.
    All,
}

/// The frames that a session relies on, as far as they are read.
#[derive(Debug)]
pub(crate) struct KnownFrames {
    check: KnownCheck,
    salt: u64,
    read: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Frames that are or were read, and whether they are sound.
    frames: HashMap<FrameAddress, Arc<OnceLock<bool>>>,
    /// Packs of which a frame has failed.
    suspects: HashSet<u32>,
    /// The frame that was found to be sound, or was not chosen, last: the next block is mostly of the same one.
    last: Option<FrameAddress>,
}

impl KnownFrames {
    pub(crate) fn new(check: KnownCheck) -> Self {
        let salt = RandomState::new().build_hasher().finish();
        Self { check, salt, read: AtomicU64::new(0), seen: Mutex::default() }
    }

    /// Whether that frame may be relied on. Reads it with `prove` if it is one of those to be read; threads that ask for
    /// the same frame meanwhile wait for that.
    pub(crate) fn is_sound(&self, frame: FrameAddress, prove: impl FnOnce() -> bool) -> bool {
        let cell = {
            let mut seen = self.seen();
            if seen.last == Some(frame) {
                return true;
            }
            let is_read = self.is_chosen(frame)
                || seen.suspects.contains(&frame.pack)
                || seen.frames.contains_key(&frame);
            if !is_read {
                seen.last = Some(frame);
                return true;
            }
            seen.frames.entry(frame).or_default().clone()
        };
        let is_sound = *cell.get_or_init(|| {
            self.read.fetch_add(1, Ordering::Relaxed);
            prove()
        });
        let mut seen = self.seen();
        if is_sound {
            seen.last = Some(frame);
        } else {
            seen.suspects.insert(frame.pack);
            seen.last = None;
        }
        is_sound
    }

    /// Whether that frame belongs to the sample. A session's salt decides, and nothing that who wrote the frames knows.
    fn is_chosen(&self, frame: FrameAddress) -> bool {
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): the high bits depend on all of the place.
        let mixed =
            (frame.offset ^ u64::from(frame.pack) << 40 ^ self.salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.check == KnownCheck::All
            || self.read.load(Ordering::Relaxed) < FIRST_FRAMES
            || (mixed >> 32).is_multiple_of(ONE_IN)
    }

    /// How many frames were read.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for so many frames of two packs; gives how many were read.
    fn read(known: &KnownFrames, frames: u64, is_sound: bool) -> u64 {
        let before = known.read();
        for number in 0..frames {
            let number = number % 5000;
            let address = FrameAddress { pack: number as u32 % 2, offset: number, length: 9 };
            known.is_sound(address, || is_sound);
        }
        known.read() - before
    }

    #[test]
    fn a_sample_is_small_and_all_is_all() {
        let sample = KnownFrames::new(KnownCheck::Sample);
        let count = read(&sample, 10_000, true);
        assert!((FIRST_FRAMES + 2..=FIRST_FRAMES + 60).contains(&count), "{count} of 5000 frames");
        let all = KnownFrames::new(KnownCheck::All);
        assert_eq!(read(&all, 10_000, true), 5000);
    }

    /// After a failure, what is still to come of the pack is read.
    #[test]
    fn a_pack_with_damage_is_read_whole() {
        let sample = KnownFrames::new(KnownCheck::Sample);
        read(&sample, 1, false);
        assert!(read(&sample, 5000, true) >= 2499);
    }

    #[test]
    fn what_was_found_bad_stays_so() {
        let all = KnownFrames::new(KnownCheck::All);
        let frame = FrameAddress { pack: 1, offset: 2, length: 3 };
        assert!(!all.is_sound(frame, || false) && !all.is_sound(frame, || true));
    }
}
