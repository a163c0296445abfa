//! `platter init`.

use std::process::ExitCode;

use platter_jobs::{Error, KeyFile, MasterKey, Store, StoreLocation};
use serde_json::json;

use super::Outcome;
use crate::arguments::{Init, UnlockArguments};
use crate::output::Output;
use crate::unlock::{first_secret, key_slots_in, master, new_secret};

pub(crate) fn run(
    store: &StoreLocation,
    options: &Init,
    unlock: &UnlockArguments,
    output: &Output,
) -> Outcome {
    let place = store.local("creating a store")?;
    if place.is_store()? {
        return Err(Error::refused(format!("{} is already a store", place.dir().display())));
    }
    let is_secret_named = options.secret.new_file.is_some() || options.secret.new_command.is_some();
    let mut created = None;
    let keys = match &options.same_key_as {
        Some(file) => {
            let keys = key_slots_in(file)?;
            // Proves that somebody can open the new store.
            master(place, &keys, unlock, output)?;
            Some(keys)
        }
        None if options.encrypt => {
            let master = MasterKey::random()?;
            let mut keys = KeyFile::new(&master);
            let (secret, file) = match is_secret_named {
                true => new_secret(place, &options.secret, output)?,
                false => first_secret(place, unlock, output)?,
            };
            created = file;
            keys.add(&master, "", &secret, secret.cost())?;
            Some(keys)
        }
        None => None,
    };
    match &keys {
        Some(keys) => Store::init_encrypted(place, keys)?,
        None => Store::init(place)?,
    };
    if let Some(created) = created {
        created.keep("keep a copy elsewhere", output);
    }
    let dir = place.dir().display();
    output.fact(&json!({ "store": dir.to_string(), "encrypted": keys.is_some() }), || match keys.is_some() {
        true => format!(
            "created an encrypted store in {dir}\nkeep a copy of {dir}/keys.json elsewhere: without it nothing can be read"
        ),
        false => format!("created a store in {dir}"),
    });
    Ok(ExitCode::SUCCESS)
}
