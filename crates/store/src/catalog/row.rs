//! Rows in the form that the change log uses: the values of a row, and whether it was written or removed.

use rusqlite::types::Value;
use serde::{Deserialize, Serialize};

use super::table::Table;

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// Null.
    Null,
}

impl From<&Value> for Cell {
    fn from(value: &Value) -> Self {
        match value {
            Value::Integer(number) => Self::Number(*number),
            Value::Text(text) => Self::Text(text.clone()),
            _ => Self::Null,
        }
    }
}

impl From<&Cell> for Value {
    fn from(cell: &Cell) -> Self {
        match cell {
            Cell::Number(number) => Self::Integer(*number),
            Cell::Text(text) => Self::Text(text.clone()),
            Cell::Null => Self::Null,
        }
    }
}

/// One changed row: the values of a row that was inserted or replaced (`put`), or the primary key of a removed row (`gone`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowChange {
    pub(crate) table: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) put: Vec<Cell>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gone: Vec<Cell>,
}

impl RowChange {
    pub(super) fn put(table: &Table, row: Vec<Cell>) -> Self {
        Self { table: table.name.to_owned(), put: row, gone: Vec::new() }
    }
}
