//! Counts the blocks of all images for one plan, and what new ones take.

use platter_image::Result;

use super::cut::{ContentCutter, cut_aligned};
use super::frames::Frames;
use super::plan::{Cut, Plan};
use crate::tally::{Added, Digest, Tally};

/// The blocks of all images, cut and compressed by one plan.
pub(super) struct Counter {
    plan: Plan,
    content: ContentCutter,
    /// Where the data ended that was added last.
    end: u64,
    counts: Counts,
}

/// What a counter counts, apart from its cutter.
struct Counts {
    tally: Tally,
    frames: Frames,
    image: usize,
    /// For each image its data and what it added, in bytes.
    images: Vec<Grown>,
    failure: Result<()>,
}

/// One image's data, and what it added to the images before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grown {
    /// Data, counted at each place.
    pub(crate) data_bytes: u64,
    /// What its new blocks take, compressed.
    pub(crate) stored_bytes: u64,
    /// What its recipe takes, if that is known.
    pub(crate) recipe_bytes: Option<u64>,
}

/// The result of a plan.
pub(crate) struct Counted {
    pub(crate) tally: Tally,
    pub(crate) images: Vec<Grown>,
}

impl Counter {
    /// Counts for that many images, in about `bytes_max` bytes of memory.
    pub(super) fn new(plan: Plan, images: usize, bytes_max: u64) -> Result<Self> {
        Ok(Self {
            plan,
            content: ContentCutter::new(plan.block_bytes as usize),
            end: 0,
            counts: Counts {
                tally: Tally::new(images, bytes_max),
                frames: Frames::new(plan.compression, plan.frame_bytes)?,
                image: 0,
                images: vec![Grown::default(); images],
                failure: Ok(()),
            },
        })
    }

    /// Adds data of the current image. It begins at a multiple of the largest block, and behind all that was added before.
    pub(super) fn add(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        if offset != self.end {
            self.gap()?;
        }
        let Self { plan, content, end, counts } = self;
        *end = offset + data.len() as u64;
        match plan.cut {
            Cut::Content => content.cut(data, &mut |block| counts.take(block)),
            Cut::Aligned | Cut::Files => {
                cut_aligned(data, plan.block_bytes as usize, &mut |block| counts.take(block));
            }
        }
        std::mem::replace(&mut counts.failure, Ok(()))
    }

    /// The image has a gap here: what follows continues nothing.
    fn gap(&mut self) -> Result<()> {
        let Self { content, counts, .. } = self;
        content.end(&mut |block| counts.take(block));
        std::mem::replace(&mut counts.failure, Ok(()))
    }

    /// The image is complete; the next one follows.
    pub(super) fn end_image(&mut self) -> Result<()> {
        self.gap()?;
        let counts = &mut self.counts;
        counts.frames.finish()?;
        counts.take_stored();
        counts.tally.finish(counts.image);
        counts.image += 1;
        self.end = 0;
        Ok(())
    }

    pub(super) fn finish(self) -> Counted {
        Counted { tally: self.counts.tally, images: self.counts.images }
    }
}

impl Counts {
    fn take(&mut self, block: &[u8]) {
        if self.failure.is_ok() {
            self.failure = self.count(block);
        }
    }

    fn count(&mut self, block: &[u8]) -> Result<()> {
        let length = block.len() as u64;
        if let Some(image) = self.images.get_mut(self.image) {
            image.data_bytes += length;
        }
        let digest: Digest = *blake3::hash(block).as_bytes().first_chunk().unwrap_or(&[0; 16]);
        let before = self.tally.sample();
        let added = self.tally.add(self.image, digest, length);
        if self.tally.sample() != before {
            // What came before stands for fewer blocks than what follows.
            self.frames.finish()?;
            self.stored_with(before.factor());
        }
        match added {
            Added::New => self.frames.push(block),
            Added::Known | Added::NotCounted => Ok(()),
        }
    }

