//! Extents, and sorted sets of extents, such as an allocation map.

use crate::SECTOR;

/// A run of bytes on a device. Offset and length are multiples of 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// Offset of its first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Extent {
    /// The extent of `length` bytes at `offset`.
    pub const fn new(offset: u64, length: u64) -> Self {
        Self { offset, length }
    }

    /// The extent from `start` to `end`; empty if `end` lies before `start`.
    pub const fn between(start: u64, end: u64) -> Self {
        Self { offset: start, length: end.saturating_sub(start) }
    }

    /// The offset after its last byte. Saturates, so that a hostile extent cannot overflow.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// The common part of both extents; `None` if there is none.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let start = self.offset.max(other.offset);
        let end = self.end().min(other.end());
        (start < end).then(|| Self::between(start, end))
    }

    /// The smallest extent of whole sectors that contains it.
    #[must_use]
    pub fn align_outwards(&self) -> Self {
        let start = self.offset / SECTOR * SECTOR;
        Self::between(start, self.end().div_ceil(SECTOR).saturating_mul(SECTOR))
    }
}

/// A set of bytes of a device: non-empty extents in ascending order that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Extent>);

impl Extents {
    /// The empty set.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The union of `extents`, which may overlap and come in any order.
    pub fn from_unsorted(mut extents: Vec<Extent>) -> Self {
        extents.retain(|extent| extent.length > 0);
        extents.sort_unstable();
        let mut set = Self(Vec::with_capacity(extents.len().min(1 << 16)));
        for extent in extents {
            set.push(extent);
        }
        set
    }

    /// Adds an extent that starts at or after the start of the last one. This is the cheap way to build a set
    /// in order.
    ///
    /// # Panics
    /// If it starts before the last extent.
    pub fn push(&mut self, extent: Extent) {
        if extent.length == 0 {
            return;
        }
        match self.0.last_mut() {
            Some(last) if extent.offset <= last.end() => {
                assert!(extent.offset >= last.offset, "extents are pushed in order");
                last.length = last.length.max(extent.end() - last.offset);
            }
            _ => self.0.push(extent),
        }
    }

    /// The extents in ascending order.
    pub fn as_slice(&self) -> &[Extent] {
        &self.0
    }

    /// The extents in ascending order.
    pub fn iter(&self) -> std::slice::Iter<'_, Extent> {
        self.0.iter()
    }

    /// Number of bytes in the set.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|extent| extent.length).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the byte at `offset` is in the set.
    pub fn contains(&self, offset: u64) -> bool {
        let after = self.0.partition_point(|extent| extent.offset <= offset);
        after > 0 && self.0[after - 1].end() > offset
    }

    /// The parts of the set inside `bounds`.
    pub fn clip(&self, bounds: Extent) -> impl Iterator<Item = Extent> + '_ {
        let first = self.0.partition_point(|extent| extent.end() <= bounds.offset);
        self.0[first..].iter().map_while(move |extent| extent.intersect(&bounds))
    }

    /// The bytes of this set that are not in `other`.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let mut rest = Self::new();
        let mut holes = other.0.iter().peekable();
        for extent in &self.0 {
            let mut start = extent.offset;
            while holes.next_if(|hole| hole.end() <= start).is_some() {}
            while let Some(hole) = holes.peek().filter(|hole| hole.offset < extent.end()) {
                rest.push(Extent::between(start, hole.offset));
                start = start.max(hole.end());
                if hole.end() > extent.end() {
                    break;
                }
                holes.next();
            }
            rest.push(Extent::between(start, extent.end()));
        }
        rest
    }

    /// The bytes inside `bounds` that are not in this set.
    #[must_use]
    pub fn complement(&self, bounds: Extent) -> Self {
        Self::from_unsorted(vec![bounds]).subtract(self)
    }

    /// The set moved up by `offset` bytes, such as from offsets in a filesystem to offsets on the device.
    #[must_use]
    pub fn shift(mut self, offset: u64) -> Self {
        for extent in &mut self.0 {
            extent.offset = extent.offset.saturating_add(offset);
        }
        self
    }
}

impl FromIterator<Extent> for Extents {
    fn from_iter<I: IntoIterator<Item = Extent>>(iter: I) -> Self {
        Self::from_unsorted(iter.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a Extents {
    type Item = &'a Extent;
    type IntoIter = std::slice::Iter<'a, Extent>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(set: &Extents) -> Vec<bool> {
        let mut bits = vec![false; 400];
        for extent in set {
            bits[extent.offset as usize..extent.end() as usize].fill(true);
        }
        bits
    }

    fn arbitrary_set() -> impl Strategy<Value = Extents> {
        prop::collection::vec((0..300u64, 0..60u64), 0..12)
            .prop_map(|pairs| pairs.into_iter().map(|(offset, length)| Extent::new(offset, length)).collect())
    }

    proptest! {
        /// Set operations agree with the same operations on bit vectors.
        #[test]
        fn sets_agree_with_bit_vectors(a in arbitrary_set(), b in arbitrary_set(), start in 0..300u64, length in 0..100u64) {
            let (bits_a, bits_b) = (bits(&a), bits(&b));
            let minus: Vec<bool> = bits_a.iter().zip(&bits_b).map(|(a, b)| *a && !b).collect();
            prop_assert_eq!(bits(&a.subtract(&b)), minus);
            let bounds = Extent::new(start, length);
            let clipped: Extents = a.clip(bounds).collect();
            let inside = |at: usize| (start..start + length).contains(&(at as u64));
            let expected: Vec<bool> = bits_a.iter().enumerate().map(|(at, bit)| *bit && inside(at)).collect();
            prop_assert_eq!(bits(&clipped), expected);
            for (at, bit) in bits_a.iter().enumerate() {
                prop_assert_eq!(a.contains(at as u64), *bit);
            }
            prop_assert_eq!(a.total(), bits_a.iter().filter(|bit| **bit).count() as u64);
            prop_assert!(a.as_slice().windows(2).all(|pair| pair[0].end() < pair[1].offset));
        }
    }
}
