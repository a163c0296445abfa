//! Errors of reading a version's data that a store damaged or lost, and what people can do about them.
//!
//! Readers of filesystems see a disk and its `io::Error`s. They must not confuse a damaged store with a filesystem that was
//! already damaged when it was captured: only the first can be repaired. So errors of the store are marked where a version
//! becomes a disk ([`disk_error`]), and the mark stays whatever contexts are added.

use std::{error, fmt, io};

use platter_image::{Error, ErrorKind};

/// What to do about damage of the store.
const ADVICE: &str = "to repair it, capture the same disk again or use `platter heal`; `platter export --holes` saves the readable part";

/// The mark: an error of reading data that the store damaged or lost.
#[derive(Debug)]
struct StoreDamage(Error);

impl fmt::Display for StoreDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl error::Error for StoreDamage {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        error::Error::source(&self.0)
    }
}

/// Passes an error of reading a version through the trait of disks. Damage is marked.
pub fn disk_error(error: Error) -> io::Error {
    if !error.is_data_loss() {
        return io::Error::other(error);
    }
    let (kind, text) = (error.kind(), error.to_string());
    io::Error::other(Error::new(kind, text).with_source(StoreDamage(error)))
}

/// Whether an error was caused by damage of the store.
pub fn is_store_damage(error: &Error) -> bool {
    let mut cause = error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<StoreDamage>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The error and its causes in one line, with what to do if the store is damaged.
pub fn with_advice(error: &Error) -> String {
    let text = error.with_causes();
    if is_store_damage(error) { format!("{text}; {ADVICE}") } else { text }
}

/// If an error was caused by damage of the store: names what is damaged, and what to do about it.
#[must_use]
pub fn advise(error: Error, what: impl FnOnce() -> String) -> Error {
    if !is_store_damage(&error) {
        return error;
    }
    // Data that the store lost is damage, too.
    let kind = if error.kind() == ErrorKind::Io { ErrorKind::Io } else { ErrorKind::Corrupt };
    Error::new(kind, format!("{} is damaged: {}", what(), with_advice(&error)))
}

#[cfg(test)]
mod tests {
    use platter_image::IoContext;

    use super::*;

    fn read(error: Error) -> Error {
        Err::<(), _>(disk_error(error)).context(|| "reading at 7".to_owned()).unwrap_err().within("/etc")
    }

    #[test]
    fn damage_of_the_store_is_told_from_other_errors() {
        let damaged = read(Error::corrupt("bad checksum").within("block 1dfe"));
        assert_eq!(damaged.with_causes(), "/etc: reading at 7: block 1dfe: bad checksum");
        assert!(is_store_damage(&damaged));
        let advised = advise(damaged, || "partition 5 of lab/a@1".to_owned());
        assert_eq!(
            advised.with_causes(),
            format!(
                "partition 5 of lab/a@1 is damaged: /etc: reading at 7: block 1dfe: bad checksum; {ADVICE}"
            )
        );
        assert!(!is_store_damage(&advised), "advice is given once");
        assert_eq!(advise(read(Error::missing("no block 1dfe")), String::new).kind(), ErrorKind::Corrupt);
        for other in
            [read(Error::transient("no answer")), Error::corrupt("a bad inode"), Error::missing("no /x")]
        {
            let text = other.with_causes();
            assert!(!is_store_damage(&other));
            assert_eq!(advise(other, String::new).with_causes(), text);
        }
    }
}
