//! Merges boots that nodes observed into a boot set.
//!
//! No I/O. Blocks that only the new boot read are appended, so the order of the existing ones never changes. Blocks
//! that the new boot did not read are kept: one block too many is fetched once per node, one block too few costs each
//! boot a round trip. To limit the growth, a set ignores a boot that adds less than 1/[`WORTH_PART`] of its bytes, and
//! has at most [`OBSERVED_BYTES_MAX`] bytes. The number of boots is not limited: a boot that adds more shows that the set
//! is incomplete. A set that a user recorded never changes.
//!
//! A slow boot with long pauses arrives in pieces. Those of one node count as one boot.

use std::collections::HashMap;

use platter_image::BlockId;

use crate::boot_set::{BOOT_SET_BLOCKS_MAX, BootBlock, BootSet, BootSetRecord};

/// Maximum size of an observed boot set in bytes.
pub const OBSERVED_BYTES_MAX: u64 = 1 << 30;

/// A boot is ignored if it adds less than 1/`WORTH_PART` of the boot set's bytes.
const WORTH_PART: u64 = 64;
/// Maximum number of nodes that a boot set lists.
const NODES_MAX: usize = 3;
/// Reads that a node reports at most this long after earlier ones belong to the same boot, in milliseconds.
pub const BOOT_GAP_MS_MAX: i64 = 10 * 60 * 1000;

impl BootSetRecord {
    /// Whether observed boots do not change the boot set, because a user recorded it.
    pub fn is_settled(&self) -> bool {
        self.boots == 0
    }

    /// Whether `next` is another piece of the same boot.
    fn is_continued_by(&self, next: &Self) -> bool {
        let begin = next.time_unix_ms.saturating_sub_unsigned(next.duration_ms);
        let is_same_node = !next.nodes.is_empty() && next.nodes.iter().all(|node| self.nodes.contains(node));
        is_same_node && begin <= self.time_unix_ms.saturating_add(BOOT_GAP_MS_MAX)
    }
}

impl BootSet {
    /// Merges another boot of the same disk. Returns the new boot set; `None` if nothing changes.
    pub fn refined(&self, other: &Self) -> Option<Self> {
        if self.record.is_settled() || self.record.score != other.record.score {
            return None;
        }
        let (pages, added_pages) = union(&self.pages, &other.pages);
        let (blocks, added_blocks) = union(&self.blocks, &other.blocks);
        let bytes: u64 = pages.iter().chain(&blocks).map(BootBlock::length).sum();
        let is_worth_it = (added_pages + added_blocks) * WORTH_PART >= self.record.bytes;
        let is_bounded = bytes <= OBSERVED_BYTES_MAX && pages.len() + blocks.len() <= BOOT_SET_BLOCKS_MAX;
        if !is_worth_it || !is_bounded {
            return None;
        }
        let (own, new) = (&self.record, &other.record);
        let mut nodes = own.nodes.clone();
        nodes.extend(new.nodes.iter().filter(|node| !own.nodes.contains(node)).cloned());
        nodes.truncate(NODES_MAX);
        let record = BootSetRecord {
            boots: match own.is_continued_by(new) {
                true => own.boots,
                false => own.boots.saturating_add(new.boots),
            },
            nodes,
            time_unix_ms: new.time_unix_ms,
            duration_ms: own.duration_ms.max(new.duration_ms),
            requests: own.requests.max(new.requests),
            bytes_read: own.bytes_read.max(new.bytes_read),
            pages: pages.len() as u32,
            blocks: blocks.len() as u32,
            bytes,
            tool_version: new.tool_version.clone(),
            ..own.clone()
        };
        Some(Self { record, pages, blocks })
    }
}

/// Returns the rows of both, first those of `own`, and the bytes that `other` adds.
fn union(own: &[BootBlock], other: &[BootBlock]) -> (Vec<BootBlock>, u64) {
    let mut rows = own.to_vec();
    let places: HashMap<BlockId, usize> = own.iter().enumerate().map(|(at, row)| (row.id, at)).collect();
    let mut added = 0;
    for row in other {
        match places.get(&row.id) {
            Some(at) => rows[*at].sectors = rows[*at].sectors.max(row.sectors),
            None => {
                added += row.length();
                rows.push(*row);
            }
        }
    }
    (rows, added)
}

#[cfg(test)]
mod tests {
    use platter_image::{Kind, Score};

