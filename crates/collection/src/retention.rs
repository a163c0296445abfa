//! Retention: which versions of an image a policy keeps, and why. Pure: it takes versions and gives verdicts.
//!
//! The rules are those of restic: each rule keeps the newest version of each of its last N periods that have one; a version is
//! kept if any rule keeps it. Versions are in the order of their numbers, and periods in that of their newest versions, whatever
//! their times say. A period that occurs again, after another one, is kept again and counted once: so a version whose time is wrong keeps
//! no true one from being kept, except that its period is one of the N. Periods are in UTC. The newest version of an image is always kept.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use platter_image::{Error, Result};
use platter_records::Version;

/// A policy. A rule of 0 keeps nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// The newest N versions.
    pub last: usize,
    /// The newest version of each of the last N hours, days, ISO weeks, months and years that have one.
    pub hourly: usize,
    /// See `hourly`.
    pub daily: usize,
    /// See `hourly`.
    pub weekly: usize,
    /// See `hourly`.
    pub monthly: usize,
    /// See `hourly`.
    pub yearly: usize,
    /// Versions with a label `KEY=VALUE`, or with any value if only `KEY` is given.
    pub labels: BTreeSet<String>,
}

/// What a policy decides about one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionVerdict {
    /// Number of the version.
    pub number: u64,
    /// The rules that keep it, such as `daily`; empty: it is forgotten.
    pub reasons: Vec<String>,
}

/// The period in which a time lies, by the name of its rule.
type Period = (&'static str, fn(Date, i8) -> [i64; 4]);

const PERIODS: [Period; 5] = [
    ("hourly", |date, hour| [date.year().into(), date.month().into(), date.day().into(), hour.into()]),
    ("daily", |date, _| [date.year().into(), date.month().into(), date.day().into(), 0]),
    ("weekly", |date, _| {
        let week = date.iso_week_date();
        [week.year().into(), week.week().into(), 0, 0]
    }),
    ("monthly", |date, _| [date.year().into(), date.month().into(), 0, 0]),
    ("yearly", |date, _| [date.year().into(), 0, 0, 0]),
];

impl RetentionPolicy {
    /// Returns whether no rule keeps anything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn count(&self, rule: &str) -> usize {
        match rule {
            "hourly" => self.hourly,
            "daily" => self.daily,
            "weekly" => self.weekly,
            "monthly" => self.monthly,
            _ => self.yearly,
        }
    }

    /// Decides about the versions of one image, in any order. Those with a number in `protected` stay. Returns the verdicts from the
    /// newest to the oldest version.
    ///
    /// # Errors
    /// `Refused` when the policy has no rule: it would forget all versions but one.
    pub fn decide(&self, versions: &[Version], protected: &BTreeSet<u64>) -> Result<Vec<RetentionVerdict>> {
        if self.is_empty() {
            return Err(Error::refused("the policy keeps nothing: name at least one --keep-… rule"));
        }
        let mut descending: Vec<&Version> = versions.iter().collect();
        descending.sort_by_key(|version| Reverse(version.name.number));
        let mut seen: [BTreeSet<[i64; 4]>; PERIODS.len()] = Default::default();
        let mut newer: [Option<[i64; 4]>; PERIODS.len()] = Default::default();
        let mut verdicts = Vec::new();
        for (age, version) in descending.into_iter().enumerate() {
            let mut reasons = Vec::new();
            if age == 0 {
                reasons.push("newest".to_owned());
            }
            if protected.contains(&version.name.number) {
                reasons.push("protected".to_owned());
            }
            if age < self.last {
                reasons.push("last".to_owned());
            }
            let time = Timestamp::from_millisecond(version.record.time_unix_ms).unwrap_or_default();
            let zoned = time.to_zoned(TimeZone::UTC);
            for (((rule, period_of), seen), newer) in PERIODS.iter().zip(&mut seen).zip(&mut newer) {
                let period = period_of(zoned.date(), zoned.hour());
                let is_newest = newer.replace(period) != Some(period);
                if is_newest && (seen.len() < self.count(rule) || seen.contains(&period)) {
                    seen.insert(period);
                    reasons.push((*rule).to_owned());
                }
            }
            let labels = self.labels.iter().filter(|wanted| has_label(version, wanted));
            reasons.extend(labels.map(|label| format!("label {label}")));
            verdicts.push(RetentionVerdict { number: version.name.number, reasons });
        }
        Ok(verdicts)
    }
}

fn has_label(version: &Version, wanted: &str) -> bool {
    let labels = &version.record.labels;
    match wanted.split_once('=') {
        Some((key, value)) => labels.get(key).is_some_and(|found| found == value),
        None => labels.contains_key(wanted),
    }
}

#[cfg(test)]
mod tests {
    use platter_image::{BlockId, Score};
    use platter_records::{VersionName, VersionRecord};

    use super::*;

    const DAY: i64 = 24 * 3_600_000;
    /// 2026-01-01 (a Thursday), 12:00 UTC.
    const START: i64 = 1_767_268_800_000;

