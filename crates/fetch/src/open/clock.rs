//! The time that records state.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in milliseconds since 1970 UTC.
pub fn unix_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