    use super::*;

    fn row(number: u32) -> BootBlock {
        BootBlock::new(BlockId::of(Kind::Data, &number.to_le_bytes()), 4096)
    }

    /// Returns the boot set of a boot on `node` that reads these blocks.
    fn boot(node: &str, blocks: &[u32]) -> BootSet {
        let pages = vec![row(0)];
        let blocks: Vec<BootBlock> = blocks.iter().copied().map(row).collect();
        let record = BootSetRecord {
            version: serde_json::from_str(r#"{"image":"a","number":1}"#).unwrap(),
            score: Score(row(0).id),
            marker: "quiet:4".into(),
            command: String::new(),
            accelerator: String::new(),
            time_unix_ms: 1,
            duration_ms: blocks.len() as u64,
            requests: 1,
            bytes_read: 1,
            pages: 1,
            blocks: blocks.len() as u32,
            bytes: (1 + blocks.len() as u64) * 4096,
            tool_version: String::new(),
            boots: 1,
            nodes: vec![node.into()],
        };
        BootSet { record, pages, blocks }
    }

    #[test]
    fn blocks_of_another_boot_are_appended() {
        let set = boot("a", &[5, 3, 9]).refined(&boot("b", &[9, 7, 5, 1])).unwrap();
        assert_eq!(set.blocks, [5, 3, 9, 7, 1].map(row));
        assert_eq!((set.record.boots, &set.record.nodes[..]), (2, &["a".to_owned(), "b".to_owned()][..]));
        set.encode().unwrap();
        let longer = BootBlock::new(row(5).id, 8192);
        let mut other = boot("a", &[5, 8]);
        (other.blocks[0], other.record.bytes) = (longer, other.record.bytes + 4096);
        let set = boot("a", &[5, 3]).refined(&other).unwrap();
        assert_eq!((set.blocks[0], set.record.nodes.len()), (longer, 1), "as far as either uses it");
        set.encode().unwrap();
    }

    #[test]
    fn pieces_of_one_boot_count_as_one_boot() {
        let mut set = boot("a", &[1]);
        for (number, (node, minutes, boots)) in
            [("a", 5, 1), ("a", 14, 1), ("b", 15, 2), ("a", 20, 2), ("a", 40, 3)].into_iter().enumerate()
        {
            let mut piece = boot(node, &[number as u32 + 2]);
            piece.record.time_unix_ms = minutes * 60 * 1000;
            set = set.refined(&piece).unwrap();
            assert_eq!(
                (set.record.boots, set.blocks.len()),
                (boots, number + 2),
                "{node} after {minutes} minutes"
            );
        }
    }

    #[test]
    fn settled_sets_and_small_additions_change_nothing() {
        let many: Vec<u32> = (1..200).collect();
        let set = boot("a", &many);
        assert_eq!(set.refined(&set), None);
        assert_eq!(set.refined(&boot("b", &[1, 2])), None, "a boot that reads less");
        let with = |new: std::ops::Range<u32>| set.refined(&boot("b", &new.collect::<Vec<_>>()));
        assert_eq!(with(190..203), None, "three of 200 blocks");
        assert!(with(190..204).is_some());
        let more = boot("b", &[1000, 1001, 1002, 1003, 1004, 1005]);
        for (boots, grows) in [(0, false), (1, true), (3, true), (u32::MAX, true)] {
            let mut set = set.clone();
            set.record.boots = boots;
            assert_eq!(set.refined(&more).is_some(), grows, "{boots} boots");
        }
        let mut other = more;
        other.record.score = Score(row(77).id);
        assert_eq!(set.refined(&other), None, "of another disk");
    }

    #[test]
    fn the_size_of_a_set_is_limited() {
        let mut set = boot("a", &[1]);
        set.blocks = (1..BOOT_SET_BLOCKS_MAX as u32).map(row).collect();
        assert_eq!(set.refined(&boot("b", &(200_000..210_000).collect::<Vec<_>>())), None, "of blocks");
        let big = |number| BootBlock::new(row(number).id, 65_536);
        let mut set = boot("a", &[1]);
        set.blocks = (1..16_000).map(big).collect();
        let mut other = boot("b", &[1]);
        other.blocks = (16_000..17_000).map(big).collect();
        assert_eq!(set.refined(&other), None, "of bytes");
        other.blocks.truncate(300);
        assert!(set.refined(&other).is_some());
    }
}
