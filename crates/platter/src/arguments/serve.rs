//! Arguments of the origin and of its access tokens.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use platter_daemon::{ListenAddress, NamePattern, Role, UPLOAD_LIMIT_DEFAULT};

use crate::sizes::{bits_per_second, byte_size, duration, seconds};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Serve {
    /// Address to listen on: unix:PATH or ADDRESS:PORT; can be repeated [default: serve.sock in the store directory]
    #[arg(long, value_name = "WHERE")]
    pub(crate) listen: Vec<ListenAddress>,
    /// TLS certificate, followed by its intermediate certificates, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Replace the server that runs on this store, without refusing a client; it must listen at the same addresses
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Size limit for unfinished uploads per access token [default: 1TiB]
    #[arg(long, value_name = "SIZE", value_parser = byte_size, default_value_t = UPLOAD_LIMIT_DEFAULT, hide_default_value = true)]
    pub(crate) upload_limit: u64,
    /// Collect garbage in these intervals, such as 24h, as by `platter gc`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) gc: Option<Duration>,
    /// Then also rewrite packs that get smaller at this zstd level, as by `platter gc --recompress`
    #[arg(long, value_name = "LEVEL", requires = "gc", value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(crate) recompress: Option<i32>,
    /// Read every block back once in this period, such as 30d, at low priority; damaged frames go into quarantine
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) scrub: Option<Duration>,
    #[command(flatten)]
    pub(crate) casts: ServeCasts,
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
}

/// Casts on demand.
#[derive(Args, Debug)]
pub(crate) struct ServeCasts {
    /// Cast versions on this interface (name or address) to machines that run `platter receive --server`: the first one
    /// starts the cast of a version, and the last one ends it
    #[arg(long, value_name = "IF")]
    pub(crate) cast: Option<String>,
    /// Rate limit of all casts together in bits per second, such as 400M or 2.5G
    #[arg(long, default_value = "900M", value_parser = bits_per_second, value_name = "RATE", requires = "cast")]
    pub(crate) cast_rate: u64,
    /// Most casts at once; receivers of further versions wait
    #[arg(long, default_value_t = 8, value_name = "N", requires = "cast", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) casts_max: u16,
    /// Seconds in which receivers gather before a cast starts
    #[arg(long, default_value = "2", value_name = "SECONDS", requires = "cast", value_parser = seconds)]
    pub(crate) cast_wait: Duration,
    /// Seconds to wait for late receivers after the last one has finished
    #[arg(long, default_value = "5", value_name = "SECONDS", requires = "cast", value_parser = seconds)]
    pub(crate) cast_linger: Duration,
    /// Cast a new revision of the hoard when this many nodes that lack more than 4 MiB of it ask at the same time, instead of sending it
    /// to each of them; 0: never
    #[arg(long, default_value_t = 3, value_name = "N", requires = "cast")]
    pub(crate) cast_hoard: u16,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Manage access tokens for TCP clients; a running origin applies changes at once
    #[command(subcommand)]
    Token(AccessToken),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessToken {
    /// Create a token and print its secret, which is not shown again
    Add {
        /// Name of the token
        name: String,
        /// read, write or admin
        #[arg(long)]
        role: Role,
        /// Images that the token grants access to: '*', 'lab/*' or lab/debian12; can be repeated
        #[arg(long = "images", value_name = "PATTERN", required = true)]
        patterns: Vec<NamePattern>,
        /// Limit for the distinct bytes of all these images, uncompressed, when the token adds to them, such as 500G
        #[arg(long, value_name = "SIZE", value_parser = byte_size)]
        quota: Option<u64>,
    },
    /// List all tokens
    List,
    /// Remove a token
    Remove {
        /// Token id, as printed by `list`
        id: String,
    },
}
