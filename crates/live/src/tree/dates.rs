//! Days of UTC, counted from 1970, and the names of their directories.

use std::collections::BTreeSet;

use jiff::civil::Date;
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};

const DAY_MS: i64 = 86_400_000;

/// A day, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Day(i64);

impl Day {
    /// Returns the day of a time. `None` for times whose year does not have four digits.
    pub(super) fn of(unix_ms: i64) -> Option<Self> {
        let day = Self(unix_ms.div_euclid(DAY_MS));
        day.date().filter(|date| (0..=9999).contains(&date.year())).map(|_| day)
    }

    /// Returns the first millisecond after it.
    pub(super) fn end_unix_ms(self) -> i64 {
        (self.0 + 1).saturating_mul(DAY_MS)
    }

    pub(super) fn year(self) -> i16 {
        self.date().map_or(0, Date::year)
    }

    pub(super) fn month(self) -> i8 {
        self.date().map_or(0, Date::month)
    }

    /// Returns the day with these directory names, if it is one of `days`.
    pub(super) fn find(days: &BTreeSet<Self>, year: i16, month: i8, name: &str) -> Option<Self> {
        let date = Date::new(year, month, digits(name, 2)?.try_into().ok()?).ok()?;
        let start = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond();
        Some(Self(start.div_euclid(DAY_MS))).filter(|day| days.contains(day))
    }

    /// Returns the name of its directory: the day of the month.
    pub(super) fn name(self) -> String {
        format!("{:02}", self.date().map_or(0, Date::day))
    }

    fn date(self) -> Option<Date> {
        let start = Timestamp::from_millisecond(self.0.checked_mul(DAY_MS)?).ok()?;
        Some(start.to_zoned(TimeZone::UTC).date())
    }
}

/// Parses a directory's name as a year.
pub(super) fn year(name: &str) -> Option<i16> {
    digits(name, 4)?.try_into().ok()
}

/// Parses a directory's name as a month.
pub(super) fn month(name: &str) -> Option<i8> {
    digits(name, 2)?.try_into().ok()
}

/// Parses a number with exactly this many digits.
fn digits(text: &str, count: usize) -> Option<u32> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_end_at_midnight() {
        let last = 1_795_219_199_999; // 2026-11-20T23:59:59.999Z
        let day = Day::of(last).unwrap();
        assert_eq!((day.year(), day.month(), day.name()), (2026, 11, "20".into()));
        assert_eq!(day.end_unix_ms(), last + 1);
        assert_eq!(Day::of(last + 1).unwrap().name(), "21");
        let days = BTreeSet::from([day]);
        assert_eq!(Day::find(&days, 2026, 11, "20"), Some(day));
        for name in ["21", "020", "2", "+2", "31", "00", "99", ""] {
            assert_eq!(Day::find(&days, 2026, 11, name), None, "{name}");
        }
    }

    #[test]
    fn times_out_of_range_have_no_day() {
        for time in [i64::MIN, i64::MAX, -62_167_219_200_001] {
            assert_eq!(Day::of(time), None, "{time}");
        }
        assert_eq!(Day::of(-1).unwrap().year(), 1969);
    }
}
