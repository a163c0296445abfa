//! The statement that a signature signs: a few lines of text that name one version of one store.
//!
//! The text is canonical: equal statements have equal bytes. Its first line is its format version.

use platter_image::Score;
use platter_records::{ImageName, StoreId, VersionRecord};

/// What a signature says: the store calls this disk that version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The store in which the version was signed.
    pub store: StoreId,
    /// The image.
    pub image: ImageName,
    /// The version's number.
    pub number: u64,
    /// The score of the disk.
    pub score: Score,
    /// Time of publishing, in milliseconds since 1970 UTC.
    pub time_unix_ms: i64,
}

impl Statement {
    /// The statement about a version of that store.
    pub fn of(store: StoreId, record: &VersionRecord) -> Self {
        Self {
            store,
            image: record.image.clone(),
            number: record.number,
            score: record.score,
            time_unix_ms: record.time_unix_ms,
        }
    }

    /// The signed text (`docs/formats/signature.md`).
    pub fn text(&self) -> String {
        let Self { store, image, number, score, time_unix_ms } = self;
        format!(
            "platter version statement 1\nstore {store}\nimage {image}\nnumber {number}\nscore {score}\ntime {time_unix_ms}\n"
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use platter_image::BlockId;

    use super::*;

    pub(crate) fn sample() -> Statement {
        Statement {
            store: StoreId([0x5a; 16]),
            image: "lab/debian12".parse().unwrap(),
            number: 7,
            score: Score(BlockId([9; 32])),
            time_unix_ms: 1_764_000_000_123,
        }
    }

    /// Frozen: a signature signs these bytes.
    #[test]
    fn the_text_is_frozen() {
        let expected = format!(
            "platter version statement 1\nstore {}\nimage lab/debian12\nnumber 7\nscore {}\ntime 1764000000123\n",
            "5a".repeat(16),
            "09".repeat(32)
        );
        assert_eq!(sample().text(), expected);
    }
}
