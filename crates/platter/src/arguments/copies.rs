//! Arguments of commands that copy versions and stores.

use std::path::PathBuf;

use clap::Args;
use platter_jobs::{Error, Result, VersionChoice};

/// Arguments of `push` and `pull`.
#[derive(Args, Debug)]
pub(crate) struct Push {
    /// NAME for all versions of the image, NAME@NUMBER for one. Last, the other store: its directory, or unix:PATH or
    /// https://HOST:PORT of an origin
    // One argument, so that options may stand anywhere between the words.
    #[arg(value_names = ["IMAGE[@NUMBER]", "STORE-OR-URL"], required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
    /// Also copy versions that were forgotten or renamed in the store that gets them
    #[arg(long)]
    pub(crate) restore: bool,
    /// Read back every block that the store which gets the versions already has, not only a sample; damaged blocks are stored
    /// again
    #[arg(long)]
    pub(crate) verify_known: bool,
    #[command(flatten)]
    pub(crate) access: OtherArguments,
}

impl Push {
    /// The versions and the other store.
    ///
    /// # Errors
    /// `Refused` when there is only one word, or one that names no version.
    pub(crate) fn parts(&self) -> Result<(Vec<VersionChoice>, &str)> {
        match &self.words[..] {
            [what @ .., other] if !what.is_empty() => {
                Ok((what.iter().map(|word| word.parse()).collect::<Result<_>>()?, other))
            }
            _ => Err(Error::refused("name one or more images or versions, and then the other store")),
        }
    }
}

/// How to reach the other store if it is behind an origin.
#[derive(Args, Debug)]
pub(crate) struct OtherArguments {
    /// File with the access token for the other origin [default without --server: --token-file]
    #[arg(long, value_name = "FILE")]
    pub(crate) other_token_file: Option<PathBuf>,
    /// Trust only the certificate of the other origin with this SHA-256 fingerprint [default without --server: --fingerprint]
    #[arg(long, value_name = "SHA256", conflicts_with = "other_ca")]
    pub(crate) other_fingerprint: Option<String>,
    /// Trust certificates of the other origin issued by the authorities in this PEM file [default without --server: --ca]
    #[arg(long, value_name = "FILE")]
    pub(crate) other_ca: Option<PathBuf>,
}

/// Arguments of `follow`.
#[derive(Args, Debug)]
pub(crate) struct Follow {
    /// The origin to follow: unix:PATH or https://HOST:PORT, with --token-file and --fingerprint or --ca
    #[arg(value_name = "URL")]
    pub(crate) origin: String,
    /// Address at which this store is served, for clients of a former origin
    #[arg(long, value_name = "URL")]
    pub(crate) address: Option<String>,
    /// End when the store is up to date
    #[arg(long)]
    pub(crate) once: bool,
    /// Remove versions that the origin does not have and has not forgotten, after it was rebuilt or replaced
    #[arg(long)]
    pub(crate) accept_loss: bool,
}

/// Arguments of `promote`.
#[derive(Args, Debug)]
pub(crate) struct Promote {
    /// Address of the former origin, if it has another one now: unix:PATH or https://HOST:PORT
    #[arg(long, value_name = "URL", conflicts_with = "without_origin")]
    pub(crate) origin: Option<String>,
    /// Address at which this store is served, for messages of the former origin
    #[arg(long, value_name = "URL")]
    pub(crate) address: Option<String>,
    /// Promote although the former origin cannot be told. Only if it is lost: until it learns of this, it accepts changes
    #[arg(long)]
    pub(crate) without_origin: bool,
    /// Promote with the next epoch although another follower was promoted in this place; also at a store that was promoted
    /// already. Only if the other store is lost
    #[arg(long)]
    pub(crate) supersede: bool,
}

/// Arguments of `copies`.
#[derive(Args, Debug)]
pub(crate) struct Copies {
    /// Remove the registration of a follower that does not exist any more
    #[arg(long, value_name = "ID")]
    pub(crate) remove: Option<String>,
}
