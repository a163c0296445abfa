//! The effect of several changes of an origin, as rows. Pure.

use std::collections::BTreeMap;

use platter_image::{Error, Result};
use platter_records::ReplicaPosition;
use platter_store::{ReplicatedChange, RowChange, RowKey};

/// The last change of each row.
pub(super) type Net = BTreeMap<RowKey, RowChange>;

/// Returns the last change of each row.
pub(super) fn net_of(changes: &[ReplicatedChange]) -> Net {
    let rows = changes.iter().flat_map(|change| &change.rows);
    rows.map(|row| (row.key(), row.clone())).collect()
}

/// Returns the changes that lead from these rows to the rows after `changes`, which begin with a copy of all rows.
pub(super) fn difference(own: &[RowChange], changes: &[ReplicatedChange]) -> Vec<RowChange> {
    let target: Net = net_of(changes).into_iter().filter(|(_, row)| !row.is_removal()).collect();
    let own: Net = own.iter().map(|row| (row.key(), row.clone())).collect();
    let gone = own.iter().filter(|(key, _)| !target.contains_key(key)).map(|(_, row)| row.removal());
    let put = target.iter().filter(|(key, row)| own.get(key) != Some(row)).map(|(_, row)| row.clone());
    gone.chain(put).collect()
}

/// Returns the versions among `own` that `rows` remove although the origin has not forgotten or renamed them.
pub(super) fn vanished(own: &[RowChange], rows: &[RowChange], changes: &[ReplicatedChange]) -> Vec<String> {
    let target = net_of(changes);
    let removed: Vec<RowKey> = rows.iter().filter(|row| row.is_removal()).map(RowChange::key).collect();
    let versions = own.iter().filter_map(|row| Some((row.key(), row.version().ok()??)));
    let lost = versions.filter(|(key, _)| {
        let former = RowChange::former_key(key);
        removed.contains(key) && target.get(&former).is_none_or(RowChange::is_removal)
    });
    lost.map(|(_, version)| version.name.to_string()).collect()
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
        if last.is_some_and(|(before, hash)| (before + 1, hash.as_str()) != (number, change.before.as_str()))
        {
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
