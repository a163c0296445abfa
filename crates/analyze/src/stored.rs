//! What blocks take in a store: the frame of a block is divided among its blocks in proportion to their sizes.

use std::collections::HashMap;

use platter_fetch::{OpenStore, Opened};
use platter_image::Result;

use crate::recipe::digest_of;
use crate::tally::{Digest, Tally};

/// The compressed bytes of blocks and pages in a store. The id of each block is included.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// By number of the tally; 0 if the block is in no pack.
    pub(crate) blocks: Vec<u64>,
    /// Of the pages that were asked for.
    pub(crate) pages: HashMap<Digest, u64>,
    /// Packs whose directories cannot be read.
    pub(crate) damage: Vec<String>,
}

/// Looks up the blocks of a tally and the pages; `None` if the store is an origin, whose packs cannot be seen.
///
/// # Errors
/// When the catalog cannot be read.
pub(crate) fn stored(
    store: &OpenStore,
    tally: &Tally,
    mut pages: HashMap<Digest, u64>,
) -> Result<Option<Stored>> {
    let Opened::Local(store) = store.opened() else { return Ok(None) };
    let mut blocks = vec![0; tally.sizes().len()];
    let mut damage = Vec::new();
    store.visit_directories(&mut |directory| {
        let directory = match directory {
            Ok(directory) => directory,
            Err(error) => {
                damage.push(error.with_causes());
                return Ok(());
            }
        };
        for (row, ids) in directory.iter() {
            let digests: Vec<Digest> = ids.iter().map(digest_of).collect();
            let numbers: Vec<Option<u32>> = digests.iter().map(|digest| tally.number(digest)).collect();
            let size = |number: u32| tally.sizes().get(number as usize).copied();
            let sizes: Vec<Option<u64>> = numbers.iter().map(|number| number.and_then(size)).collect();
            let shares = divide(row.whole_length() as u64, &sizes);
            for ((digest, number), share) in digests.iter().zip(numbers).zip(shares) {
                // Of several copies, one counts.
                if let Some(bytes) = number.and_then(|number| blocks.get_mut(number as usize)) {
                    *bytes = if *bytes == 0 { share } else { *bytes };
                } else if let Some(bytes) = pages.get_mut(digest) {
                    *bytes = if *bytes == 0 { share } else { *bytes };
                }
            }
        }
        Ok(())
    })?;
    Ok(Some(Stored { blocks, pages, damage }))
}

/// Divides the bytes of a frame among its blocks. Blocks whose size is not known count as the mean of the others.
fn divide(bytes: u64, sizes: &[Option<u64>]) -> Vec<u64> {
    let (mut known, mut sum) = (0_u64, 0_u64);
    for size in sizes.iter().flatten() {
        known += 1;
        sum += size;
    }
    let mean = sum.checked_div(known).unwrap_or(1).max(1);
    let weight = |size: &Option<u64>| size.map_or(mean, |size| size.max(1));
    let all: u64 = sizes.iter().map(weight).sum();
    // Rounded so that the shares sum up to the frame.
    let mut given = 0;
    let mut before = 0;
    let shares = sizes.iter().map(|size| {
        before += weight(size);
        let end = (u128::from(bytes) * u128::from(before) / u128::from(all.max(1))) as u64;
        let share = end - given;
        given = end;
        share
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_divided_by_sizes() {
        assert_eq!(divide(1000, &[Some(65536), Some(65536)]), [500, 500]);
        assert_eq!(divide(1000, &[Some(3072), Some(1024)]), [750, 250]);
        assert_eq!(divide(1000, &[Some(3000), None, Some(1000)]), [500, 333, 167]);
        assert_eq!(divide(999, &[None, None]), [499, 500]);
        assert_eq!(divide(7, &[Some(0); 3]).iter().sum::<u64>(), 7);
        assert!(divide(7, &[]).is_empty());
    }
}
