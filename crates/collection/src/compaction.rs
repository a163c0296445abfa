//! Which packs are worth rewriting, and which of these fit on the disk now.
//!
//! A pack is *wasteful* if less than a given share of its frames is needed. *Small* packs are grouped in tiers by length, each a
//! sixteenth of the next. Only a full tier is merged, so a store of any age has few small packs, and each frame is copied at
//! most once per tier.
//!
//! Never does I/O.

use platter_records::PackId;

/// A tier with as many packs is merged; also the ratio of the lengths of two tiers.
const TIER: u64 = 16;
/// Part of the copies that may be added by headers, directories and records of the catalog.
const OVERHEAD_PART: u64 = 64;

/// A pack that may be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The pack.
    pub id: PackId,
    /// Length of the file in bytes.
    pub length: u64,
    /// Bytes of all frames.
    pub bytes: u64,
    /// Bytes of the frames that must be copied.
    pub needed: u64,
}

/// Chooses the packs to rewrite. `percent`: packs of which less is needed are wasteful; 0 chooses none. `full_length` is the length
/// at which sessions begin another pack.
pub fn choose(packs: &[Candidate], percent: u64, full_length: u64) -> Vec<Candidate> {
    if percent == 0 {
        return Vec::new();
    }
    let is_wasteful = |pack: &Candidate| pack.needed.saturating_mul(100) < pack.bytes.saturating_mul(percent);
    let (mut chosen, others): (Vec<Candidate>, Vec<_>) = packs.iter().partition(|pack| is_wasteful(pack));
    let mut longest = full_length / TIER;
    while longest > 0 {
        let shortest = longest / TIER;
        let tier: Vec<_> =
            others.iter().filter(|pack| pack.length <= longest && pack.length > shortest).collect();
        if tier.len() as u64 >= TIER {
            chosen.extend(tier);
        }
        longest = shortest;
    }
    chosen
}

/// Chooses the packs whose copies fit into `free` bytes, those that free most for each copied byte first.
pub fn what_fits(packs: &[Candidate], free: u64) -> Vec<Candidate> {
    let mut sorted = packs.to_vec();
    sorted.sort_by_key(|pack| (pack.needed.saturating_mul(1000) / pack.length.max(1), pack.id));
    let mut left = free;
    sorted.retain(|pack| {
        let copied = pack.needed + pack.needed / OVERHEAD_PART;
        let fits = copied <= left;
        left -= if fits { copied } else { 0 };
        fits
    });
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = 256 << 20;

    fn pack(id: u64, length: u64, needed: u64) -> Candidate {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&id.to_be_bytes());
        Candidate { id: PackId(bytes), length, bytes: length, needed }
    }

    fn ids(packs: &[Candidate]) -> Vec<u64> {
        packs.iter().map(|pack| u64::from_be_bytes(pack.id.0[..8].try_into().unwrap())).collect()
    }

    #[test]
    fn wasteful_packs_are_chosen_and_needed_ones_are_not() {
        let packs = [pack(1, FULL, FULL / 2 - 1), pack(2, FULL, FULL / 2), pack(3, 1000, 1000)];
        assert_eq!(ids(&choose(&packs, 50, FULL)), [1]);
        assert_eq!(ids(&choose(&packs, 0, FULL)), [] as [u64; 0]);
    }

    #[test]
    fn a_tier_is_merged_when_it_is_full() {
        let mut packs: Vec<_> = (0..15).map(|id| pack(id, 5000 + id, 5000 + id)).collect();
        // Of another tier.
        packs.push(pack(99, FULL / 20, FULL / 20));
        assert!(choose(&packs, 50, FULL).is_empty());
        packs.push(pack(15, 6000, 6000));
        assert_eq!(choose(&packs, 50, FULL).len(), 16);
    }

    #[test]
    fn many_captures_leave_few_packs_and_copy_each_byte_a_few_times() {
        let (mut packs, mut copied, mut stored) = (Vec::new(), 0, 0);
        for capture in 0..1000_u64 {
            let length = 100_000 + capture * 7919 % 900_000;
            stored += length;
            packs.push(pack(capture, length, length));
            let chosen = choose(&packs, 50, FULL);
            let total: u64 = chosen.iter().map(|pack| pack.needed).sum();
            copied += total;
            packs.retain(|pack| !chosen.contains(pack));
            let mut left = total;
            while left > 0 {
                let length = left.min(FULL);
                packs.push(pack(10_000 + packs.len() as u64 + 1000 * capture, length, length));
                left -= length;
            }
            assert!(packs.len() <= 15 * 7 + (stored / FULL) as usize + 1, "{} packs", packs.len());
        }
        assert!(copied <= stored * 4, "{copied} bytes copied for {stored}");
    }

    #[test]
    fn what_fits_begins_with_what_frees_most() {
        let packs = [pack(1, 1000, 400), pack(2, 1000, 100), pack(3, 1000, 900)];
        assert_eq!(ids(&what_fits(&packs, u64::MAX)), [2, 1, 3]);
        assert_eq!(ids(&what_fits(&packs, 510)), [2, 1], "copies need a little more than the frames");
        assert_eq!(ids(&what_fits(&packs, 506)), [2]);
        assert_eq!(ids(&what_fits(&packs, 0)), [] as [u64; 0]);
    }
}
