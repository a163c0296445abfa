//! The error numbers that clients of a tree see, be it the kernel over FUSE or a client of 9P.
//!
//! Owns the mapping from an error's kind: the same failure has the same number in every protocol.

use std::io;

use platter_image::{Error, ErrorKind};
use rustix::io::Errno;

/// The number for an error of a tree or an open file.
pub(crate) fn errno_of(error: &Error) -> Errno {
    match error.kind() {
        _ if lacks_space(error) => Errno::NOSPC,
        ErrorKind::Missing => Errno::NOENT,
        ErrorKind::Refused => Errno::PERM,
        // Transient too: programs take EAGAIN for a wish to poll, and none of them does so with a file.
        ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Transient | ErrorKind::Bug => Errno::IO,
    }
}

/// Whether the operating system said, somewhere below, that there is no space.
pub(crate) fn lacks_space(error: &Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_number() {
        let full = Error::io("writing the overlay", io::Error::from(io::ErrorKind::StorageFull));
        let cases = [
            (Error::missing("no such name"), Errno::NOENT),
            (Error::refused("not that"), Errno::PERM),
            (Error::corrupt("a damaged block"), Errno::IO),
            (Error::io("reading", io::Error::from(io::ErrorKind::PermissionDenied)), Errno::IO),
            (Error::transient("busy"), Errno::IO),
            (Error::bug("impossible"), Errno::IO),
            (full.within("writing a disk"), Errno::NOSPC),
        ];
        for (error, number) in cases {
            assert_eq!(errno_of(&error), number, "{error:?}");
        }
    }
}
