//! The states of a pack (`docs/formats/catalog.md`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a pack. A pack file that the catalog does not list counts as open: it is being written, or was left by a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum PackState {
    /// Being written by a session of this process.
    Open = 0,
    /// Its blocks may be read, and new data may refer to them.
    Live = 1,
    /// Selected for collection: it can still be read, but new data must not refer to it.
    Condemned = 2,
    /// Permanently given up: its file may be deleted at any time.
    Dead = 3,
    /// Its file was deleted.
    Deleted = 4,
}

impl PackState {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Open, "open"),
        (Self::Live, "live"),
        (Self::Condemned, "condemned"),
        (Self::Dead, "dead"),
        (Self::Deleted, "deleted"),
    ];

    /// Returns the word for this state in the catalog.
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns the state with that number. A number that is none counts as deleted.
    pub fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).map_or(Self::Deleted, |(state, _)| *state)
    }

    /// Returns the state with that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == word).map(|(state, _)| state)
    }

    /// Returns whether blocks of the pack can be read.
    pub fn is_readable(self) -> bool {
        self < Self::Dead
    }
}
