//! Arguments of edit tokens: who may publish.

use clap::{Args, Subcommand};
use platter_jobs::{ImageName, TokenChoice};

#[derive(Args, Debug)]
pub(crate) struct TokenOptions {
    /// Publish under the edit token of that number; refused once it has been taken over
    #[arg(long, value_name = "NUMBER")]
    pub(crate) token: Option<u64>,
    /// Publish although somebody holds the image's edit token: he loses it, and what he has cannot be published
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
    /// List the tokens that somebody holds
    List,
    /// Take the token of an image that nobody holds
    Take(TokenOf),
    /// Take the token of an image whoever holds it
    Steal(TokenOf),
    /// Give a token back
    Release(TokenOf),
}

#[derive(Args, Debug)]
pub(crate) struct TokenOf {
    /// The image, such as lab/debian12
    pub(crate) name: ImageName,
    /// Who holds it [default: USER@HOST]
    #[arg(long, value_name = "WHO")]
    pub(crate) holder: Option<String>,
}
