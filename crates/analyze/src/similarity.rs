//! What a tally says: how much of each image others have, how much every two images share, and how similar all are.

use crate::parallel::for_each;
use crate::tally::Tally;

/// Of more images, the matrix of overlaps is left out: it would have 8 bytes for every two of them.
pub const MATRIX_IMAGES_MAX: usize = 1000;

/// How much of an image's data others have. Numbers and bytes are scaled if only a sample was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageShare {
    /// Distinct pieces.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes of those that at least one other image has.
    pub shared_bytes: u64,
}

/// How similar some images are.
#[derive(Clone, Debug, PartialEq)]
pub struct Similarity {
    /// Each image, in order.
    pub images: Vec<ImageShare>,
    /// Distinct pieces of all images.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For every two images the bytes that both have; on the diagonal those of one image. Empty above [`MATRIX_IMAGES_MAX`].
    pub overlap_bytes: Vec<Vec<u64>>,
    /// The bytes of pieces that several images have, each counted once for each of these images, as a share of the bytes of all
    /// pieces counted in the same way. 0: no two images have anything in common; 1: each piece is in several images
    /// (Razavi et al. 2014, section 4.3.1, there for blocks of one size). `None` without data.
    pub cross_similarity: Option<f64>,
}

impl Similarity {
    /// Computes it, on this many threads. Takes time in proportion to the pieces of all images times the number of images.
    pub fn of(tally: &Tally, threads: usize) -> Self {
        let factor = tally.sample().factor();
        let size = |number: &u32| tally.sizes().get(*number as usize).copied().unwrap_or(0);
        let owners = tally.owners();
        let is_shared = |number: &u32| owners.get(*number as usize).is_some_and(|owners| *owners > 1);
        let images: Vec<ImageShare> = tally
            .images()
            .iter()
            .map(|pieces| ImageShare {
                pieces: pieces.len() as u64 * factor,
                bytes: pieces.iter().map(size).sum::<u64>() * factor,
                shared_bytes: pieces.iter().filter(|number| is_shared(number)).map(size).sum::<u64>()
                    * factor,
            })
            .collect();
        let all: u64 = images.iter().map(|image| image.bytes).sum();
        let shared: u64 = images.iter().map(|image| image.shared_bytes).sum();
        Self {
            pieces: tally.sizes().len() as u64 * factor,
            bytes: tally.sizes().iter().sum::<u64>() * factor,
            overlap_bytes: overlaps(tally, factor, threads),
            cross_similarity: (all > 0).then(|| shared as f64 / all as f64),
            images,
        }
    }
}

/// The bytes that every two images share; nothing above [`MATRIX_IMAGES_MAX`].
fn overlaps(tally: &Tally, factor: u64, threads: usize) -> Vec<Vec<u64>> {
    let images = tally.images();
    if images.len() > MATRIX_IMAGES_MAX {
        return Vec::new();
    }
    // Row A has the images from A on.
    let row = |a: usize| -> Vec<u64> {
        images[a..].iter().map(|other| common_bytes(tally.sizes(), &images[a], other) * factor).collect()
    };
    // It fails only if a thread panics, and these do nothing that can.
    let upper = for_each(images, threads, |a, _| Ok(row(a))).unwrap_or_default();
    let mut all = vec![vec![0; images.len()]; images.len()];
    for (a, row) in upper.into_iter().enumerate() {
        for (b, bytes) in (a..).zip(row) {
            all[a][b] = bytes;
            all[b][a] = bytes;
        }
    }
    all
}

