//! Error numbers for clients of a file tree, over FUSE and 9P.
//!
//! Owns the mapping from error kinds: the same failure has the same number in both protocols.

use std::error::Error as _;
use std::io;

use platter_image::{Error, ErrorKind};
use rustix::io::Errno;

/// The number for an error of a tree or an open file.
pub(crate) fn errno_of(error: &Error) -> Errno {
    match (source_kind(error), error.kind()) {
        (Some(io::ErrorKind::StorageFull), _) => Errno::NOSPC,
        (Some(io::ErrorKind::QuotaExceeded), _) => Errno::DQUOT,
        (Some(io::ErrorKind::FileTooLarge), _) => Errno::FBIG,
        (Some(io::ErrorKind::ReadOnlyFilesystem), ErrorKind::Refused) => Errno::ROFS,
        (Some(io::ErrorKind::StaleNetworkFileHandle), ErrorKind::Missing) => Errno::STALE,
        (Some(io::ErrorKind::AlreadyExists), ErrorKind::Refused) => Errno::EXIST,
        (Some(io::ErrorKind::DirectoryNotEmpty), ErrorKind::Refused) => Errno::NOTEMPTY,
        (_, ErrorKind::Missing) => Errno::NOENT,
        (_, ErrorKind::Refused) => Errno::PERM,
        (_, ErrorKind::Transient) => Errno::BUSY,
        (_, ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Bug) => Errno::IO,
    }
}

/// The number for an error of reading or writing an open file: what the store lacks, or cannot reach, is an I/O error there.
pub(crate) fn errno_of_contents(error: &Error) -> Errno {
    match errno_of(error) {
        Errno::NOENT | Errno::BUSY => Errno::IO,
        number => number,
    }
}

/// The error of the operating system, if it is among the sources.
fn source_kind(error: &Error) -> Option<io::ErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        source = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_number() {
        let full = Error::io("writing the overlay", io::Error::from(io::ErrorKind::StorageFull));
        let taken = io::Error::from(io::ErrorKind::AlreadyExists);
        let cases = [
            (Error::missing("no such name"), Errno::NOENT),
            (Error::refused("not that"), Errno::PERM),
            (Error::corrupt("a damaged block"), Errno::IO),
            (Error::io("reading", io::Error::from(io::ErrorKind::PermissionDenied)), Errno::IO),
            (Error::transient("busy"), Errno::BUSY),
            (
                Error::refused("the quota of lab").with_source(io::Error::from(io::ErrorKind::QuotaExceeded)),
                Errno::DQUOT,
            ),
            (Error::bug("impossible"), Errno::IO),
            (full.within("writing a disk"), Errno::NOSPC),
            (
                Error::refused("fixed").with_source(io::Error::from(io::ErrorKind::ReadOnlyFilesystem)),
                Errno::ROFS,
            ),
            (Error::refused("taken").with_source(taken), Errno::EXIST),
            (Error::io("growing", io::ErrorKind::FileTooLarge.into()), Errno::FBIG),
        ];
        for (error, number) in cases {
            assert_eq!(errno_of(&error), number, "{error:?}");
            let of_contents = match error.kind() {
                ErrorKind::Missing | ErrorKind::Transient => Errno::IO,
                _ => number,
            };
            assert_eq!(errno_of_contents(&error), of_contents, "{error:?}");
        }
    }
}
