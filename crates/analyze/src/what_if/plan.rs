//! The choices of a prediction: how to cut, into blocks of which size, and how to compress.

use std::fmt;
use std::str::FromStr;

use platter_image::{Error, Result};
use serde::{Serialize, Serializer};

/// The smallest blocks, in bytes.
pub const BLOCK_BYTES_MIN: u64 = 512;
/// The largest blocks, in bytes.
pub const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// The sizes of blocks of a store, in bytes.
const STORE_SIZES: [u64; 2] = [32 << 10, 64 << 10];

/// How data is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Along files, as captures do.
    Files,
    /// At multiples of the size from the start of the disk.
    Aligned,
    /// Where the contents say so; the size is the mean.
    Content,
}

impl FromStr for Cut {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "files" => Ok(Self::Files),
            "aligned" => Ok(Self::Aligned),
            "content" => Ok(Self::Content),
            _ => Err(Error::refused(format!("{text:?} is no cut: choose files, aligned or content"))),
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Files => "files",
            Self::Aligned => "aligned",
            Self::Content => "content",
        })
    }
}

impl Serialize for Cut {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How frames are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// By zstd with a level from 1 to 19.
    Zstd(i32),
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let level = text.strip_prefix("zstd-").and_then(|level| level.parse().ok());
        match (text, level) {
            ("none", _) => Ok(Self::None),
            (_, Some(level @ 1..=19)) => Ok(Self::Zstd(level)),
            _ => Err(Error::refused(format!("{text:?} is no compressor: choose zstd-1 to zstd-19, or none"))),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Zstd(level) => write!(f, "zstd-{level}"),
        }
    }
}

impl Serialize for Compression {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How to cut.
    pub cut: Cut,
    /// The size of blocks, in bytes; with [`Cut::Content`] the mean.
    pub block_bytes: u64,
    /// How to compress.
    pub compression: Compression,
    /// The bytes of blocks in a frame before compression; a larger block has a frame of its own.
    pub frame_bytes: usize,
}

/// The predictions of an analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// Each of them.
    pub plans: Vec<Plan>,
    /// What was left out.
    pub note: Option<&'static str>,
}

impl WhatIf {
    /// Every cut with every size, each once. Without sizes: blocks of 64 KiB. Without cuts: aligned if sizes were chosen, else along
    /// files. Along files, blocks have the sizes of a store; other sizes are left out, with a note.
    ///
    /// # Errors
    /// `Refused` for a size that is out of range or no power of two, and if nothing remains.
    pub fn new(cuts: &[Cut], sizes: &[u64], compression: Compression, frame_bytes: usize) -> Result<Self> {
        if let Some(size) = sizes
            .iter()
            .find(|size| !size.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(*size))
        {
            return Err(Error::refused(format!(
                "blocks of {size} bytes: choose a power of two from 512 bytes to 1MiB, such as 4KiB"
            )));
        }
        let default = [if sizes.is_empty() { Cut::Files } else { Cut::Aligned }];
        let cuts = if cuts.is_empty() { &default[..] } else { cuts };
        let sizes = if sizes.is_empty() { &STORE_SIZES[1..] } else { sizes };
        let mut what_if = Self::default();
        for (cut, block_bytes) in cuts.iter().flat_map(|cut| sizes.iter().map(move |size| (*cut, *size))) {
            let plan = Plan { cut, block_bytes, compression, frame_bytes };
            if cut == Cut::Files && !STORE_SIZES.contains(&block_bytes) {
                what_if.note = Some("along files, blocks have 32KiB or 64KiB: other sizes are left out");
            } else if !what_if.plans.contains(&plan) {
                what_if.plans.push(plan);
            }
        }
        if what_if.plans.is_empty() {
            return Err(Error::refused(
                "along files, blocks have 32KiB or 64KiB: choose one of them, or --cut aligned or content",
            ));
        }
        Ok(what_if)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(cuts: &[Cut], sizes: &[u64]) -> Vec<(Cut, u64)> {
        let made = WhatIf::new(cuts, sizes, Compression::Zstd(3), 128 << 10).unwrap();
        made.plans.iter().map(|plan| (plan.cut, plan.block_bytes)).collect()
    }

    #[test]
    fn combinations() {
        assert_eq!(listed(&[], &[]), [(Cut::Files, 65536)]);
        assert_eq!(listed(&[], &[512, 65536]), [(Cut::Aligned, 512), (Cut::Aligned, 65536)]);
        assert_eq!(listed(&[Cut::Content], &[]), [(Cut::Content, 65536)]);
        let both = listed(&[Cut::Files, Cut::Aligned], &[4096, 32768]);
        assert_eq!(both, [(Cut::Files, 32768), (Cut::Aligned, 4096), (Cut::Aligned, 32768)]);
        assert_eq!(listed(&[Cut::Files, Cut::Aligned], &[4096]), [(Cut::Aligned, 4096)]);
        assert_eq!(listed(&[Cut::Aligned; 2], &[4096; 65]), [(Cut::Aligned, 4096)]);
    }

    #[test]
    fn sizes_that_are_left_out_have_a_note() {
        let noted = |cuts: &[Cut], sizes: &[u64]| {
            WhatIf::new(cuts, sizes, Compression::None, 1).unwrap().note.is_some()
        };
        assert!(noted(&[Cut::Files], &[4096, 32768]));
        assert!(noted(&[Cut::Files, Cut::Aligned], &[4096]));
        assert!(!noted(&[Cut::Files, Cut::Content], &[32768, 65536]));
        assert!(!noted(&[Cut::Aligned], &[4096]));
    }

    #[test]
    fn impossible_choices_are_refused() {
        let made = |cuts: &[Cut], sizes: &[u64]| WhatIf::new(cuts, sizes, Compression::None, 1);
        for size in [0, 256, 1000, 2 << 20, u64::MAX] {
            assert!(made(&[], &[size]).is_err(), "{size}");
        }
        assert!(made(&[Cut::Files], &[4096]).is_err());
        for text in ["", "zstd", "zstd-0", "zstd-20", "lz4", "zstd-x"] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
        assert_eq!("zstd-19".parse::<Compression>().unwrap().to_string(), "zstd-19");
        assert!("fixed".parse::<Cut>().is_err());
    }
}
