//! Arguments of `platter lock`, which manages edit locks: who may publish the next version of an image.

use clap::{Args, Subcommand};
use platter_jobs::{EditLockChoice, ImageName};

#[derive(Args, Debug)]
pub(crate) struct LockOptions {
    /// Publish under the edit lock with this number; refused if the lock was taken over
    #[arg(long, value_name = "NUMBER")]
    pub(crate) lock: Option<u64>,
    /// Take over the edit lock from its holder and publish; the holder's changes cannot become the next version
    #[arg(long, conflicts_with = "lock")]
    pub(crate) steal_lock: bool,
}

impl From<&LockOptions> for EditLockChoice {
    fn from(options: &LockOptions) -> Self {
        match options.lock {
            Some(number) => Self::Number(number),
            None if options.steal_lock => Self::Steal,
            None => Self::Free,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lock {
    /// List held edit locks
    List,
    /// Take the edit lock of an image, if nobody holds it
    Take(LockOf),
    /// Take over the edit lock of an image from its holder
    Steal(LockOf),
    /// Release an edit lock
    Release(LockOf),
}

#[derive(Args, Debug)]
pub(crate) struct LockOf {
    /// Image, such as lab/debian12
    pub(crate) name: ImageName,
    /// Name of the holder [default: USER@HOST]
    #[arg(long, value_name = "WHO")]
    pub(crate) holder: Option<String>,
}
