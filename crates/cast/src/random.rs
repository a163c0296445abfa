//! Seeded random numbers: the machines have no other, so that a seed repeats every run.

/// SplitMix64 (Steele, Lea, Flood 2014). Spreads timers; keeps no secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Evenly below `end` (0 gives 0); the bias of the remainder does not matter to timers.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// The finaliser of SplitMix64: every bit of the input changes half of the output's, and no two inputs meet.
pub(crate) fn mix(value: u64) -> u64 {
    let mut mixed = value;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
