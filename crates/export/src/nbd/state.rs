//! What an NBD client has agreed on, as it moves to the next server.

use platter_image::{Error, Result};
use serde::{Deserialize, Serialize};

use super::negotiate::Agreed;
use crate::Exports;
use crate::moved::{from_text, to_text};

/// What a client has agreed on. The disk itself is opened again by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdState {
    /// The export's own name.
    pub export: String,
    /// Its length in bytes when the client was told.
    pub length: u64,
    /// Whether it could be written when the client was told.
    pub writable: bool,
    /// Replies come in chunks.
    pub structured: bool,
    /// Extents may be asked for.
    pub contexts: bool,
}

impl NbdState {
    pub(super) fn of(agreed: &Agreed) -> Self {
        Self {
            export: agreed.name.clone(),
            length: agreed.device.length(),
            writable: agreed.device.is_writable(),
            structured: agreed.structured,
            contexts: agreed.contexts,
        }
    }

    /// As text.
    ///
    /// # Errors
    /// `Bug`.
    pub fn to_text(&self) -> Result<String> {
        to_text(self)
    }

    /// What [`NbdState::to_text`] made.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_text(text: &str) -> Result<Self> {
        from_text(text)
    }

    /// What was agreed on, of the disk that has the name now.
    ///
    /// # Errors
    /// `Refused` when that is another disk than the client knows; as [`Exports::open`].
    pub(super) fn agreed(self, exports: &dyn Exports) -> Result<Agreed> {
        let Self { export: name, length, writable, structured, contexts } = self;
        let device = exports.open(&name)?;
        if (device.length(), device.is_writable()) != (length, writable) {
            return Err(Error::refused(format!("{name} is not the disk that the client was told of")));
        }
        Ok(Agreed { name, device, structured, contexts })
    }
}
