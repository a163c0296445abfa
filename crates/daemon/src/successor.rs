//! Tells the stores that this one has replaced, as long as one of them does not know it: an origin that was lost may return.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{Error, Result};
use platter_records::{Action, Actor};
use platter_store::StandingChange;

use crate::config::TellFormer;
use crate::origin::Origin;
use crate::serve_event::{OnEvent, ServeEvent};

/// Pause between two attempts, and the longest time without looking whether the origin ends.
const PAUSE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(200);

/// Starts a thread that tells them until the origin ends. It is not waited for: a request to a silent machine takes long.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn start(origin: &Arc<Origin>, tell: TellFormer, on_event: OnEvent) -> Result<()> {
    let (weak, ending) = (Arc::downgrade(origin), origin.ending.clone());
    let run = move || {
        let mut said = Vec::new();
        while !*ending.borrow() {
            // The next attempt follows anyway.
            let notes = attempt(&weak, &tell).unwrap_or_default();
            if notes != said {
                notes.iter().for_each(|note| on_event(&ServeEvent::Note(note.clone())));
                said = notes;
            }
            let until = Instant::now() + PAUSE;
            while Instant::now() < until && !*ending.borrow() {
                thread::sleep(LOOK);
            }
        }
    };
    let thread = thread::Builder::new().name("successor".into()).spawn(run);
    thread.map(drop).map_err(|error| Error::io("starting the thread that tells former origins", error))
}

fn attempt(origin: &Weak<Origin>, tell: &TellFormer) -> Result<Vec<String>> {
    let Some(store) = origin.upgrade().map(|origin| origin.store.clone()) else { return Ok(Vec::new()) };
    let standing = store.standing()?;
    if !standing.has_untold() {
        return Ok(Vec::new());
    }
    let (told, notes) = tell(&standing, store.id());
    if let Some(origin) = origin.upgrade().filter(|_| !told.is_empty()) {
        let actor = Actor::new("serve", "local");
        origin.writer.change(&actor, |store| {
            store.change_standing(|present, _| {
                let standing = present.with_told(&told);
                let action = Action::NoteStanding {};
                Ok(standing.map(|standing| StandingChange { standing, action, used: Vec::new() }))
            })
        })?;
    }
    Ok(notes)
}
