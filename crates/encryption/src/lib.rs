//! Keys of encrypted stores: the random master key, and the file in which it is wrapped by secrets (design: encryption). Also
//! the keys of temporary files.
//!
//! A separate crate, because it alone sees master keys and secrets. It does no I/O except asking the system for random
//! bytes: whoever calls it reads and writes files, runs commands and asks for passphrases. It must never print, and never put a
//! secret into an error.

mod key_file;
mod master_key;
mod secret;
mod slot;
mod spool_key;

pub use key_file::{KEY_FILE_LENGTH_MAX, KeyFile, SLOTS_MAX};
pub use master_key::MasterKey;
pub use secret::{Secret, SecretKind, new_key_file_text};
pub use slot::{Cost, SlotFacts};
pub use spool_key::{SPOOL_PIECE_LENGTH, SpoolKey};
