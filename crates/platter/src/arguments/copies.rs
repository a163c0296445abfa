//! Arguments of commands that copy versions and stores.

use std::path::PathBuf;

use clap::Args;
use platter_jobs::VersionChoice;

/// Arguments of `push` and `pull`.
#[derive(Args, Debug)]
pub(crate) struct Push {
    /// NAME for all versions of the image, NAME@NUMBER for one
    #[arg(value_name = "IMAGE[@NUMBER]", required = true, num_args = 1..)]
    pub(crate) what: Vec<VersionChoice>,
    /// The other store: its directory, or unix:PATH or https://HOST:PORT of an origin
    #[arg(value_name = "STORE-OR-URL")]
    pub(crate) other: String,
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
