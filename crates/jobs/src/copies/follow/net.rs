//! The effect of several changes of an origin, as rows. Pure.

use std::collections::BTreeMap;
use std::fmt;

use platter_image::{Error, Result};
use platter_records::{ReplicaPosition, VersionName, VersionRecord};
use platter_store::{ReplicatedChange, RowChange, RowKey};

/// The last change of each row.
pub(super) type Net = BTreeMap<RowKey, RowChange>;

/// Returns the last change of each row.
pub(super) fn net_of(changes: &[ReplicatedChange]) -> Net {
    let rows = changes.iter().flat_map(|change| &change.rows);
    rows.map(|row| (row.key(), row.clone())).collect()
}

/// Returns the changes that lead from these rows to the rows after `changes`, which begin with a copy of all rows. Assigned numbers
/// stay, and so do former versions, except those that exist again.
pub(super) fn difference(own: &[RowChange], changes: &[ReplicatedChange]) -> Vec<RowChange> {
    let target: Net = net_of(changes).into_iter().filter(|(_, row)| !row.is_removal()).collect();
    let own: Net = own.iter().map(|row| (row.key(), row.clone())).collect();
    let goes = |key: &RowKey, row: &RowChange| match row.former() {
        Some(former) => is_version(target.get(&RowChange::version_key(key)), &former),
        None => !row.outlives_origin(),
    };
    let gone = own.iter().filter(|(key, row)| !target.contains_key(key) && goes(key, row));
    let gone = gone.map(|(_, row)| row.removal());
    let put = target.iter().filter(|(key, row)| own.get(key) != Some(row)).map(|(_, row)| row.clone());
    gone.chain(put).collect()
}

/// A version that a follower has and its origin neither has nor has forgotten or renamed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) name: VersionName,
    /// Whether the origin has or had another version of that name.
    pub(super) is_other_there: bool,
}

/// Returns the versions among `own` that an origin with these changes, which begin with a copy of all rows, does not know. A version
/// is the same only with the same disk and time; its name and number alone prove nothing.
///
/// # Errors
/// `Corrupt` when a row contradicts its record.
pub(super) fn lost(own: &[RowChange], changes: &[ReplicatedChange]) -> Result<Vec<Lost>> {
    let target: Net = net_of(changes).into_iter().filter(|(_, row)| !row.is_removal()).collect();
    let mut lost = Vec::new();
    for row in own {
        let Some(here) = row.version()? else { continue };
        let key = row.key();
        let (there, former) = (target.get(&key), target.get(&RowChange::former_key(&key)));
        let is_former = former.and_then(RowChange::former).is_some_and(|it| it.is_same_version(&here.record));
        if !is_former && !is_version(there, &here.record) {
            let is_other_there = there.is_some() || former.is_some();
            lost.push(Lost { name: here.name, is_other_there });
        }
    }
    Ok(lost)
}

/// Whether a row enters that version.
fn is_version(row: Option<&RowChange>, record: &VersionRecord) -> bool {
    let there = row.and_then(|row| row.version().ok().flatten());
    there.is_some_and(|there| there.record.is_same_version(record))
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.is_other_there { " (another disk has that name there)" } else { "" };
        write!(f, "{}{note}", self.name)
    }
}

/// Checks that each change continues the one before it, from `position` up to `next`.
///
/// # Errors
/// `Corrupt` when one is missing or another one.
pub(super) fn check_chain(
    changes: &[ReplicatedChange],
    position: Option<&ReplicaPosition>,
    next: &ReplicaPosition,
) -> Result<()> {
    let mut last = position.map(|position| (position.number, position.hash.clone()));
    for change in changes {
        let number = change.record.number;
        let continues =
            |(before, hash): (u64, String)| before.checked_add(1) == Some(number) && hash == change.before;
        if !last.is_none_or(continues) {
            return Err(Error::corrupt(format!(
                "the origin's change {number} does not continue the one before"
            )));
        }
        last = Some((number, change.hash.clone()));
    }
    match last {
        Some((number, hash)) if (number, &hash) != (next.number, &next.hash) => {
            Err(Error::corrupt("the origin's position contradicts its changes"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use platter_records::ImageName;
    use platter_store::{Continuation, Store, StorePlace};
    use platter_testbed::{Lab, mix, store_disk};

    use super::*;
    use crate::Silent;
    use crate::copies::{PushRequest, push};

    fn changes(store: &Store) -> Vec<ReplicatedChange> {
        let Continuation::Start(texts) = store.changes_for_follower(None, usize::MAX).unwrap() else {
            panic!("no copy of all rows");
        };
        texts.texts.iter().map(|text| ReplicatedChange::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_version_is_the_same_only_with_the_same_disk() {
        let lab = Lab::new();
        let other = StorePlace::on_system(lab.path("other"));
        Store::init(&other).unwrap();
        let disk = |key: u64| (0..4096).flat_map(|n| mix(n | key << 40).to_le_bytes()).collect::<Vec<u8>>();
        for key in 1..=3 {
            store_disk(&lab.place, "a", &disk(key));
        }
        let known = platter_store::KnownCheck::Sample;
        let (from, to) = (lab.place.clone().into(), other.clone().into());
        let what = vec!["a@1".parse().unwrap(), "a@2".parse().unwrap()];
        push(&PushRequest { from, to, what, restore: false, known }, &Silent).unwrap();
        let (own, origin) = (Store::open_reader(&lab.place).unwrap(), Store::open_reader(&other).unwrap());
        let lost_now = || {
            let lost = lost(&own.replicated_rows().unwrap(), &changes(&origin)).unwrap();
            lost.iter().map(Lost::to_string).collect::<Vec<_>>()
        };
        assert_eq!(lost_now(), ["a@3"]);
        store_disk(&other, "a", &disk(4));
        assert_eq!(lost_now(), ["a@3 (another disk has that name there)"]);
        let image: ImageName = "a".parse().unwrap();
        origin.forget(&image, Some(3)).unwrap();
        assert_eq!(lost_now(), ["a@3 (another disk has that name there)"], "another one was forgotten");
        origin.forget(&image, Some(2)).unwrap();
        assert_eq!(lost_now().len(), 1, "what the origin has forgotten is not lost");
        let rows = difference(&own.replicated_rows().unwrap(), &changes(&origin));
        assert!(rows.iter().all(|row| !row.is_removal() || !row.outlives_origin()), "{rows:?}");
    }
}
