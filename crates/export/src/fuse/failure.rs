//! Failures of requests and their error numbers.

use fuser::Errno;
use platter_image::{Error, ErrorKind};

use crate::errno::{errno_of, errno_of_contents};

/// A failed request.
#[derive(Debug)]
pub(super) enum Failure {
    /// Detected by the server: an impossible request.
    Number(Errno),
    /// An error of the tree.
    Tree(Error),
    /// An error of reading or writing an open file.
    Contents(Error),
}

/// The result of a request.
pub(super) type Answer<T> = Result<T, Failure>;

impl From<Errno> for Failure {
    fn from(number: Errno) -> Self {
        Self::Number(number)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Tree(error)
    }
}

impl Failure {
    /// The error number for the program.
    pub(super) fn number(&self) -> Errno {
        match self {
            Self::Number(number) => *number,
            Self::Tree(error) => Errno::from_i32(errno_of(error).raw_os_error()),
            Self::Contents(error) => Errno::from_i32(errno_of_contents(error).raw_os_error()),
        }
    }

    /// The error, if it should be reported.
    pub(super) fn reportable(&self) -> Option<&Error> {
        match self {
            Self::Tree(error) | Self::Contents(error)
                if matches!(self.number().code(), libc::EIO | libc::EDQUOT)
                    || error.kind() == ErrorKind::Transient =>
            {
                Some(error)
            }
            _ => None,
        }
    }

    /// Whether the tree refused the request.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Tree(error) | Self::Contents(error) if error.kind() == ErrorKind::Refused)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn numbers() {
        let full = || Error::io("writing", io::ErrorKind::StorageFull.into());
        for (error, number, is_told) in [
            (Error::missing("it"), libc::ENOENT, false),
            (Error::refused("no"), libc::EPERM, false),
            (Error::corrupt("bad"), libc::EIO, true),
            (Error::bug("broken"), libc::EIO, true),
            (Error::transient("locked"), libc::EBUSY, true),
            (Error::io("reading", io::ErrorKind::Other.into()), libc::EIO, true),
            (full(), libc::ENOSPC, false),
            (
                Error::refused("no").with_source(io::Error::from(io::ErrorKind::QuotaExceeded)),
                libc::EDQUOT,
                true,
            ),
            (full().within("closing"), libc::ENOSPC, false),
        ] {
            let failure = Failure::from(error);
            assert_eq!(failure.number().code(), number, "{failure:?}");
            assert_eq!(failure.reportable().is_some(), is_told, "{failure:?}");
        }
    }
}
