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

use platter_image::Result;
use platter_records::{HOLDER_LENGTH_MAX, ImageName, OVERLAY_LENGTH_MAX, Token, check_text, token_refusal};

use crate::catalog::{Catalog, Change};
use crate::store::{Store, TOKEN_LOCK_TRIES, check_store, take_lock};

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
        self.change_catalog(|change| match token_refusal(image, None, change.token(image)?.as_ref()) {
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
        token_refusal(image, number, held.as_ref()).map_or(Ok(()), Err)
    }

    /// Runs `change` if `token` is still the image's current token.
    fn change_held<T>(&self, token: &Token, change: impl FnOnce(&mut Change<'_>) -> Result<T>) -> Result<T> {
        self.change_catalog(|catalog| {
            let held = catalog.token(&token.image)?;
            match token_refusal(&token.image, Some(token.number), held.as_ref()) {
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
