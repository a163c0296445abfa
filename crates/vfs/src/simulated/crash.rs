//! Decides which pending operations survive a power cut, by profile and seed.

/// What a disk and its filesystem may do to unsynced operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashProfile {
    /// Everything that POSIX permits: any subset of the operations, writes torn at 512 bytes, lengths without
    /// their data (zeros or garbage), names without files and files without names.
    StrictPosix,
    /// The default of ext4 (`data=ordered`): names reach the disk in the order of their changes, and so do
    /// the bytes of one file; no length arrives without its data.
    Ext4Ordered,
    /// All pending operations reached the disk.
    All,
    /// No pending operation did.
    Nothing,
    /// All operations except one.
    AllButOne,
    /// Only one operation.
    OnlyOne,
}

impl CrashProfile {
    /// All profiles, for tests that try each.
    pub const EVERY: [Self; 6] =
        [Self::StrictPosix, Self::Ext4Ordered, Self::All, Self::Nothing, Self::AllButOne, Self::OnlyOne];
}

/// A small random number generator (splitmix64). Its sequence is part of what a seed means.
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

/// Decides about each operation in one crash.
#[derive(Debug)]
pub(super) struct Choice {
    profile: CrashProfile,
    random: Random,
    /// Operations before the special one (`AllButOne`, `OnlyOne`).
    until_special: u64,
    /// Operations still kept of the current group, one file's or all names (`Ext4Ordered`).
    run_left: u64,
    /// The probability that the strict profile keeps an operation, in 16ths; differs between crashes.
    keep_16ths: u64,
}

impl Choice {
    /// Decisions about `operations` operations in total.
    pub(super) fn new(profile: CrashProfile, seed: u64, operations: u64) -> Self {
        let mut random = Random::new(seed);
        let until_special = random.below(operations);
        let keep_16ths = 1 + random.below(15);
        Self { profile, random, until_special, run_left: 0, keep_16ths }
    }

    /// Starts a group of operations that reach the disk in order: one file's, or all names.
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

    /// Whether a write that reaches the disk is torn.
    pub(super) fn tears(&mut self) -> bool {
        self.profile == CrashProfile::StrictPosix && self.random.below(3) == 0
    }

    /// Whether the new length of a lost or torn write reaches the disk anyway.
    pub(super) fn grows_without_data(&mut self) -> bool {
        self.profile == CrashProfile::StrictPosix && self.random.below(2) == 0
    }

    /// A coin toss.
    pub(super) fn flips(&mut self) -> bool {
        self.random.below(2) == 0
    }

    pub(super) fn fill_with_garbage(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.random.next() as u8);
    }
}
