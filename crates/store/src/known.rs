//! Reads back the frames on which a session relies: frames that were stored earlier and hold blocks which the session does not
//! store again.
//!
//! A capture that finds all of its blocks in the store would not read them, and would rely on frames that may have decayed. So a
//! sample of these frames is read, decoded and hashed during the capture. Frames that fail are quarantined, and their blocks
//! no longer count as known: the same capture stores them again. Damage comes in clusters: once a frame of a pack has failed,
//! every frame of that pack on which the session relies is read.
//!
//! The sample consists of the first [`FIRST_FRAMES`] frames and one in [`ONE_IN`] of the others. A salt of the session
//! selects them, so that different captures read different frames. Each frame is read at most once in a session.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use platter_image::FrameAddress;

/// Number of frames that are always read.
const FIRST_FRAMES: u64 = 8;
/// One in this many of the other frames is read.
const ONE_IN: u64 = 256;

/// How many of the frames on which a session relies are read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KnownCheck {
    /// A sample.
    #[default]
    Sample,
    /// All of them.
    All,
}

/// The frames on which a session relies, and which of them were read.
#[derive(Debug)]
pub(crate) struct KnownFrames {
    check: KnownCheck,
    salt: u64,
    read: AtomicU64,
    seen: Mutex<ReadFrames>,
}

#[derive(Debug, Default)]
struct ReadFrames {
    /// Frames that are being read or were read, and whether they are sound.
    frames: HashMap<FrameAddress, Arc<OnceLock<bool>>>,
    /// Packs with a frame that has failed.
    suspects: HashSet<u32>,
    /// The last frame that was sound or not selected. The next block is mostly in the same frame.
    last: Option<FrameAddress>,
}

impl KnownFrames {
    pub(crate) fn new(check: KnownCheck) -> Self {
        let salt = RandomState::new().build_hasher().finish();
        Self { check, salt, read: AtomicU64::new(0), seen: Mutex::default() }
    }

    /// Returns whether the session may rely on that frame. If it is selected, reads it with `prove`; other threads that ask for
    /// the same frame wait for the result.
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

    /// Returns whether the frame is in the sample. The session's random salt decides, so the author of a frame cannot predict it.
    fn is_chosen(&self, frame: FrameAddress) -> bool {
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): the high bits depend on all bits of the address.
        let mixed =
            (frame.offset ^ u64::from(frame.pack) << 40 ^ self.salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.check == KnownCheck::All
            || self.read.load(Ordering::Relaxed) < FIRST_FRAMES
            || (mixed >> 32).is_multiple_of(ONE_IN)
    }

    /// Returns the number of frames that were read.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn seen(&self) -> MutexGuard<'_, ReadFrames> {
        self.seen.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for `frames` frames of two packs. Returns how many were read.
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
    fn a_sample_is_small_and_all_reads_everything() {
        let sample = KnownFrames::new(KnownCheck::Sample);
        let count = read(&sample, 10_000, true);
        assert!((FIRST_FRAMES + 2..=FIRST_FRAMES + 60).contains(&count), "{count} of 5000 frames");
        let all = KnownFrames::new(KnownCheck::All);
        assert_eq!(read(&all, 10_000, true), 5000);
    }

    /// After a failure, the remaining frames of the pack are read.
    #[test]
    fn a_pack_with_damage_is_read_completely() {
        let sample = KnownFrames::new(KnownCheck::Sample);
        read(&sample, 1, false);
        assert!(read(&sample, 5000, true) >= 2499);
    }

    #[test]
    fn a_bad_frame_stays_bad() {
        let all = KnownFrames::new(KnownCheck::All);
        let frame = FrameAddress { pack: 1, offset: 2, length: 3 };
        assert!(!all.is_sound(frame, || false) && !all.is_sound(frame, || true));
    }
}
