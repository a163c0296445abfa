//! An edit lock: the right to publish the next version of an image, one holder at a time, fenced by a number.

use std::fmt;

use platter_image::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::ImageName;

/// Maximum length of a holder's name in bytes.
pub const HOLDER_LENGTH_MAX: usize = 255;
/// Maximum length of an overlay's name in bytes.
pub const OVERLAY_LENGTH_MAX: usize = 4096;

/// The right to publish the next version of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EditLock {
    /// The image.
    pub image: ImageName,
    /// The fencing number, from 1: higher than the number of any earlier edit lock of this store.
    pub number: u64,
    /// Name of the holder, such as `root@node3`.
    pub holder: String,
    /// Time at which it was taken, in milliseconds since 1970 UTC. Only displayed.
    pub time_unix_ms: i64,
    /// The overlay that holds the unpublished changes; empty when not yet set.
    pub overlay: String,
}

impl fmt::Display for EditLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time =
            jiff::Timestamp::from_millisecond(self.time_unix_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "lock {}, held by {} since {}", self.number, self.holder, time.strftime("%F %T UTC"))
    }
}

/// Returns why the next version of `image` may not be published under edit lock `number` (`None`: without an edit lock), or
/// `None` when it may be published. `held` is the image's current edit lock.
pub fn refusal(image: &ImageName, number: Option<u64>, held: Option<&EditLock>) -> Option<Error> {
    let why = match (number, held) {
        (None, None) => return None,
        (Some(number), Some(held)) if held.number == number => return None,
        (None, Some(held)) => format!(
            "{image} is being edited ({held}): wait until it is released, or take it over with `platter lock steal \
             {image}`"
        ),
        (Some(number), Some(held)) => {
            format!("{image} is edited under another lock than {number} ({held}): nothing was published")
        }
        (Some(number), None) => format!(
            "nobody holds edit lock {number} of {image}: it was released, taken over, lost in a rebuild, or never taken; \
             nothing was published"
        ),
    };
    Some(Error::refused(why))
}

/// Checks the length of a name that appears in messages and tables, and that it has no control characters.
///
/// # Errors
/// `Refused` when it does not fit.
pub fn check_text(what: &str, text: &str, length_min: usize, length_max: usize) -> Result<()> {
    if text.len() < length_min || text.len() > length_max || text.chars().any(char::is_control) {
        return Err(Error::refused(format!(
            "{what} {text:?}: {length_min} to {length_max} bytes without control characters are allowed"
        )));
    }
    Ok(())
}
