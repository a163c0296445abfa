//! Edit locks in the catalog: one row for each token that is held, and the highest number ever assigned.

use platter_image::{Error, Result};
use rusqlite::Connection;

use super::query::meta;
use super::table::{self, Row, TOKENS, number, text};
use super::{Catalog, Change};
use platter_records::ImageName;
use platter_records::Token;

/// Key in `meta` of the highest number that a token ever had.
pub(super) const LAST_TOKEN: &str = "last_token";

fn token(row: &Row) -> Result<Token> {
    let parsed = row.text(0).parse().ok().zip(u64::try_from(row.number(1)).ok());
    let (image, number) = parsed.ok_or_else(|| {
        Error::corrupt(format!("the catalog has an invalid token {} of {:?}", row.number(1), row.text(0)))
    })?;
    let (holder, overlay) = (row.text(2).to_owned(), row.text(4).to_owned());
    Ok(Token { image, number, holder, time_unix_ms: row.number(3), overlay })
}

fn read_token(connection: &Connection, image: &ImageName) -> Result<Option<Token>> {
    let rows = table::read(connection, &TOKENS, "WHERE image = ?1", &[&image.as_str()])?;
    rows.first().map(token).transpose()
}

fn read_last_token(connection: &Connection) -> Result<u64> {
    let text = meta(connection, LAST_TOKEN)?.unwrap_or_default();
    text.parse()
        .map_err(|_| Error::corrupt(format!("the catalog has an invalid last token number: {text:?}")))
}

impl Catalog {
    /// Returns the token of an image, if it is held.
    pub(crate) fn token(&self, image: &ImageName) -> Result<Option<Token>> {
        read_token(&self.connection, image)
    }

    /// Returns all tokens, ordered by image.
    pub(crate) fn tokens(&self) -> Result<Vec<Token>> {
        table::read(&self.connection, &TOKENS, "ORDER BY image", &[])?.iter().map(token).collect()
    }

    /// Returns the highest number that a token ever had.
    pub(crate) fn last_token(&self) -> Result<u64> {
        read_last_token(&self.connection)
    }
}

impl Change<'_> {
    /// Returns the token of an image, if it is held.
    pub(crate) fn token(&self, image: &ImageName) -> Result<Option<Token>> {
        read_token(self.transaction, image)
    }

    /// Returns all tokens, ordered by image.
    pub(crate) fn tokens(&self) -> Result<Vec<Token>> {
        table::read(self.transaction, &TOKENS, "ORDER BY image", &[])?.iter().map(token).collect()
    }

    /// Returns the highest number that a token ever had.
    pub(crate) fn last_token(&self) -> Result<u64> {
        read_last_token(self.transaction)
    }

    /// Gives the token of an image to `holder` under a new number, even if it is held. An inner error means that there is no such
    /// image.
    pub(crate) fn grant_token(
        &mut self,
        image: &ImageName,
        holder: &str,
        time_unix_ms: i64,
    ) -> Result<Result<Token>> {
        // An image whose versions were all forgotten still has a row in `images`, but nothing to edit.
        if self.newest_version(image)?.is_none() {
            return Ok(Err(Error::missing(format!("there is no image {image}"))));
        }
        let number = self.last_token()?.saturating_add(1);
        self.raise_last_token(number)?;
        let overlay = String::new();
        let token = Token { image: image.clone(), number, holder: holder.to_owned(), time_unix_ms, overlay };
        self.put_token(&token)?;
        Ok(Ok(token))
    }

    /// Sets the overlay of an image's token.
    pub(crate) fn set_overlay(&mut self, image: &ImageName, overlay: &str) -> Result<()> {
        match self.token(image)? {
            Some(token) => self.put_token(&Token { overlay: overlay.to_owned(), ..token }),
            None => Ok(()),
        }
    }

    /// Removes the token of an image: nobody holds it afterwards.
    pub(crate) fn remove_token(&mut self, image: &ImageName) -> Result<()> {
        self.remove(&TOKENS, &[text(image)])
    }

    /// Makes sure that the next token gets a number higher than `number`.
    pub(crate) fn raise_last_token(&mut self, number: u64) -> Result<()> {
        let last = self.last_token()?.max(number);
        if last > i64::MAX as u64 {
            return Err(Error::corrupt(format!("token number {last}: all numbers are used up")));
        }
        self.set_meta(LAST_TOKEN, &last.to_string())
    }

    fn put_token(&mut self, token: &Token) -> Result<()> {
        let (image, holder, overlay) = (text(&token.image), text(&token.holder), text(&token.overlay));
        self.put(&TOKENS, vec![image, number(token.number), holder, token.time_unix_ms.into(), overlay])
    }
}
