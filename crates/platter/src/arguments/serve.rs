//! Arguments of the origin and of its access tokens.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use platter_daemon::{ListenAddress, NamePattern, Role, UPLOAD_LIMIT_DEFAULT};

use crate::sizes::byte_size;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Serve {
    /// Where: unix:PATH, or ADDRESS:PORT; may be repeated [default: serve.sock in the store's directory]
    #[arg(long, value_name = "WHERE")]
    pub(crate) listen: Vec<ListenAddress>,
    /// A certificate to show over TLS, and those between it and an authority's, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Most bytes that the unfinished uploads of one access token hold [default: 1TiB]
    #[arg(long, value_name = "SIZE", value_parser = byte_size, default_value_t = UPLOAD_LIMIT_DEFAULT, hide_default_value = true)]
    pub(crate) upload_limit: u64,
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Access tokens: who may come in over TCP; changes count at once, also for an origin that runs
    #[command(subcommand)]
    Token(AccessToken),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessToken {
    /// Make a token; its secret is shown this once
    Add {
        /// What to call it
        name: String,
        /// read, write or admin
        #[arg(long)]
        role: Role,
        /// Images that it is for: '*', 'lab/*' or lab/debian12; may be repeated
        #[arg(long = "images", value_name = "PATTERN", required = true)]
        patterns: Vec<NamePattern>,
    },
    /// List all tokens
    List,
    /// Remove a token
    Remove {
        /// Its id, as `list` has it
        id: String,
    },
}
