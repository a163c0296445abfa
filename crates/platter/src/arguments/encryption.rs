//! Arguments about encrypted stores: how to open one, `init`, and `encryption`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::GLOBAL;

/// The secret that opens an encrypted store. Without one, a passphrase is asked for on a terminal.
#[derive(Args, Debug)]
pub(crate) struct UnlockArguments {
    /// Open an encrypted store with this key file [default: $PLATTER_UNLOCK_FILE]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE", hide_short_help = true)]
    pub(crate) unlock_file: Option<PathBuf>,
    /// Open an encrypted store with what this shell command prints [default: $PLATTER_UNLOCK_COMMAND]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "COMMAND", hide_short_help = true, conflicts_with = "unlock_file")]
    pub(crate) unlock_command: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Encrypt the data of the store, with a new key file, with what a command prints, or with a passphrase that is asked for
    #[arg(long)]
    pub(crate) encrypt: bool,
    #[command(flatten)]
    pub(crate) secret: NewSecret,
    /// Use the key of another encrypted store, so that the two can exchange data: FILE is its keys.json
    #[arg(long, value_name = "FILE", conflicts_with = "encrypt")]
    pub(crate) same_key_as: Option<PathBuf>,
}

/// A secret for a key slot. Without one, a new passphrase is asked for on a terminal.
#[derive(Args, Debug)]
pub(crate) struct NewSecret {
    /// Key file: created with random contents if it is missing; one that exists must belong to this user or root
    #[arg(long, value_name = "FILE")]
    pub(crate) new_file: Option<PathBuf>,
    /// Shell command that prints the secret
    #[arg(long, value_name = "COMMAND", conflicts_with = "new_file")]
    pub(crate) new_command: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Encryption {
    /// List the key slots of the store
    List,
    /// Add a key slot
    Add {
        #[command(flatten)]
        secret: NewSecret,
        /// What to call the slot
        #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
        label: String,
    },
    /// Replace the secret of a key slot
    Change {
        /// Number of the slot
        slot: u32,
        #[command(flatten)]
        secret: NewSecret,
    },
    /// Remove a key slot
    Remove {
        /// Number of the slot
        slot: u32,
    },
}
