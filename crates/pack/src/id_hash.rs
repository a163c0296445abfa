//! A hash function for the tables that find blocks by id.

use std::hash::{BuildHasher, RandomState};

use platter_image::BlockId;

/// A salted hash function for ids: nobody can choose ids that collide in the table.
#[derive(Clone, Copy, Debug)]
pub struct IdHash([u64; 2]);

impl Default for IdHash {
    fn default() -> Self {
        Self::new()
    }
}

impl IdHash {
    /// Makes a hash function with a random salt.
    pub fn new() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0_u8), random.hash_one(1_u8) | 1])
    }

    /// Hashes by a folded multiplication of salted halves. Ids are already uniformly distributed.
    pub fn of(self, id: &BlockId) -> u64 {
        let half = |at: usize| (0..8).fold(0_u64, |value, n| value | u64::from(id.0[at + n]) << (8 * n));
        let product = u128::from(half(0) ^ self.0[0]) * u128::from(half(8) ^ self.0[1]);
        (product as u64) ^ (product >> 64) as u64
    }
}
