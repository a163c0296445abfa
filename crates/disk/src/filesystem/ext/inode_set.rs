//! A set of inodes, one bit for each that the filesystem has.

/// Inodes by number, from 1.
#[derive(Debug, Default)]
pub(super) struct InodeSet {
    words: Vec<u64>,
}

impl InodeSet {
    /// The empty set, for inodes up to that number.
    pub(super) fn new(inodes: u32) -> Self {
        Self { words: vec![0; inodes as usize / 64 + 1] }
    }

    /// Adds an inode that the filesystem has.
    pub(super) fn insert(&mut self, number: u32) {
        if let Some(word) = self.words.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }

    /// Whether an inode is in it; false for numbers that no inode has.
    pub(super) fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in() {
        let mut set = InodeSet::new(128);
        for number in [1, 63, 64, 128] {
            set.insert(number);
        }
        let held: Vec<u32> = (0..300).filter(|number| set.contains(*number)).collect();
        assert_eq!(held, [1, 63, 64, 128]);
        assert!(!set.contains(u32::MAX));
    }
}