    fn take_stored(&mut self) {
        self.stored_with(self.tally.sample().factor());
    }

    fn stored_with(&mut self, factor: u64) {
        let stored = self.frames.take_stored_bytes() * factor;
        if let Some(image) = self.images.get_mut(self.image) {
            image.stored_bytes += stored;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::plan::Compression;
    use super::*;

    fn plan(cut: Cut, block_bytes: u64) -> Plan {
        Plan { cut, block_bytes, compression: Compression::Zstd(1), frame_bytes: 128 << 10 }
    }

    /// A disk of sectors, each filled with one byte; 0 is free.
    fn disk(sectors: &[u8]) -> Vec<u8> {
        sectors.iter().flat_map(|byte| [*byte; 512]).collect()
    }

    proptest! {
        /// Aligned blocks of every size: as brute force counts them.
        #[test]
        fn it_counts_as_brute_force_does(
            disks in prop::collection::vec(prop::collection::vec(0..4_u8, 0..200), 1..5),
            log2 in 9..13_u32,
        ) {
            let size = 1 << log2;
            let mut counter = Counter::new(plan(Cut::Aligned, size), disks.len(), 1 << 30).unwrap();
            for sectors in &disks {
                for (number, part) in (0..).zip(disk(sectors).chunks(1 << 13)) {
                    counter.add(number << 13, part).unwrap();
                }
                counter.end_image().unwrap();
            }
            let Counted { tally, images } = counter.finish();
            let blocks = |sectors: &[u8]| -> Vec<Vec<u8>> {
                let cut = disk(sectors).chunks(size as usize).map(<[u8]>::to_vec).collect::<Vec<_>>();
                let trim = |mut block: Vec<u8>| {
                    while block.len() >= 512 && block[block.len() - 512..].iter().all(|byte| *byte == 0) {
                        block.truncate(block.len() - 512);
                    }
                    block
                };
                cut.into_iter().map(trim).filter(|block| !block.is_empty()).collect()
            };
            let mut all = BTreeSet::new();
            for (number, sectors) in disks.iter().enumerate() {
                let own = blocks(sectors);
                prop_assert_eq!(images[number].data_bytes, own.iter().map(Vec::len).sum::<usize>() as u64);
                let own: BTreeSet<Vec<u8>> = own.into_iter().collect();
                prop_assert_eq!(tally.images()[number].len(), own.len());
                let adds_something = !own.is_subset(&all);
                prop_assert_eq!(images[number].stored_bytes > 0, adds_something);
                all.extend(own);
            }
            prop_assert_eq!(tally.sizes().len(), all.len());
            prop_assert_eq!(tally.sizes().iter().sum::<u64>(), all.iter().map(Vec::len).sum::<usize>() as u64);
        }
    }

    /// With little memory, a sample gives nearly the same sizes.
    #[test]
    fn a_sample_gives_nearly_the_same_sizes() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8 & 15
        };
        let data: Vec<u8> = (0..8 << 20).map(|_| random()).collect();
        let counted = |bytes_max| {
            let mut counter = Counter::new(plan(Cut::Aligned, 512), 2, bytes_max).unwrap();
            for _ in 0..2 {
                counter.add(0, &data).unwrap();
                counter.end_image().unwrap();
            }
            counter.finish()
        };
        let (exact, sampled) = (counted(1 << 30), counted(200_000));
        assert_eq!((exact.tally.sample().factor(), exact.images[1].stored_bytes), (1, 0));
        assert!(sampled.tally.sample().factor() > 2);
        let near = |found: u64, exact: u64| (found as f64 / exact as f64 - 1.0).abs() < 0.08;
        let bytes = sampled.tally.sizes().iter().sum::<u64>() * sampled.tally.sample().factor();
        assert!(near(bytes, 8 << 20), "{bytes}");
        let stored = sampled.images[0].stored_bytes;
        assert!(near(stored, exact.images[0].stored_bytes), "{stored} {}", exact.images[0].stored_bytes);
    }
}
