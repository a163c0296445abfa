//! The current time. Only for display, and for how long something is kept.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in milliseconds since 1970 UTC.
pub(crate) fn now_unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
