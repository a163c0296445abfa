//! Which segments are merged, and the merging.
//!
//! Segments have tiers: each tier has segments of up to four times the entries of the one below. When four segments are in one
//! tier, they are merged. So an entry is written once per tier, and there are at most three segments per tier below the limit.
//! Segments above the limit are not merged any more: that bounds what one commit writes.

use std::cmp::Ordering;

use platter_image::Result;

use crate::entry::Entry;
use crate::manifest::Manifest;
use crate::segment::{InOrder, SegmentWriter};

/// Number of segments of one tier that are merged.
const FAN_IN: usize = 4;
/// Segments up to this number of entries are in the lowest tier.
const TIER_ENTRIES: u64 = 8 << 10;
/// Maximum number of entries in a merged segment: 800 MB.
const MERGED_ENTRIES_MAX: u64 = 16 << 20;

/// Returns the tier of a segment.
fn tier(entries: u64) -> u32 {
    (entries.max(1).div_ceil(TIER_ENTRIES)).ilog2() / FAN_IN.ilog2()
}

/// Returns the positions of segments to merge, given the number of entries of each; empty if there is nothing to merge.
pub(crate) fn choose(entries: &[u64]) -> Vec<usize> {
    let highest = tier(MERGED_ENTRIES_MAX);
    for wanted in 0..=highest {
        let mut chosen: Vec<usize> = (0..entries.len()).filter(|at| tier(entries[*at]) == wanted).collect();
        if chosen.len() < FAN_IN {
            continue;
        }
        chosen.sort_by_key(|at| entries[*at]);
        let mut sum = 0_u64;
        chosen.retain(|at| {
            sum = sum.saturating_add(entries[*at]);
            sum <= MERGED_ENTRIES_MAX
        });
        if chosen.len() > 1 {
            return chosen;
        }
    }
    Vec::new()
}

/// Writes the entries of several segments in order, without those of packs that are not covered.
pub(crate) fn merge(
    manifest: &Manifest,
    sources: &mut [InOrder<'_>],
    writer: &mut SegmentWriter<'_>,
) -> Result<()> {
    loop {
        let mut least: Option<(usize, Entry)> = None;
        for (at, source) in sources.iter_mut().enumerate() {
            if let Some(entry) = source.peek()?
                && least.is_none_or(|(_, least)| entry.cmp(&least) == Ordering::Less)
            {
                least = Some((at, *entry));
            }
        }
        let Some((at, entry)) = least else { return Ok(()) };
        sources[at].take()?;
        if manifest.pack(entry.pack).is_some() {
            writer.push(entry)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many segments are added, few remain, and no entry is written often.
    #[test]
    fn segments_stay_few_and_entries_are_rarely_written() {
        let (mut segments, mut written, mut added) = (Vec::new(), 0_u64, 0_u64);
        for number in 0..20_000_u64 {
            let entries = 5_000 + number * 7919 % 40_000;
            (added, written) = (added + entries, written + entries);
            segments.push(entries);
            loop {
                let chosen = choose(&segments);
                if chosen.is_empty() {
                    break;
                }
                let sum: u64 = chosen.iter().map(|at| segments[*at]).sum();
                assert!(sum <= MERGED_ENTRIES_MAX && chosen.len() > 1);
                written += sum;
                let mut at = 0;
                segments.retain(|_| (!chosen.contains(&at), at += 1).0);
                segments.push(sum);
            }
            let full = segments.iter().filter(|entries| **entries > MERGED_ENTRIES_MAX / 8).count();
            assert!(segments.len() - full <= 20, "{} of which {full} are large", segments.len());
            assert!(full as u64 <= 4 + added / (MERGED_ENTRIES_MAX / 8), "{full}");
        }
        assert!(written <= 9 * added, "{written} of {added}");
    }
}
