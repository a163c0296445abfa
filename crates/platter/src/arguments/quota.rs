//! Arguments of `platter quota`.

use clap::Subcommand;
use platter_jobs::ImageName;

use crate::sizes::byte_size;

#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// List the quotas and what is used of them
    List,
    /// Limit what an image and all images below it hold
    Set {
        /// Image, or start of names: lab limits lab, lab/debian12 and lab/a/b together
        prefix: ImageName,
        /// Most bytes of distinct blocks and pages, uncompressed, such as 500M, 20G or 1T. May be lower than what is used
        #[arg(value_parser = byte_size)]
        size: u64,
    },
    /// Remove a quota
    Remove {
        /// Image, or start of names, as printed by `list`
        prefix: ImageName,
    },
}
