//! Arguments about signatures: which versions this machine accepts, signing keys, and `key`, `sign` and `verify`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use platter_jobs::{SignaturePolicy, default_directory};

use super::version::VersionArgument;

/// Help that several arguments share.
const DIRECTORY: &str = "Directory of the trusted keys, files NAME.pub [default: $PLATTER_TRUSTED_KEYS, else /etc/platter/trusted-keys \
    for root, else ~/.config/platter/trusted-keys]";

/// The directory of the trusted keys.
#[derive(Args, Debug)]
pub(crate) struct TrustedKeysArgument {
    #[arg(long, value_name = "DIR", help = DIRECTORY)]
    pub(crate) trusted_keys: Option<PathBuf>,
}

impl TrustedKeysArgument {
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        let named = || std::env::var_os("PLATTER_TRUSTED_KEYS").filter(|value| !value.is_empty());
        self.trusted_keys.clone().or_else(|| named().map(PathBuf::from)).or_else(default_directory)
    }
}

/// Which versions a command accepts.
#[derive(Args, Debug)]
pub(crate) struct SignatureArguments {
    #[command(flatten)]
    pub(crate) keys: TrustedKeysArgument,
    /// Accept a signed version that is older than one which this machine used before
    #[arg(long, hide_short_help = true)]
    pub(crate) allow_older: bool,
}

impl SignatureArguments {
    pub(crate) fn policy(&self) -> SignaturePolicy {
        SignaturePolicy { directory: self.keys.directory(), allow_older: self.allow_older }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Create a signing key: FILE has the secret key, FILE.pub the public key
    ///
    /// Asks for a password, by which the secret key is encrypted. The files have the format of minisign.
    Create {
        /// File for the secret key
        file: PathBuf,
        /// Do not encrypt the secret key: whoever reads the file can sign
        #[arg(long)]
        no_password: bool,
    },
    /// Trust a public key: from now on, this machine uses only versions that a trusted key signed
    Trust {
        /// File with the public key
        file: PathBuf,
        #[command(flatten)]
        keys: TrustedKeysArgument,
    },
    /// Trust a public key no longer
    Distrust {
        /// Id of the key, or a file with it
        id: String,
        #[command(flatten)]
        keys: TrustedKeysArgument,
    },
    /// List the trusted keys
    List {
        #[command(flatten)]
        keys: TrustedKeysArgument,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Sign {
    /// NAME (the latest version) or NAME@NUMBER
    #[arg(required = true)]
    pub(crate) versions: Vec<VersionArgument>,
    /// File with the secret key. Its password is read from the terminal, or from $PLATTER_KEY_PASSWORD
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// NAME (the latest version) or NAME@NUMBER
    #[arg(required = true)]
    pub(crate) versions: Vec<VersionArgument>,
    /// Accept only the signature of this public key; can be repeated
    #[arg(long, value_name = "FILE", conflicts_with = "trusted_keys")]
    pub(crate) key: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) keys: TrustedKeysArgument,
}
