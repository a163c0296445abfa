//! The cause of an error when a target, read back, differs from what was written to it. It says nothing about the
//! source of the data.

use std::{error, fmt};

use platter_image::Error;

/// The target does not return the written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWrite;

impl LostWrite {
    /// An error of kind `Corrupt` with this cause. `context` says where the target differs.
    pub fn error(context: impl Into<String>) -> Error {
        Error::corrupt(context).with_source(Self)
    }

    /// Whether it is the cause of an error.
    pub fn is_cause_of(error: &Error) -> bool {
        let mut cause = error::Error::source(error);
        while let Some(found) = cause {
            if found.is::<Self>() {
                return true;
            }
            cause = found.source();
        }
        false
    }
}

impl fmt::Display for LostWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the device lost the write, or another program wrote there meanwhile")
    }
}

impl error::Error for LostWrite {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found_below_contexts() {
        let error = LostWrite::error("byte 5 differs").within("installing");
        assert!(LostWrite::is_cause_of(&error));
        assert_eq!(
            error.with_causes(),
            "installing: byte 5 differs: the device lost the write, or another program wrote there meanwhile"
        );
        assert!(!LostWrite::is_cause_of(&Error::corrupt("block 7 is damaged").within("installing")));
    }
}
