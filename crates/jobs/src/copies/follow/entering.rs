//! Enters rows of the origin: first copies the data of new versions and boot sets, then commits. What the origin cannot give is left
//! out, remembered, and tried again; it never stops the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_client::OriginStore;
use platter_fetch::OpenSession;
use platter_image::{BlockId, Error, FrameStore, Result};
use platter_records::{
    Action, BootSet, ChangeRecord, Following, LeftOut, ReplicaPosition, Standing, VersionName,
};
use platter_store::{RowChange, RowKey, StandingChange, Store};

use super::super::carry::carry;
use super::super::feed::Feed;
use crate::Progress;

/// Versions and boot sets that are entered together, if none of them brings data of a disk.
const ENTERED_TOGETHER: usize = 16;

/// Rows to be entered, with what the log says about them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) rows: Vec<RowChange>,
    pub(super) changes: Vec<ChangeRecord>,
    /// The position after them.
    pub(super) position: Option<ReplicaPosition>,
}

/// Maximum number of rows that are left out, and of their bytes. Each commit writes them.
const LEFT_OUT_MAX: usize = 1_000;
const LEFT_OUT_BYTES_MAX: usize = 384 << 10;

/// Enters batches into a store that is open for writing.
pub(super) struct Entering<'a> {
    pub(super) store: &'a Arc<Store>,
    pub(super) feed: &'a mut Feed,
    pub(super) origin: &'a OriginStore,
    pub(super) following: &'a mut Following,
    pub(super) progress: &'a dyn Progress,
}

/// Refuses to leave out more than the store's standing has room for: then the origin is to be healed first.
///
/// # Errors
/// `Corrupt`.
fn check_left_out<'a>(left: impl Iterator<Item = &'a LeftOut>) -> Result<()> {
    let (count, bytes) = left.fold((0, 0), |(count, bytes), out| {
        (count + 1, bytes + out.what.len() + out.why.len() + out.row.len())
    });
    if count <= LEFT_OUT_MAX && bytes <= LEFT_OUT_BYTES_MAX {
        return Ok(());
    }
    // Ends a follower: nothing changes until somebody heals the origin.
    Err(Error::refused(format!(
        "{count} versions and boot sets are damaged at the origin, more than a follower leaves out: `platter check` and `platter heal` \
         at the origin come first"
    )))
}

/// What is ready for the next commit.
#[derive(Default)]
struct Ready {
    rows: Vec<RowChange>,
    versions: Vec<VersionName>,
}

