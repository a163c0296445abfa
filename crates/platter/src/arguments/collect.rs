//! Arguments of garbage collection and retention.

use std::time::Duration;

use clap::Args;
use platter_jobs::{CollectRequest, RetentionPolicy};

use crate::sizes::duration_or_zero;

#[derive(Args, Debug)]
pub(crate) struct Gc {
    /// Keep the files of packs that were given up this long, for readers that planned to read them; 0 deletes them at once
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration_or_zero)]
    pub(crate) keep_trash: Duration,
    /// Rewrite packs of which less than this percentage is needed; 0 rewrites none
    #[arg(long, value_name = "PERCENT", default_value_t = CollectRequest::COMPACT_PERCENT, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub(crate) compact: u64,
    /// Also compress again, at this zstd level, the packs that get smaller by it: a sample of each tells. 9 is quick, 19 the smallest
    /// and slowest. Until the trash is emptied, old and new packs take space; at most half of what is free is used
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(crate) recompress: Option<i32>,
    /// Also give up forgotten disks that clients of the origin read in the last 7 days; those that still read them then fail
    #[arg(long)]
    pub(crate) end_leases: bool,
    /// Only report what would be given up
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask before more than 30 % of all bytes are given up
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Images {
    /// Compute what each image costs: the bytes that no other image needs. Walks all recipes. --json prints one object
    #[arg(long)]
    pub(crate) costs: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Keep {
    /// Forget all versions of the image except the newest N
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    keep_last: Option<usize>,
    /// Keep the newest version of each of the last N hours that have one (UTC)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    keep_hourly: Option<usize>,
    /// The same for days
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    keep_daily: Option<usize>,
    /// The same for weeks
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    keep_weekly: Option<usize>,
    /// The same for months
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    keep_monthly: Option<usize>,
    /// The same for years
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    keep_yearly: Option<usize>,
    /// Keep versions with this label; can be repeated
    #[arg(long, value_name = "KEY[=VALUE]", value_parser = label)]
    keep_label: Vec<String>,
    /// With --keep-…: apply the policy to all images below NAME as well
    #[arg(long)]
    pub(crate) below: bool,
    /// With --keep-…: only report what would be kept, why, and what would be forgotten
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// An empty key would keep nothing, such as that of a variable that is not set.
fn label(text: &str) -> Result<String, String> {
    match text.split('=').next() {
        Some("") | None => Err("the label has no name".into()),
        Some(_) => Ok(text.to_owned()),
    }
}

/// 0 would be no rule. With other rules it would be ignored, and alone, all versions would be forgotten.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("this rule would keep nothing: leave it out, or forget all versions with --all".into()),
        Ok(count) => Ok(count),
        Err(_) => Err("write a number of versions, from 1".into()),
    }
}

impl Keep {
    /// Returns the policy.
    pub(crate) fn policy(&self) -> RetentionPolicy {
        RetentionPolicy {
            last: self.keep_last.unwrap_or_default(),
            hourly: self.keep_hourly.unwrap_or_default(),
            daily: self.keep_daily.unwrap_or_default(),
            weekly: self.keep_weekly.unwrap_or_default(),
            monthly: self.keep_monthly.unwrap_or_default(),
            yearly: self.keep_yearly.unwrap_or_default(),
            labels: self.keep_label.iter().cloned().collect(),
        }
    }
}