/// The bytes of the numbers that are in both ascending lists.
fn common_bytes(sizes: &[u64], a: &[u32], b: &[u32]) -> u64 {
    let (mut a, mut b, mut bytes) = (a.iter().peekable(), b.iter().peekable(), 0);
    while let (Some(first), Some(second)) = (a.peek(), b.peek()) {
        match first.cmp(second) {
            std::cmp::Ordering::Less => drop(a.next()),
            std::cmp::Ordering::Greater => drop(b.next()),
            std::cmp::Ordering::Equal => {
                bytes += sizes.get(**first as usize).copied().unwrap_or(0);
                a.next();
                b.next();
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::tally::{Digest, Sample};

    /// The same by brute force: every piece of every image is compared with every piece of every other.
    fn brute_force(images: &[BTreeMap<Digest, u64>]) -> Similarity {
        let has = |image: &BTreeMap<Digest, u64>, digest: &Digest| image.contains_key(digest);
        let mut all: BTreeMap<Digest, u64> = BTreeMap::new();
        images.iter().for_each(|image| all.extend(image.clone()));
        let shares = images.iter().enumerate().map(|(own, image)| ImageShare {
            pieces: image.len() as u64,
            bytes: image.values().sum(),
            shared_bytes: image
                .iter()
                .filter(|(digest, _)| {
                    (0..images.len()).any(|other| other != own && has(&images[other], digest))
                })
                .map(|(_, size)| size)
                .sum(),
        });
        let (mut shared, mut total) = (0, 0);
        for (digest, size) in &all {
            let repeated = images.iter().filter(|image| has(image, digest)).count() as u64;
            total += repeated * size;
            shared += if repeated > 1 { repeated * size } else { 0 };
        }
        let common = |a: &BTreeMap<Digest, u64>, b: &BTreeMap<Digest, u64>| {
            a.iter().filter(|(digest, _)| has(b, digest)).map(|(_, size)| size).sum::<u64>()
        };
        Similarity {
            images: shares.collect(),
            pieces: all.len() as u64,
            bytes: all.values().sum(),
            overlap_bytes: images.iter().map(|a| images.iter().map(|b| common(a, b)).collect()).collect(),
            cross_similarity: (total > 0).then(|| shared as f64 / total as f64),
        }
    }

    /// A digest that looks like a hash, and a size that belongs to it.
    fn piece(number: u16) -> (Digest, u64) {
        let mixed =
            u128::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        ((mixed ^ (mixed >> 61)).to_be_bytes(), 512 * (1 + u64::from(number % 128)))
    }

    proptest! {
        #[test]
        fn it_is_what_brute_force_finds(
            numbers in prop::collection::vec(prop::collection::btree_set(0..120_u16, 0..90), 0..7),
            threads in 1..4_usize,
        ) {
            let images: Vec<BTreeMap<Digest, u64>> =
                numbers.iter().map(|own| own.iter().map(|number| piece(*number)).collect()).collect();
            let mut tally = Tally::new(images.len(), 1 << 30);
            for (number, image) in images.iter().enumerate() {
                tally.set(number, Sample::default(), image.clone());
            }
            prop_assert_eq!(Similarity::of(&tally, threads), brute_force(&images));
        }
    }

    #[test]
    fn of_too_many_images_there_is_no_matrix() {
        let rows = |images| Similarity::of(&Tally::new(images, 1 << 20), 2).overlap_bytes.len();
        assert_eq!(rows(MATRIX_IMAGES_MAX), MATRIX_IMAGES_MAX);
        assert_eq!(rows(MATRIX_IMAGES_MAX + 1), 0);
    }

    /// With too little memory, the results of a sample are near the exact ones.
    #[test]
    fn a_sample_is_near_the_exact_result() {
        let images: Vec<BTreeMap<Digest, u64>> =
            [0..40_000_u16, 20_000..60_000, 5_000..25_000].map(|range| range.map(piece).collect()).to_vec();
        let mut tally = Tally::new(3, 1_000_000);
        for (number, image) in images.iter().enumerate() {
            tally.set(number, Sample::default(), image.clone());
        }
        assert!(tally.sample().factor() >= 4, "{}", tally.sample().factor());
        let (found, exact) = (Similarity::of(&tally, 2), brute_force(&images));
        let near = |found: u64, exact: u64| {
            let error = (found as f64 / exact as f64 - 1.0).abs();
            assert!(error < 0.05, "{found} instead of {exact}");
        };
        near(found.bytes, exact.bytes);
        near(found.pieces, exact.pieces);
        for a in 0..3 {
            near(found.images[a].shared_bytes, exact.images[a].shared_bytes);
            (0..3).for_each(|b| near(found.overlap_bytes[a][b], exact.overlap_bytes[a][b]));
        }
        assert!((found.cross_similarity.unwrap() - exact.cross_similarity.unwrap()).abs() < 0.02);
    }
}