impl Entering<'_> {
    /// Enters a batch. Returns the versions that can be read now.
    ///
    /// # Errors
    /// When the origin cannot be asked, or a write fails. Data that was copied is kept, and the position stays.
    pub(super) fn enter(&mut self, batch: Batch) -> Result<Vec<VersionName>> {
        let mut left: BTreeMap<RowKey, LeftOut> = BTreeMap::new();
        for out in &self.following.left_out {
            left.insert(RowChange::from_json(&out.row)?.key(), out.clone());
        }
        batch.rows.iter().for_each(|row| drop(left.remove(&row.key())));
        let has_data =
            |row: &RowChange| row.boot_set().is_some() || row.version().is_ok_and(|it| it.is_some());
        let (new, others): (Vec<RowChange>, Vec<RowChange>) = batch.rows.into_iter().partition(has_data);
        let new = in_order(new)?;
        // With the first versions, so that no number is assigned again. Once is enough.
        let mut numbers: Vec<RowChange> = others.iter().filter(|row| row.is_of_numbers()).cloned().collect();
        self.announce(&new)?;
        let (mut ready, mut entered, mut session) = (Ready::default(), Vec::new(), self.session()?);
        for row in new {
            let brings_disk = self.brings_disk(&row)?;
            // What is ready does not wait for a disk.
            if brings_disk && !ready.rows.is_empty() {
                session = self.enter_ready(session, &mut ready, &mut numbers, &mut entered)?;
            }
            match self.copy(&row, &session) {
                Ok(()) => {
                    ready.versions.extend(row.version()?.map(|version| version.name));
                    ready.rows.push(row);
                }
                Err(error) if error.is_damage() => {
                    let out = LeftOut { what: what(&row)?, why: error.with_causes(), row: row.to_json()? };
                    self.progress.note(&format!("{} is left out for now: {}", out.what, out.why));
                    left.insert(row.key(), out);
                    check_left_out(left.values())?;
                }
                Err(error) => return Err(error),
            }
            let is_enough = brings_disk || ready.rows.len() >= ENTERED_TOGETHER;
            if is_enough && !ready.rows.is_empty() {
                session = self.enter_ready(session, &mut ready, &mut numbers, &mut entered)?;
            }
        }
        let Ready { mut rows, versions } = ready;
        rows.extend(others);
        entered.extend_from_slice(&versions);
        self.following.announced.clear();
        self.following.left_out = left.into_values().collect();
        if let Some(position) = batch.position {
            self.following.position = Some(position);
        }
        let up_to = self.following.position.as_ref().map_or(0, |position| position.number);
        self.commit(session, &rows, Action::Follow { up_to, versions, changes: batch.changes })?;
        Ok(entered)
    }

    /// Enters what is ready, before the rest of the batch. Returns the next session.
    fn enter_ready(
        &mut self,
        session: OpenSession,
        ready: &mut Ready,
        numbers: &mut Vec<RowChange>,
        entered: &mut Vec<VersionName>,
    ) -> Result<OpenSession> {
        let Ready { mut rows, versions } = std::mem::take(ready);
        rows.append(numbers);
        entered.extend_from_slice(&versions);
        self.following.announced.retain(|name| !versions.contains(name));
        let up_to = self.following.position.as_ref().map_or(0, |position| position.number);
        self.commit(session, &rows, Action::Follow { up_to, versions, changes: Vec::new() })?;
        self.session()
    }

    /// Whether a row enters a version whose disk is not here.
    fn brings_disk(&self, row: &RowChange) -> Result<bool> {
        let version = row.version()?;
        version.map_or(Ok(false), |version| {
            self.has_disk(&version.record.score.to_string()).map(|is_here| !is_here)
        })
    }

    /// Records which versions are about to be copied, so that they are known if the origin is lost meanwhile.
    fn announce(&mut self, new: &[RowChange]) -> Result<()> {
        let mut announced = Vec::new();
        for row in new {
            if let Some(version) = row.version()?
                && !self.has_disk(&version.record.score.to_string())?
            {
                announced.push(version.name);
            }
        }
        if announced.is_empty() || announced == self.following.announced {
            return Ok(());
        }
        self.following.announced = announced;
        let standing = Standing::Follower(Box::new(self.following.clone()));
        let change = StandingChange { standing, action: Action::NoteStanding {}, used: Vec::new() };
        self.store.change_standing(|_, _| Ok(Some(change))).map(drop)
    }

    fn session(&self) -> Result<OpenSession> {
        let session = Some(Box::new(self.store.upkeep_session()?));
        Ok(OpenSession::Local { store: self.store.clone(), session })
    }

    fn commit(&self, session: OpenSession, rows: &[RowChange], action: Action) -> Result<()> {
        let OpenSession::Local { session: Some(session), .. } = session else {
            return Err(Error::bug("a follower's session that is none"));
        };
        let standing = Standing::Follower(Box::new(self.following.clone()));
        session.apply(rows, &StandingChange { standing, action, used: Vec::new() })
    }

    /// Whether a version here has that disk: then all of its data is here.
    fn has_disk(&self, score: &str) -> Result<bool> {
        match self.store.resolve(score) {
            Err(error) if error.is_damage() => Ok(false),
            resolved => Ok(resolved?.version.is_some()),
        }
    }

    /// Copies the data that a row needs.
    fn copy(&mut self, row: &RowChange, session: &OpenSession) -> Result<()> {
        if let Some((boot_set, _)) = row.boot_set() {
            return self.copy_boot_set(&boot_set, session);
        }
        let Some(version) = row.version()? else { return Ok(()) };
        if self.has_disk(&version.record.score.to_string())? {
            return Ok(());
        }
        let (name, progress) = (&version.name, self.progress);
        progress.begin(&format!("copying {name}"), version.record.allocated_bytes);
        let copied = carry(self.feed, session, version.record.score, &mut |bytes| progress.advance(bytes));
        copied.map(drop)
    }

    fn copy_boot_set(&self, id: &BlockId, session: &OpenSession) -> Result<()> {
        let set = BootSet::decode(id, &self.origin.boot_set_bytes(id)?)?;
        let encoded = set.encode()?;
        if encoded.id != *id {
            return Err(Error::corrupt(format!("boot set {id} was written by another Platter")));
        }
        for frame in encoded.frames()? {
            let ids: Vec<BlockId> = frame.blocks.iter().map(|block| block.id).collect();
            if session.lookup_and_pin_all(&ids)?.iter().any(Option::is_none) {
                session.append(&frame)?;
            }
        }
        Ok(())
    }
}

/// Versions in the order in which they were made, then boot sets. Nothing depends on the order; it only decides what arrives first.
fn in_order(rows: Vec<RowChange>) -> Result<Vec<RowChange>> {
    let mut timed = Vec::with_capacity(rows.len());
    for row in rows {
        let time = row.version()?.map(|version| version.record.time_unix_ms);
        timed.push((time.is_none(), time, row));
    }
    timed.sort_by_key(|(is_boot_set, time, _)| (*is_boot_set, *time));
    Ok(timed.into_iter().map(|(.., row)| row).collect())
}

/// What a row enters, for messages.
fn what(row: &RowChange) -> Result<String> {
    Ok(match (row.version()?, row.boot_set()) {
        (Some(version), _) => version.name.to_string(),
        (None, Some((_, name))) => format!("boot set of {name}"),
        (None, None) => String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_much_is_left_out() {
        let out = |bytes: usize| LeftOut { what: String::new(), why: String::new(), row: "x".repeat(bytes) };
        let check = |count: usize, bytes: usize| check_left_out(vec![out(bytes); count].iter()).is_ok();
        assert!(check(0, 0) && check(LEFT_OUT_MAX, 300) && check(6, 64 << 10));
        assert!(!check(LEFT_OUT_MAX + 1, 1) && !check(7, 64 << 10));
    }
}
