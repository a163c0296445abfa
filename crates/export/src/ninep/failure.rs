//! Why a request failed: the number that the client hears, and the error that only the server's log shows.

use platter_image::Error;
use rustix::io::Errno;

use crate::errno::errno_of;

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// What the client hears.
    pub(super) errno: Errno,
    /// What the tree said, unless the session found out by itself.
    pub(super) error: Option<Error>,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self { errno, error: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { errno: errno_of(&error), error: Some(error) }
    }
}
