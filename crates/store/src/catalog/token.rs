//! Edit tokens in the catalog: one row for each that somebody has, and the highest number that one ever had.

use platter_image::{Error, Result};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Catalog, Change, failed};
use crate::name::ImageName;
use crate::token::Token;

/// Columns of a token, as [`RawToken`] takes them.
const TOKEN: &str = "image, number, holder, time_unix_ms, overlay";

/// A token's row before it has been checked.
struct RawToken {
    image: String,
    number: i64,
    holder: String,
    time_unix_ms: i64,
    overlay: String,
}

impl RawToken {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            image: row.get(0)?,
            number: row.get(1)?,
            holder: row.get(2)?,
            time_unix_ms: row.get(3)?,
            overlay: row.get(4)?,
        })
    }

    fn check(self) -> Result<Token> {
        let parsed = self.image.parse().ok().zip(u64::try_from(self.number).ok());
        let (image, number) = parsed.ok_or_else(|| {
            Error::corrupt(format!("the catalog has a token {} of {:?}", self.number, self.image))
        })?;
        let Self { holder, time_unix_ms, overlay, .. } = self;
        Ok(Token { image, number, holder, time_unix_ms, overlay })
    }
}

fn read_token(connection: &Connection, image: &ImageName) -> Result<Option<Token>> {
    let sql = format!("SELECT {TOKEN} FROM tokens WHERE image = ?1");
    let row = connection.query_row(&sql, [image.as_str()], RawToken::from_row).optional();
    let row =
        row.map_err(|error| failed(&format!("reading the token of {image} from the catalog"), error))?;
    row.map(RawToken::check).transpose()
}

fn read_last_token(connection: &Connection) -> Result<u64> {
    let read = connection.query_row("SELECT value FROM meta WHERE key = 'last_token'", [], |row| row.get(0));
    let text: String = read.map_err(|error| failed("reading the last token's number", error))?;
    text.parse().map_err(|_| Error::corrupt(format!("the catalog has no last token's number but {text:?}")))
}

impl Catalog {
    /// The token of an image.
    pub(crate) fn token(&self, image: &ImageName) -> Result<Option<Token>> {
        read_token(&self.connection, image)
    }

    /// Every token, by image.
    pub(crate) fn tokens(&self) -> Result<Vec<Token>> {
        let sql = format!("SELECT {TOKEN} FROM tokens ORDER BY image");
        let rows = self.rows("reading tokens from the catalog", &sql, &[], RawToken::from_row)?;
        rows.into_iter().map(RawToken::check).collect()
    }

    /// The highest number that a token ever had.
    pub(crate) fn last_token(&self) -> Result<u64> {
        read_last_token(&self.connection)
    }
}

impl Change<'_> {
    /// The token of an image.
    pub(crate) fn token(&self, image: &ImageName) -> Result<Option<Token>> {
        read_token(self.transaction, image)
    }

    /// The highest number that a token ever had.
    pub(crate) fn last_token(&self) -> Result<u64> {
        read_last_token(self.transaction)
    }

    /// Gives the token of an image to that holder, under a new number, whoever had it. The inner error says that there
    /// is no such image.
    pub(crate) fn grant_token(
        &mut self,
        image: &ImageName,
        holder: &str,
        time_unix_ms: i64,
    ) -> Result<Result<Token>> {
        let doing = |error| failed(&format!("entering a token of {image} in the catalog"), error);
        // A name all of whose versions were forgotten has a row in `images`, and nothing to edit.
        let known = self.transaction.query_row(
            "SELECT 1 FROM versions WHERE image = ?1 LIMIT 1",
            [image.as_str()],
            |_| Ok(()),
        );
        if known.optional().map_err(doing)?.is_none() {
            return Ok(Err(Error::missing(format!("there is no image {image}"))));
        }
        let number = self.last_token()?.saturating_add(1);
        self.raise_last_token(number)?;
        let overlay = String::new();
        let token = Token { image: image.clone(), number, holder: holder.to_owned(), time_unix_ms, overlay };
        let values = params![image.as_str(), number as i64, holder, time_unix_ms, token.overlay];
        self.transaction
            .execute(&format!("INSERT OR REPLACE INTO tokens ({TOKEN}) VALUES (?1, ?2, ?3, ?4, ?5)"), values)
            .map_err(doing)?;
        Ok(Ok(token))
    }

    /// Notes the overlay of an image's token.
    pub(crate) fn set_overlay(&mut self, image: &ImageName, overlay: &str) -> Result<()> {
        self.transaction
            .execute("UPDATE tokens SET overlay = ?2 WHERE image = ?1", [image.as_str(), overlay])
            .map_err(|error| failed(&format!("changing the token of {image} in the catalog"), error))?;
        Ok(())
    }

    /// Nobody has the token of that image any more.
    pub(crate) fn remove_token(&mut self, image: &ImageName) -> Result<()> {
        self.transaction
            .execute("DELETE FROM tokens WHERE image = ?1", [image.as_str()])
            .map_err(|error| failed(&format!("removing the token of {image} from the catalog"), error))?;
        Ok(())
    }

    /// The next token's number will be larger than that.
    pub(crate) fn raise_last_token(&mut self, number: u64) -> Result<()> {
        let last = self.last_token()?.max(number);
        if last > i64::MAX as u64 {
            return Err(Error::corrupt(format!("token number {last}: there are no more")));
        }
        self.transaction
            .execute("UPDATE meta SET value = ?1 WHERE key = 'last_token'", [last.to_string()])
            .map_err(|error| failed("entering the last token's number in the catalog", error))?;
        Ok(())
    }
}
