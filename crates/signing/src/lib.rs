//! Signatures of versions: who says that this disk is that version of that image.
//!
//! A separate crate, because it alone handles signing keys, and because the commands that change machines (install, receive,
//! attach) must all take the same decision. Signatures and key files have the format of minisign, so that its tools can make
//! and verify them. It opens no store and no socket. It must never accept a version that it cannot verify, nor print.

mod newest_seen;
mod policy;
mod signing_key;
mod statement;
mod trusted_keys;

pub use policy::{SignatureCheck, SignaturePolicy, SignedBy};
pub use signing_key::{SigningKey, create_key};
pub use statement::Statement;
pub use trusted_keys::{TrustedKey, TrustedKeys, default_directory};
