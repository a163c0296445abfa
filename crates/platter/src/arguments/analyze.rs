//! Arguments of `analyze`.

use std::path::PathBuf;

use clap::Args;
use platter_analyze::{Compression, Cut, WhatIf};
use platter_jobs::Result;

use super::version::PartArgument;
use crate::sizes::byte_size;

#[derive(Args, Debug)]
pub(crate) struct Analyze {
    /// NAME[@NUMBER], a score, or NAME:N for partition N [default: the newest version of every image]
    #[arg(value_name = "IMAGE")]
    pub(crate) images: Vec<PartArgument>,
    /// Memory for the counts in MiB; past it, a sample of the blocks is counted
    #[arg(long, default_value_t = 512, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) memory: u32,
    /// Also compare files by their contents, whatever filesystem has them; reads all files. Sizes are without holes and zeros
    #[arg(long)]
    pub(crate) files: bool,
    /// Also draw the matrices as heat maps, and how the store grows with each image, in this new file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Also predict what the images would take with other sizes of blocks: powers of two from 512 to 1MiB, such as 4KiB; several with commas
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = byte_size)]
    pub(crate) block_size: Vec<u64>,
    /// Also predict what they would take if cut along files (as captures do, 32KiB or 64KiB), at multiples of the size (aligned), or
    /// where the contents say so (content) [default: aligned with --block-size, else files]
    #[arg(long, value_name = "CUT", value_delimiter = ',')]
    pub(crate) cut: Vec<Cut>,
    /// Also predict what they would take if compressed by this: zstd-1 to zstd-19, or none [default: zstd-3]
    #[arg(long, value_name = "COMPRESSOR")]
    pub(crate) compressor: Option<Compression>,
    /// Frame size of predictions before compression, in KiB
    #[arg(long, default_value_t = 128, value_name = "KIB", value_parser = clap::value_parser!(u16).range(4..=256))]
    pub(crate) frame_size: u16,
}

impl Analyze {
    /// What to predict; nothing, unless one of the options asks for it.
    ///
    /// # Errors
    /// `Refused` for combinations that cannot be predicted.
    pub(crate) fn what_if(&self) -> Result<WhatIf> {
        if self.block_size.is_empty() && self.cut.is_empty() && self.compressor.is_none() {
            return Ok(WhatIf::default());
        }
        let compression = self.compressor.unwrap_or(Compression::Zstd(3));
        WhatIf::new(&self.cut, &self.block_size, compression, usize::from(self.frame_size) << 10)
    }
}
