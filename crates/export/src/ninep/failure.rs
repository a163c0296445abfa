//! A failed request: the error number for the client, and the error for the server's log.

use platter_image::Error;
use rustix::io::Errno;

use crate::errno::{errno_of, errno_of_contents};

/// A failed request.
#[derive(Debug)]
pub(super) struct Failure {
    /// The error number for the client.
    pub(super) errno: Errno,
    /// The error of the tree; `None` if the session detected the failure.
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

impl Failure {
    /// An error of reading or writing an open file.
    pub(super) fn of_contents(error: Error) -> Self {
        Self { errno: errno_of_contents(&error), error: Some(error) }
    }
}
