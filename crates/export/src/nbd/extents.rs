//! Normalizes the extents that a device reports: ascending, without gaps, inside the range, and limited in number.

use platter_image::{Extent, Result};
use platter_vdisk::{Allocation, BlockDevice};

/// The extents of `range` in order, neighbours merged, at most `count_max`. Runs of zeros under `zeroes_min` bytes
/// count as data. The extents cover the whole range, or only its beginning if there are too many, but never nothing.
/// Space that the device does not report counts as data.
///
/// # Errors
/// Errors of the device.
pub(super) fn pieces(
    device: &dyn BlockDevice,
    range: Extent,
    count_max: usize,
    zeroes_min: u64,
) -> Result<Vec<(Extent, Allocation)>> {
    let mut pieces = Pieces { list: Vec::new(), at: range.offset, count_max, zeroes_min, is_full: false };
    device.extents(range, &mut |extent, allocation| {
        let Some(extent) = extent.intersect(&Extent::between(pieces.at, range.end())) else {
            return pieces.at < range.end();
        };
        pieces.add(extent.offset, Allocation::Data)
            && pieces.add(extent.end(), allocation)
            && pieces.at < range.end()
    })?;
    if !pieces.is_full {
        pieces.add(range.end(), Allocation::Data);
    }
    Ok(pieces.list)
}

struct Pieces {
    list: Vec<(Extent, Allocation)>,
    /// End of the last extent.
    at: u64,
    count_max: usize,
    zeroes_min: u64,
    is_full: bool,
}

impl Pieces {
    /// Extends to `end`. Returns false if there is no space for another extent.
    fn add(&mut self, end: u64, allocation: Allocation) -> bool {
        if end <= self.at {
            return true;
        }
        let continues = matches!(self.list.last(), Some((_, last)) if *last == allocation);
        let allocation = match allocation {
            Allocation::Zero if !continues && end - self.at < self.zeroes_min => Allocation::Data,
            allocation => allocation,
        };
        let has_room = self.list.len() < self.count_max;
        match self.list.last_mut() {
            Some((extent, last)) if *last == allocation => extent.length = end - extent.offset,
            _ if has_room => self.list.push((Extent::between(self.at, end), allocation)),
            _ => {
                self.is_full = true;
                return false;
            }
        }
        self.at = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use platter_vdisk::Allocation::{Data, Zero};

    use super::*;

    /// Reports these extents, whatever the range.
    struct Teller(Vec<(u64, u64, Allocation)>);

    impl BlockDevice for Teller {
        fn length(&self) -> u64 {
            1 << 20
        }

        fn read(&self, _: &mut [u8], _: u64) -> Result<()> {
            Ok(())
        }

        fn extents(&self, _: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
            for (start, end, allocation) in &self.0 {
                if !visit(Extent::between(*start, *end), *allocation) {
                    break;
                }
            }
            Ok(())
        }
    }

    fn told(extents: &[(u64, u64, Allocation)], count_max: usize, min: u64) -> Vec<(u64, u64, Allocation)> {
        let pieces = pieces(&Teller(extents.to_vec()), Extent::between(100, 200), count_max, min).unwrap();
        pieces.into_iter().map(|(extent, allocation)| (extent.offset, extent.end(), allocation)).collect()
    }

    #[test]
    fn they_cover_the_range() {
        assert_eq!(told(&[], 9, 0), [(100, 200, Data)]);
        assert_eq!(told(&[(0, 300, Zero)], 9, 0), [(100, 200, Zero)]);
        assert_eq!(told(&[(120, 150, Zero)], 9, 0), [(100, 120, Data), (120, 150, Zero), (150, 200, Data)]);
        assert_eq!(told(&[(100, 150, Zero), (140, 200, Data)], 9, 0), [(100, 150, Zero), (150, 200, Data)]);
    }

    #[test]
    fn neighbours_that_are_alike_are_one() {
        let extents = [(100, 130, Zero), (130, 150, Zero), (150, 170, Data), (170, 200, Data)];
        assert_eq!(told(&extents, 9, 0), [(100, 150, Zero), (150, 200, Data)]);
    }

    #[test]
    fn there_is_a_limit() {
        let extents = [(100, 110, Zero), (110, 120, Data), (120, 130, Zero), (130, 200, Data)];
        assert_eq!(told(&extents, 2, 0), [(100, 110, Zero), (110, 120, Data)]);
        assert_eq!(told(&extents, 1, 0), [(100, 110, Zero)]);
    }

    #[test]
    fn short_zeros_are_data() {
        let extents =
            [(100, 110, Data), (110, 115, Zero), (115, 150, Data), (150, 160, Zero), (160, 200, Data)];
        assert_eq!(told(&extents, 9, 10), [(100, 150, Data), (150, 160, Zero), (160, 200, Data)]);
    }
}
