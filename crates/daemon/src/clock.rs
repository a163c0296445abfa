//! The current time, for records that people read. It orders nothing.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in milliseconds since 1970 UTC.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
