//! Edit tokens: the right to publish the next version of an image, one holder at a time, fenced by a number.
//!
//! Why a holder that slept cannot harm the one who took over (design: fencing): every taking over gets a number that no
//! token of this store had before, and a publish compares its number with the token's in the very transaction that
//! makes the version. No clock is asked; times are shown to people only. Tokens live in the catalog and in its log of
//! changes: a store that lost both has none after a rebuild, and then everybody who held one is refused.
//!
//! A change of a token is one transaction under the writer's lock. A store that was opened to be read takes the lock
//! for that moment: whoever serves a live disk for weeks need not keep others from writing.

use std::fmt;

use platter_image::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, Change};
use crate::name::ImageName;
use crate::store::{Store, TOKEN_LOCK_TRIES, check_store, take_lock};

/// Most bytes of a holder's name.
const HOLDER_LENGTH_MAX: usize = 255;
/// Most bytes of an overlay's name.
const OVERLAY_LENGTH_MAX: usize = 4096;

/// The right to publish the next version of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The image.
    pub image: ImageName,
    /// The fencing number: from 1, larger than that of any token of this store before.
    pub number: u64,
    /// Who has it, in words, such as `root@node3`.
    pub holder: String,
    /// When it was taken: milliseconds since 1970 UTC. Shown to people, believed by nobody.
    pub time_unix_ms: i64,
    /// The overlay that holds what is to be published; empty when nobody has said.
    pub overlay: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time =
            jiff::Timestamp::from_millisecond(self.time_unix_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "lock {}, held by {} since {}", self.number, self.holder, time.strftime("%F %T UTC"))
    }
}

/// Why nobody may publish the next version of `image` under the token of that number, or under none; `None` when it
/// may be done. `held` is the image's token.
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
    /// The token of an image; `None` when nobody has it.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn token(&self, image: &ImageName) -> Result<Option<Token>> {
        self.catalog()?.token(image)
    }

    /// All tokens that somebody has, by image.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        self.catalog()?.tokens()
    }

    /// Takes the token of an image that nobody has. Durable when it returns.
    ///
    /// # Errors
    /// `Refused` when somebody has it, the holder himself included, or for an unfit holder's name; `Missing` when
    /// there is no such image; `Transient` when another process writes the store for longer than some seconds; `Io`.
    pub fn take_token(&self, image: &ImageName, holder: &str, time_unix_ms: i64) -> Result<Token> {
        check_text("holder", holder, 1, HOLDER_LENGTH_MAX)?;
        self.change_catalog(|change| match refusal(image, None, change.token(image)?.as_ref()) {
            Some(refusal) => Ok(Err(refusal)),
            None => change.grant_token(image, holder, time_unix_ms),
        })
    }

    /// Takes the token of an image whoever has it. What the holder before has not published can be published under
    /// its number no more. Durable when it returns.
    ///
    /// # Errors
    /// As [`Store::take_token`], but never because somebody has it.
    pub fn steal_token(&self, image: &ImageName, holder: &str, time_unix_ms: i64) -> Result<Token> {
        check_text("holder", holder, 1, HOLDER_LENGTH_MAX)?;
        self.change_catalog(|change| change.grant_token(image, holder, time_unix_ms))
    }

    /// Notes in which overlay the edits lie: its name has the token's number in it, so it is known after taking.
    ///
    /// # Errors
    /// `Refused` when the token is another's by now, or for an unfit name; `Transient`, `Io` as [`Store::take_token`].
    pub fn set_overlay(&self, token: &Token, overlay: &str) -> Result<Token> {
        check_text("overlay", overlay, 0, OVERLAY_LENGTH_MAX)?;
        self.change_held(token, |change| {
            change.set_overlay(&token.image, overlay)?;
            Ok(Token { overlay: overlay.to_owned(), ..token.clone() })
        })
    }

    /// Gives a token back. Its number is never used again. Durable when it returns.
    ///
    /// # Errors
    /// `Refused` when the token is another's, or nobody's, by now; `Transient`, `Io` as [`Store::take_token`].
    pub fn release_token(&self, token: &Token) -> Result<()> {
        self.change_held(token, |change| change.remove_token(&token.image))
    }

    /// Whether the next version of `image` could be published now under the token of that number, or under none: for
    /// asking before long work. What counts is asked again when it is published.
    ///
    /// # Errors
    /// `Refused` when it could not; when the catalog cannot be read.
    pub fn check_token(&self, image: &ImageName, number: Option<u64>) -> Result<()> {
        let held = self.token(image)?;
        refusal(image, number, held.as_ref()).map_or(Ok(()), Err)
    }

    /// Changes a token if it still has its number.
    fn change_held<T>(&self, token: &Token, change: impl FnOnce(&mut Change<'_>) -> Result<T>) -> Result<T> {
        self.change_catalog(|catalog| {
            let held = catalog.token(&token.image)?;
            match refusal(&token.image, Some(token.number), held.as_ref()) {
                Some(refusal) => Ok(Err(refusal)),
                None => change(catalog).map(Ok),
            }
        })
    }

    /// Runs `change`, which adds nothing to packs, as one transaction under the writer's lock. What it refuses, as the
    /// inner result, leaves the store usable.
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

/// Names go into messages and tables: they must have a length that fits there, and no line breaks.
fn check_text(what: &str, text: &str, length_min: usize, length_max: usize) -> Result<()> {
    if text.len() < length_min || text.len() > length_max || text.chars().any(char::is_control) {
        return Err(Error::refused(format!(
            "{what} {text:?}: {length_min} to {length_max} bytes without control characters are allowed"
        )));
    }
    Ok(())
}
