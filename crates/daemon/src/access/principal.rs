//! Who asks.

use platter_store::ImageName;

use super::{NamePattern, Patterns, Role};

/// Whoever sent a request, after it was found out who that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The access token's id; empty for whoever came in through the unix socket.
    pub(crate) id: String,
    pub(crate) role: Role,
    pub(crate) patterns: Patterns,
}

impl Principal {
    /// Whoever may open the unix socket: its mode has let him in.
    pub(crate) fn of_unix_socket() -> Self {
        Self { id: String::new(), role: Role::Admin, patterns: Patterns(vec![NamePattern::Everything]) }
    }

    /// Whether it may read that image.
    pub(crate) fn may_read(&self, image: &ImageName) -> bool {
        self.patterns.matches(image)
    }

    /// Whether it may read all there is: then nothing has to be hidden from it.
    pub(crate) fn reads_everything(&self) -> bool {
        self.patterns.match_everything()
    }
}
