//! What was used last, within a limit.
//!
//! Two generations: what is used moves to the new one, and when that has half of the limit, the old one is dropped.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key, with a total weight of at most `weight_max`, except that a single value may be heavier.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    new: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
    weight: usize,
    weight_max: usize,
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    pub(super) fn new(weight_max: usize) -> Self {
        Self { new: HashMap::new(), old: HashMap::new(), weight: 0, weight_max }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.new.get(key) {
            return Some(value.clone());
        }
        let (key, (value, weight)) = self.old.remove_entry(key)?;
        self.insert(key, value.clone(), weight);
        Some(value)
    }

    /// All that is known, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.new.iter().chain(&self.old).map(|(key, (value, _))| (key, value))
    }

    pub(super) fn insert(&mut self, key: K, value: V, weight: usize) {
        if self.weight + weight > self.weight_max / 2 {
            self.old = std::mem::take(&mut self.new);
            self.weight = 0;
        }
        if weight > self.weight_max / 2 {
            self.old.clear();
        }
        self.weight += weight;
        if let Some((_, before)) = self.new.insert(key, (value, weight)) {
            self.weight -= before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays() {
        let mut recent = Recent::new(20);
        for number in 0..1000 {
            recent.insert(number, number, 1);
            assert_eq!(recent.get(&0), Some(0), "{number}");
            assert!(recent.new.len() + recent.old.len() <= 20);
        }
        assert!(recent.iter().any(|known| known == (&999, &999)));
        assert_eq!((recent.get(&999), recent.get(&500)), (Some(999), None));
        recent.insert(7, 7, 100);
        assert_eq!(recent.get(&7), Some(7));
        assert!(recent.old.is_empty());
        recent.insert(8, 8, 100);
        assert_eq!((recent.get(&7), recent.get(&8)), (None, Some(8)));
    }
}
