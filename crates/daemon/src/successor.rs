//! Tells the stores that this one has replaced, as long as one of them does not know it: an origin that was lost may return. Those
//! that confirmed it are asked again now and then: an older copy of one may have taken its place, and one may know of another
//! promotion. Says in the log what the store is among its copies whenever that changes.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{Error, Result};
use platter_records::{Action, Actor, Standing};
use platter_store::StandingChange;

use crate::config::TellFormer;
use crate::origin::Origin;
use crate::serve_event::{OnEvent, ServeEvent};

/// Pause between two attempts, and the longest time without looking whether the origin ends.
const PAUSE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(200);
/// Pause before stores that confirmed it are asked again.
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// Starts a thread that tells them until the origin ends. It is not waited for: a request to a silent machine takes long.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn start(origin: &Arc<Origin>, tell: TellFormer, on_event: OnEvent) -> Result<()> {
    let (origin, ending) = (Arc::downgrade(origin), origin.ending.clone());
    let run = move || {
        let mut telling =
            Telling { origin, tell, on_event, said: Vec::new(), was: String::new(), asked: None };
        while !*ending.borrow() {
            // The next attempt follows anyway.
            let _ = telling.attempt();
            let until = Instant::now() + PAUSE;
            while Instant::now() < until && !*ending.borrow() {
                thread::sleep(LOOK);
            }
        }
    };
    let thread = thread::Builder::new().name("successor".into()).spawn(run);
    thread.map(drop).map_err(|error| Error::io("starting the thread that tells former origins", error))
}

struct Telling {
    origin: Weak<Origin>,
    tell: TellFormer,
    on_event: OnEvent,
    /// Notes of the last attempt.
    said: Vec<String>,
    /// What the store was at the last attempt.
    was: String,
    /// When all former origins were asked.
    asked: Option<Instant>,
}

impl Telling {
    fn attempt(&mut self) -> Result<()> {
        let Some(store) = self.origin.upgrade().map(|origin| origin.store.clone()) else { return Ok(()) };
        let standing = store.standing()?;
        self.note_standing(&standing);
        let all = self.asked.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN);
        if !all && !standing.has_untold() {
            return Ok(());
        }
        if all {
            self.asked = Some(Instant::now());
        }
        let answers = (self.tell)(&standing, store.id(), all);
        if standing.with_answers(&answers).is_some()
            && let Some(origin) = self.origin.upgrade()
        {
            let after = origin.writer.change(&Actor::new("serve", "local"), |store| {
                store.change_standing(|present, _| {
                    let (standing, action) = (present.with_answers(&answers), Action::NoteStanding {});
                    Ok(standing.map(|standing| StandingChange { standing, action, used: Vec::new() }))
                })
            })?;
            self.note_standing(&after);
        }
        if answers.notes != self.said {
            answers.notes.iter().for_each(|note| self.note(note.clone()));
            self.said = answers.notes;
        }
        Ok(())
    }

    /// Says what the store is, if that changed. Not for followers: their positions change all the time.
    fn note_standing(&mut self, standing: &Standing) {
        let now = match standing {
            Standing::Follower(_) | Standing::Origin { epoch: 0, .. } => String::new(),
            other => {
                let former = other.successor("").map_or(&[][..], |(_, former)| former);
                let told = former.iter().filter(|it| it.told);
                let told: Vec<String> =
                    told.map(|it| format!("; told {}", it.access.address.escape_debug())).collect();
                format!("this store is {}{}", other.summary(), told.concat())
            }
        };
        if now != self.was {
            if !now.is_empty() {
                self.note(now.clone());
            }
            self.was = now;
        }
    }

    fn note(&self, note: String) {
        (self.on_event)(&ServeEvent::Note(note));
    }
}
