//! Arguments of `platter token`, which manages edit locks: who may publish the next version of an image.

use clap::{Args, Subcommand};
use platter_jobs::{ImageName, TokenChoice};

#[derive(Args, Debug)]
pub(crate) struct TokenOptions {
    /// Publish under the edit lock with this number; refused if the lock was taken over
    #[arg(long, value_name = "NUMBER")]
    pub(crate) token: Option<u64>,
    /// Take over the edit lock from its holder and publish; the holder's changes cannot become the next version
    #[arg(long, conflicts_with = "token")]
    pub(crate) steal_token: bool,
}

impl From<&TokenOptions> for TokenChoice {
    fn from(options: &TokenOptions) -> Self {
        match options.token {
            Some(number) => Self::Number(number),
            None if options.steal_token => Self::Steal,
            None => Self::Free,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// List held edit locks
    List,
    /// Take the edit lock of an image, if nobody holds it
    Take(TokenOf),
    /// Take over the edit lock of an image from its holder
    Steal(TokenOf),
    /// Release an edit lock
    Release(TokenOf),
}

#[derive(Args, Debug)]
pub(crate) struct TokenOf {
    /// Image, such as lab/debian12
    pub(crate) name: ImageName,
    /// Name of the holder [default: USER@HOST]
    #[arg(long, value_name = "WHO")]
    pub(crate) holder: Option<String>,
}
