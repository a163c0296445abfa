//! Edit locks: the right to publish the next version of an image. One holder at a time, fenced by a number. The code calls an
//! edit lock a token.
//!
//! Why a suspended holder cannot harm its successor (design: fencing): whoever takes a token gets a number higher than any token
//! of this store had before. Publishing compares its number with the current token's number in the same transaction that creates
//! the version. Clocks decide nothing; times are only displayed. Tokens are stored in the catalog and in its change log. A
//! store that lost both has no tokens after a rebuild, and publishing under an older token is refused.
//!
//! A change of a token is one transaction under the writer's lock. A store opened for reading takes that lock only for the
//! transaction: a process that serves a live disk for weeks does not keep others from writing.

use std::fmt;

use platter_image::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, Change};
use crate::name::ImageName;
use crate::store::{Store, TOKEN_LOCK_TRIES, check_store, take_lock};

/// Maximum length of a holder's name in bytes.
const HOLDER_LENGTH_MAX: usize = 255;
/// Maximum length of an overlay's name in bytes.
const OVERLAY_LENGTH_MAX: usize = 4096;

/// The right to publish the next version of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The image.
    pub image: ImageName,
    /// The fencing number, from 1: higher than the number of any earlier token of this store.
    pub number: u64,
    /// Name of the holder, such as `root@node3`.
    pub holder: String,
    /// Time at which it was taken, in milliseconds since 1970 UTC. Only displayed.
    pub time_unix_ms: i64,
    /// The overlay that holds the unpublished changes; empty when not yet set.
    pub overlay: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time =
            jiff::Timestamp::from_millisecond(self.time_unix_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "lock {}, held by {} since {}", self.number, self.holder, time.strftime("%F %T UTC"))
    }
}

/// Returns why the next version of `image` may not be published under token `number` (`None`: without a token), or `None` when it
/// may be published. `held` is the image's current token.
pub fn refusal(image: &ImageName, number: Option<u64>, held: Option<&Token>) -> Option<Error> {
    let why = match (number, held) {
        (None, None) => return None,
        (Some(number), Some(held)) if held.number == number => return None,
        (None, Some(held)) => format!(
            "{image} is being edited ({held}): wait until it is released, or take it over with `platter token steal \
             {image}`"
        ),
        (Some(number), Some(held)) => format!(
            "{image} is edited under another lock than {number} ({held}): nothing was published; the overlay written \
             under {number} is kept"
        ),
        (Some(number), None) => format!(
            "edit lock {number} of {image} was released, taken over, lost in a rebuild, or never taken: nothing was \
             published; the overlay written under it is kept"
        ),
    };
    Some(Error::refused(why))
}

impl Store {
    /// Returns the current token of an image; `None` when nobody holds one.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn token(&self, image: &ImageName) -> Result<Option<Token>> {
        self.catalog()?.token(image)
    }

    /// Returns all tokens that are held, ordered by image.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        self.catalog()?.tokens()
    }

    /// Takes the token of an image. It must be free. Durable on return.
    ///
    /// # Errors
    /// `Refused` when the token is held, even by the same holder, or when the holder's name is invalid; `Missing` when there is
    /// no such image; `Transient` when another process holds the writer's lock for more than a few seconds; `Io`.
    pub fn take_token(&self, image: &ImageName, holder: &str, time_unix_ms: i64) -> Result<Token> {
        check_text("holder", holder, 1, HOLDER_LENGTH_MAX)?;
        self.change_catalog(|change| match refusal(image, None, change.token(image)?.as_ref()) {
            Some(refusal) => Ok(Err(refusal)),
            None => change.grant_token(image, holder, time_unix_ms),
        })
    }

    /// Takes the token of an image even if it is held. The previous holder can no longer publish under its number. Durable on
    /// return.
    ///
    /// # Errors
    /// As [`Store::take_token`], except that a held token is no error.
    pub fn steal_token(&self, image: &ImageName, holder: &str, time_unix_ms: i64) -> Result<Token> {
        check_text("holder", holder, 1, HOLDER_LENGTH_MAX)?;
        self.change_catalog(|change| change.grant_token(image, holder, time_unix_ms))
    }

    /// Records which overlay holds the edits. The overlay's name contains the token's number, so it is set after taking the
    /// token.
    ///
    /// # Errors
    /// `Refused` when the token is no longer current, or the overlay's name is invalid; `Transient`, `Io` as
    /// [`Store::take_token`].
    pub fn set_overlay(&self, token: &Token, overlay: &str) -> Result<Token> {
        check_text("overlay", overlay, 0, OVERLAY_LENGTH_MAX)?;
        self.change_held(token, |change| {
            change.set_overlay(&token.image, overlay)?;
            Ok(Token { overlay: overlay.to_owned(), ..token.clone() })
        })
    }

    /// Releases a token. Its number is never used again. Durable on return.
    ///
    /// # Errors
    /// `Refused` when the token is no longer current; `Transient`, `Io` as [`Store::take_token`].
    pub fn release_token(&self, token: &Token) -> Result<()> {
        self.change_held(token, |change| change.remove_token(&token.image))
    }

    /// Checks whether the next version of `image` could be published now under token `number` (`None`: without a token). Used
    /// before long work; publishing checks again.
    ///
    /// # Errors
    /// `Refused` when it could not be published; an error when the catalog cannot be read.
    pub fn check_token(&self, image: &ImageName, number: Option<u64>) -> Result<()> {
        let held = self.token(image)?;
        refusal(image, number, held.as_ref()).map_or(Ok(()), Err)
    }

    /// Runs `change` if `token` is still the image's current token.
    fn change_held<T>(&self, token: &Token, change: impl FnOnce(&mut Change<'_>) -> Result<T>) -> Result<T> {
        self.change_catalog(|catalog| {
            let held = catalog.token(&token.image)?;
            match refusal(&token.image, Some(token.number), held.as_ref()) {
                Some(refusal) => Ok(Err(refusal)),
                None => change(catalog).map(Ok),
            }
        })
    }

    /// Runs `change`, which adds nothing to packs, as one transaction under the writer's lock. An inner error means refused: the
    /// store stays usable.
    pub(crate) fn change_catalog<T>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<Result<T>>,
    ) -> Result<T> {
        if let Some(writer) = &self.0.writer {
            writer.check()?;
            let mut catalog = writer.catalog();
            return writer.poison(catalog.change(change))?;
        }
        let _lock = take_lock(self.place(), TOKEN_LOCK_TRIES)?;
        let mut catalog = Catalog::open_writer(self.place())?;
        check_store(&catalog, self.id())?;
        catalog.change(change)?
    }
}

/// Checks the length of a name that appears in messages and tables, and that it has no control characters.
fn check_text(what: &str, text: &str, length_min: usize, length_max: usize) -> Result<()> {
    if text.len() < length_min || text.len() > length_max || text.chars().any(char::is_control) {
        return Err(Error::refused(format!(
            "{what} {text:?}: {length_min} to {length_max} bytes without control characters are allowed"
        )));
    }
    Ok(())
}
