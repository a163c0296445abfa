//! A set of inodes, with one bit per inode of the filesystem.

/// Inodes by number, starting at 1.
#[derive(Debug, Default)]
pub(super) struct InodeSet {
    words: Vec<u64>,
}

impl InodeSet {
    /// An empty set for inode numbers up to `inodes`.
    pub(super) fn new(inodes: u32) -> Self {
        Self { words: vec![0; inodes as usize / 64 + 1] }
    }

    /// Adds an inode of the filesystem.
    pub(super) fn insert(&mut self, number: u32) {
        if let Some(word) = self.words.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }

    /// Whether an inode is in the set; `false` for invalid numbers.
    pub(super) fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_numbers_are_contained() {
        let mut set = InodeSet::new(128);
        for number in [1, 63, 64, 128] {
            set.insert(number);
        }
        let held: Vec<u32> = (0..300).filter(|number| set.contains(*number)).collect();
        assert_eq!(held, [1, 63, 64, 128]);
        assert!(!set.contains(u32::MAX));
    }
}