    fn version(number: u64, time_unix_ms: i64) -> Version {
        let id = BlockId([7; 32]);
        let image: platter_records::ImageName = "lab/a".parse().unwrap();
        let mut record = VersionRecord::draft(image.clone(), Score(id), time_unix_ms);
        record.number = number;
        Version { name: VersionName { image, number }, record_id: id, record }
    }

    fn kept(policy: &RetentionPolicy, versions: &[Version]) -> Vec<u64> {
        let verdicts = policy.decide(versions, &BTreeSet::new()).unwrap();
        verdicts.iter().filter(|verdict| !verdict.reasons.is_empty()).map(|verdict| verdict.number).collect()
    }

    /// Two versions a day for 60 days, numbers from 1.
    fn two_a_day() -> Vec<Version> {
        (0..120).map(|n| version(n + 1, START + n as i64 * DAY / 2)).collect()
    }

    /// Versions of these days, numbers from 1.
    fn of_days(days: &[i64]) -> Vec<Version> {
        days.iter().zip(1..).map(|(day, number)| version(number, START + day * DAY)).collect()
    }

    #[test]
    fn a_wrong_clock_costs_at_most_its_own_periods() {
        let daily = |count| RetentionPolicy { daily: count, ..RetentionPolicy::default() };
        let kept = |days: &[i64], count| kept(&daily(count), &of_days(days));
        // A clock that was wrong once, behind for three days, ahead for two, and turned back for a while.
        assert_eq!(kept(&[17, 18, 56, 19, 20, 21, 22], 7), [7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(kept(&[17, 18, 56, 19, 20, 21, 22], 3), [7, 6, 5]);
        assert_eq!(kept(&[17, 18, 19, 0, 1, 2], 7), [6, 5, 4, 3, 2, 1]);
        assert_eq!(kept(&[17, 18, 19, 25, 26, 22, 23], 7), [7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(kept(&[17, 18, -20_000, -20_000, -20_000], 3), [5, 2, 1]);
        // A wrong time that names a true day, and a clock that jumps to and fro.
        assert_eq!(kept(&[17, 18, 19, 20, 17], 7), [5, 4, 3, 2, 1]);
        assert_eq!(kept(&[17, 18, 19, 20, 17], 2), [5, 4, 1]);
        assert_eq!(kept(&[5, 5, 6, 5, 6], 7), [5, 4, 3, 2]);
    }

    #[test]
    fn each_rule_keeps_the_newest_of_its_periods() {
        let versions = two_a_day();
        let policy = RetentionPolicy { last: 3, ..RetentionPolicy::default() };
        assert_eq!(kept(&policy, &versions), [120, 119, 118]);
        // 120 is at 00:00 of a day of its own, 119 and 118 are on the day before it.
        let policy = RetentionPolicy { daily: 3, ..RetentionPolicy::default() };
        assert_eq!(kept(&policy, &versions), [120, 119, 117]);
        let policy = RetentionPolicy { monthly: 12, ..RetentionPolicy::default() };
        // Day 59 at midnight is March 2; the last of February is number 117, the last of January 61.
        assert_eq!(kept(&policy, &versions), [120, 117, 61]);
        let policy = RetentionPolicy { weekly: 2, ..RetentionPolicy::default() };
        // March 2, 2026 is a Monday.
        assert_eq!(kept(&policy, &versions), [120, 119]);
        let policy = RetentionPolicy { yearly: 5, ..RetentionPolicy::default() };
        assert_eq!(kept(&policy, &versions), [120]);
    }

    #[test]
    fn a_version_is_kept_if_any_rule_keeps_it_and_every_reason_is_told() {
        let policy = RetentionPolicy { last: 1, daily: 2, ..RetentionPolicy::default() };
        let verdicts = policy.decide(&two_a_day(), &BTreeSet::new()).unwrap();
        assert_eq!(verdicts[0].reasons, ["newest", "last", "daily"]);
        assert_eq!(verdicts[1].reasons, ["daily"]);
        assert!(verdicts[2..].iter().all(|verdict| verdict.reasons.is_empty()));
    }

    #[test]
    fn labels_keep_versions_and_so_does_being_the_newest() {
        let mut versions = two_a_day();
        versions[4].record.labels.insert("release".into(), "1.0".into());
        versions[6].record.labels.insert("release".into(), "1.1".into());
        let with =
            |label: &str| RetentionPolicy { labels: [label.to_owned()].into(), ..RetentionPolicy::default() };
        assert_eq!(kept(&with("release"), &versions), [120, 7, 5]);
        assert_eq!(kept(&with("release=1.0"), &versions), [120, 5]);
        assert_eq!(kept(&with("none"), &versions), [120]);
    }

    #[test]
    fn a_policy_without_rules_is_refused() {
        assert!(RetentionPolicy::default().decide(&two_a_day(), &BTreeSet::new()).is_err());
        assert_eq!(kept(&RetentionPolicy { last: 1, ..Default::default() }, &[]), Vec::<u64>::new());
    }
}
