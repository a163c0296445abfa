//! The negotiated options of an NBD client, which move to the next server.

use platter_image::{Error, Result};
use serde::{Deserialize, Serialize};

use super::negotiate::Agreed;
use crate::Exports;
use crate::moved::{from_text, to_text};

/// The negotiated options of a client. The next server opens the disk again by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdState {
    /// The export's own name.
    pub export: String,
    /// The length in bytes that the client was told.
    pub length: u64,
    /// Whether the client was told that the disk is writable.
    pub writable: bool,
    /// Structured replies were negotiated.
    pub structured: bool,
    /// The allocation context was negotiated, so the client may request block status.
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

    /// Serializes the state.
    ///
    /// # Errors
    /// `Bug`.
    pub fn to_text(&self) -> Result<String> {
        to_text(self)
    }

    /// Parses the result of [`NbdState::to_text`].
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_text(text: &str) -> Result<Self> {
        from_text(text)
    }

    /// Restores the negotiated options for the disk that has this name now.
    ///
    /// # Errors
    /// `Refused` when this disk differs from what the client was told; as [`Exports::open`].
    pub(super) fn agreed(self, exports: &dyn Exports) -> Result<Agreed> {
        let Self { export: name, length, writable, structured, contexts } = self;
        let device = exports.open(&name)?;
        if (device.length(), device.is_writable()) != (length, writable) {
            return Err(Error::refused(format!(
                "{name} has another length or access mode than the client was told"
            )));
        }
        Ok(Agreed { name, device, structured, contexts })
    }
}
