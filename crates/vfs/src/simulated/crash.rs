//! What survives when the power is cut: which of the pending operations, by profile and seed.

/// What a disk, and the filesystem on it, may do to operations that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashProfile {
    /// All that POSIX permits: any subset of the operations, writes torn at 512 bytes, lengths without data (zeros
    /// or garbage), names without files and files without names.
    StrictPosix,
    /// What ext4 does by default (`data=ordered`): names come to the disk in the order they were made, and so do
    /// the bytes of one file; no length without its data.
    Ext4Ordered,
    /// Everything pending had reached the disk.
    All,
    /// Nothing pending had.
    Nothing,
    /// Everything but one operation.
    AllButOne,
    /// One operation alone.
    OnlyOne,
}

impl CrashProfile {
    /// Every profile, for tests that try them all.
    pub const EVERY: [Self; 6] =
        [Self::StrictPosix, Self::Ext4Ordered, Self::All, Self::Nothing, Self::AllButOne, Self::OnlyOne];
}

/// A small generator of random numbers (splitmix64): its sequence is part of what a seed means.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// Decides, operation by operation, for one crash.
#[derive(Debug)]
pub(super) struct Choice {
    profile: CrashProfile,
    random: Random,
    /// Operations left to decide about, before the one that stands alone (`AllButOne`, `OnlyOne`).
    until_special: u64,
    /// Operations of the present run (one file's, or all names) that are still kept (`Ext4Ordered`).
    run_left: u64,
    /// How likely the strict profile keeps an operation, in 16ths: differs from crash to crash.
    keep_16ths: u64,
}

impl Choice {
    /// Decisions about `operations` operations in all.
    pub(super) fn new(profile: CrashProfile, seed: u64, operations: u64) -> Self {
        let mut random = Random::new(seed);
        let until_special = random.below(operations);
        let keep_16ths = 1 + random.below(15);
        Self { profile, random, until_special, run_left: 0, keep_16ths }
    }

    /// The next `operations` belong together, in order: one file's, or all names.
    pub(super) fn start_run(&mut self, operations: u64) {
        self.run_left = self.random.below(operations + 1);
    }

    /// Whether the next operation reaches the disk.
    pub(super) fn keeps(&mut self) -> bool {
        let is_special = self.until_special == 0;
        self.until_special = self.until_special.wrapping_sub(1);
        match self.profile {
            CrashProfile::All => true,
            CrashProfile::Nothing => false,
            CrashProfile::AllButOne => !is_special,
            CrashProfile::OnlyOne => is_special,
            CrashProfile::StrictPosix => self.random.below(16) < self.keep_16ths,
            CrashProfile::Ext4Ordered => {
                let keeps = self.run_left > 0;
                self.run_left = self.run_left.saturating_sub(1);
                keeps
            }
        }
    }

    /// Whether a write that reaches the disk does so in part only.
    pub(super) fn tears(&mut self) -> bool {
        self.profile == CrashProfile::StrictPosix && self.random.below(3) == 0
    }

    /// Whether the length of a write that was lost, whole or in part, reaches the disk all the same.
    pub(super) fn grows_without_data(&mut self) -> bool {
        self.profile == CrashProfile::StrictPosix && self.random.below(2) == 0
    }

    /// A coin.
    pub(super) fn flips(&mut self) -> bool {
        self.random.below(2) == 0
    }

    pub(super) fn fill_with_garbage(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.random.next() as u8);
    }
}
