//! `platter lock`: edit locks.

use std::process::ExitCode;

use platter_jobs::{
    OpenStore, StoreLocation, default_holder, release_edit_lock, steal_edit_lock, take_edit_lock,
};
use serde_json::json;

use super::Outcome;
use super::images::time;
use crate::arguments::{Lock, LockOf};
use crate::output::{Output, table};

pub(crate) fn run(store: &StoreLocation, options: &Lock, output: &Output) -> Outcome {
    let holder = |of: &LockOf| of.holder.clone().unwrap_or_else(default_holder);
    let (edit_lock, done) = match options {
        Lock::List => return list(&OpenStore::open_reader(store)?, output),
        Lock::Take(of) => (take_edit_lock(store, &of.name, &holder(of))?, "taken"),
        Lock::Steal(of) => (steal_edit_lock(store, &of.name, &holder(of))?, "taken over"),
        Lock::Release(of) => (release_edit_lock(store, &of.name, &holder(of))?, "released"),
    };
    output.fact(&edit_lock, || format!("{}: {done}: {edit_lock}", edit_lock.image));
    Ok(ExitCode::SUCCESS)
}

fn list(store: &OpenStore, output: &Output) -> Outcome {
    let edit_locks = store.edit_locks()?;
    if output.is_json() {
        edit_locks.iter().for_each(|edit_lock| output.fact(edit_lock, String::new));
    } else if edit_locks.is_empty() {
        output.fact(&json!(null), || "no edit lock is held".into());
    } else {
        let mut rows = vec![["IMAGE", "LOCK", "HOLDER", "SINCE", "OVERLAY"].map(String::from).to_vec()];
        rows.extend(edit_locks.iter().map(|edit_lock| {
            let overlay = if edit_lock.overlay.is_empty() { "-".into() } else { edit_lock.overlay.clone() };
            let number = edit_lock.number.to_string();
            vec![
                edit_lock.image.to_string(),
                number,
                edit_lock.holder.clone(),
                time(edit_lock.time_unix_ms),
                overlay,
            ]
        }));
        output.fact(&json!(null), || table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}
