//! The log of changes between an origin and its followers: what an origin sends, and how a follower enters it.

use platter_image::{Error, Result};
use platter_records::{Action, ReplicaPosition, Standing};

use crate::catalog::{
    ChangePosition, ReplicatedChange, RowChange, entry_end, first_position, hash_of_change, read_after,
    read_texts,
};
use crate::session::Session;
use crate::standing::StandingChange;
use crate::store::Store;

/// Changes of an origin after a position.
#[derive(Clone, Debug)]
pub enum Continuation {
    /// The changes that follow, in order.
    After(ChangeTexts),
    /// The log was replaced since, or there was no position: a copy of all rows, and the changes after it.
    Start(ChangeTexts),
    /// The origin does not have the change at that position: it was restored from a backup, or rebuilt with losses.
    Diverged(String),
}

/// The texts of changes.
#[derive(Clone, Debug)]
pub struct ChangeTexts {
    /// The texts, one of each change.
    pub texts: Vec<String>,
    /// The position after them.
    pub next: ReplicaPosition,
    /// Number of the origin's last change.
    pub last: u64,
}

impl Store {
    /// Returns changes after `position`, of about `bytes_max` bytes and at least one if there are any.
    ///
    /// # Errors
    /// `Corrupt` when the log is damaged there; `Io`.
    pub fn changes_for_follower(
        &self,
        position: Option<&ReplicaPosition>,
        bytes_max: usize,
    ) -> Result<Continuation> {
        let head = self.catalog()?.head()?;
        let place = self.place();
        let at = head.position();
        let is_same_log = position.is_some_and(|position| position.log == at.log_id());
        if let Some(position) = position {
            if position.number > head.number() {
                return Ok(Continuation::Diverged(format!(
                    "it has {} changes, and this follower has seen change {}",
                    head.number(),
                    position.number
                )));
            }
            if position.number == head.number() && position.hash == head.hash() {
                let next = ReplicaPosition { log: at.log_id(), offset: at.offset(), ..position.clone() };
                return Ok(Continuation::After(ChangeTexts { texts: Vec::new(), next, last: head.number() }));
            }
        }
        let start = match position {
            Some(position) if is_same_log => ChangePosition::of(position),
            _ => first_position(&head),
        };
        let texts = read_texts(place, &head, Some(&start), bytes_max)?;
        let first = texts.as_ref().and_then(|texts| texts.first());
        let first = first.map(|text| ReplicatedChange::parse(text)).transpose()?;
        if let Some(position) = position {
            let follows = is_same_log && first.as_ref().is_some_and(|first| first.before == position.hash);
            if !follows && !self.has_change(position)? {
                return Ok(Continuation::Diverged(format!("its change {} is another one", position.number)));
            }
        }
        let damaged =
            || Error::corrupt("the origin's change log is damaged: `platter rebuild` writes it again");
        let (texts, first) = texts.zip(first).ok_or_else(damaged)?;
        let next = ReplicaPosition {
            log: start.log_id(),
            number: first.record.number.saturating_sub(1),
            offset: start.offset(),
            hash: String::new(),
        };
        let texts = limited(texts, next, bytes_max, head.number());
        Ok(if is_same_log { Continuation::After(texts) } else { Continuation::Start(texts) })
    }

    /// Whether the logs have the change at that position.
    fn has_change(&self, position: &ReplicaPosition) -> Result<bool> {
        let head = self.catalog()?.head()?;
        let (found, _) = read_after(self.place(), &head, position.number.saturating_sub(1), 1)?;
        Ok(found.iter().any(|entry| entry.change.number == position.number && entry.hash == position.hash))
    }

    /// Returns all rows that followers have.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn replicated_rows(&self) -> Result<Vec<RowChange>> {
        self.catalog()?.replicated_rows()
    }
}

/// Takes as many texts as fit. `next` is the position before the first one.
fn limited(texts: Vec<String>, mut next: ReplicaPosition, bytes_max: usize, last: u64) -> ChangeTexts {
    let (mut bytes, mut taken) = (0, Vec::new());
    for text in texts {
        if !taken.is_empty() && bytes + text.len() > bytes_max {
            break;
        }
        bytes += text.len();
        next.offset = entry_end(next.offset, &text);
        next.number += 1;
        next.hash = hash_of_change(&text);
        taken.push(text);
    }
    ChangeTexts { texts: taken, next, last }
}

impl Session {
    /// Enters rows of the origin and the follower's new standing in one commit, together with the data that was added. Only for a
    /// store that still is a follower.
    ///
    /// # Errors
    /// `Refused` when the store is no follower; after any other error the store accepts no more writes until it is opened again.
    pub fn apply(&self, rows: &[RowChange], decided: &StandingChange) -> Result<()> {
        self.commit(|change, _, _| {
            if !matches!(change.standing()?, Standing::Follower(_)) {
                return Ok(Err(Error::refused("this store is no follower any more")));
            }
            change.apply(rows)?;
            change.set_standing(&decided.standing)?;
            change.does(Action::clone(&decided.action));
            Ok(Ok(()))
        })
    }
}
