//! `platter encryption`.

use std::process::ExitCode;

use platter_jobs::{Error, KeyFile, SLOTS_MAX, StoreLocation, StorePlace};
use serde_json::json;

use super::Outcome;
use crate::arguments::{Encryption, UnlockArguments};
use crate::output::{Output, table};
use crate::unlock::{NewKeyFile, master, new_secret};

pub(crate) fn run(
    store: &StoreLocation,
    options: &Encryption,
    unlock: &UnlockArguments,
    output: &Output,
) -> Outcome {
    let place = store.local("managing key slots")?;
    let not_encrypted = || Error::refused(format!("the store in {} is not encrypted", place.dir().display()));
    let keys = place.read_key_file()?.ok_or_else(not_encrypted)?;
    if matches!(options, Encryption::List) {
        list(&keys, output);
        return Ok(ExitCode::SUCCESS);
    }
    // Whoever changes slots proves that he can open the store, also to remove one.
    let (master, opened) = master(place, &keys, unlock, output)?;
    let (done, slot) = match options {
        Encryption::List => return Ok(ExitCode::SUCCESS),
        Encryption::Add { secret, label } => {
            // Refused before a key file is created.
            if keys.slots().len() >= SLOTS_MAX {
                return Err(Error::refused(format!(
                    "the store has {SLOTS_MAX} key slots already: remove one"
                )));
            }
            let (secret, created) = new_secret(place, secret, output)?;
            // Removing one of two slots with the same secret would look as if the secret no longer opened the store.
            if let Ok((_, slot)) = keys.unlock(&secret) {
                return Err(Error::refused(format!(
                    "this secret opens the store already: it is that of key slot {slot}"
                )));
            }
            let added = place.change_key_file(|keys| keys.add(&master, label, &secret, secret.cost()));
            keep(created, place, &keys, output);
            ("added", added?)
        }
        Encryption::Change { slot, secret } => {
            if keys.slots().iter().all(|known| known.number != *slot) {
                return Err(Error::missing(format!("there is no key slot {slot}")));
            }
            let (secret, created) = new_secret(place, secret, output)?;
            let changed = place.change_key_file(|keys| keys.change(&master, *slot, &secret, secret.cost()));
            keep(created, place, &keys, output);
            changed?;
            ("changed", *slot)
        }
        Encryption::Remove { slot } => {
            place.change_key_file(|keys| keys.remove(*slot))?;
            ("removed", *slot)
        }
    };
    let fact = json!({ "slot": slot, "done": done, "opened_with": opened });
    output.fact(&fact, || format!("{done} key slot {slot}"));
    Ok(ExitCode::SUCCESS)
}

/// Keeps a new key file unless the key slots are as they were. After a failed sync, they may be the new ones.
fn keep(created: Option<NewKeyFile>, place: &StorePlace, before: &KeyFile, output: &Output) {
    let is_unchanged = matches!(place.read_key_file(), Ok(Some(now)) if now == *before);
    if let Some(created) = created.filter(|_| !is_unchanged) {
        created.keep("keep a copy elsewhere", output);
    }
}

fn list(keys: &KeyFile, output: &Output) {
    let slots = keys.slots();
    if output.is_json() {
        slots.iter().for_each(|slot| output.fact(slot, String::new));
        return;
    }
    output.fact(&json!(null), || {
        let mut rows = vec![["SLOT", "SECRET", "LABEL"].map(String::from).to_vec()];
        rows.extend(
            slots
                .iter()
                .map(|slot| vec![slot.number.to_string(), slot.kind.word().into(), slot.label.clone()]),
        );
        table(&rows)
    });
}
