//! Which image needs which block: the basis of what forgetting an image would free.

use std::cmp::Ordering;

use platter_image::BlockId;

/// Owner of a block that several images need.
pub const SHARED: u32 = u32::MAX;

/// Merges the sorted ids that an image needs into sorted ids with their owners.
pub fn merge_owners(owners: Vec<(BlockId, u32)>, ids: &[BlockId], image: u32) -> Vec<(BlockId, u32)> {
    let mut all = Vec::with_capacity(owners.len() + ids.len());
    let (mut old, mut new) = (owners.into_iter().peekable(), ids.iter().peekable());
    loop {
        let next = match (old.peek(), new.peek()) {
            (Some((known, _)), Some(id)) => known.cmp(id),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return all,
        };
        match next {
            Ordering::Less => all.extend(old.next()),
            Ordering::Greater => all.extend(new.next().map(|id| (*id, image))),
            Ordering::Equal => {
                old.next();
                all.extend(new.next().map(|id| (*id, SHARED)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_two_images_belongs_to_none() {
        let ids = |numbers: &[u8]| numbers.iter().map(|number| BlockId([*number; 32])).collect::<Vec<_>>();
        let owners = merge_owners(Vec::new(), &ids(&[1, 3, 5]), 0);
        let owners = merge_owners(owners, &ids(&[2, 3, 9]), 1);
        let owners = merge_owners(owners, &ids(&[3]), 2);
        let found: Vec<(u8, u32)> = owners.iter().map(|(id, owner)| (id.0[0], *owner)).collect();
        assert_eq!(found, [(1, 0), (2, 1), (3, SHARED), (5, 0), (9, 1)]);
    }
}
