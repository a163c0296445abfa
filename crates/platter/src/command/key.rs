//! `platter key`.

use std::path::Path;
use std::process::ExitCode;

use platter_jobs::{Error, Result, TrustedKey, TrustedKeys, create_key};
use serde_json::json;

use super::Outcome;
use crate::arguments::{Key, TrustedKeysArgument};
use crate::output::{Output, table};
use crate::question::{ask_password, new_password};

pub(crate) fn run(options: &Key, output: &Output) -> Outcome {
    match options {
        Key::Create { file, no_password } => {
            let password = if *no_password { None } else { Some(new_password()?) };
            let key = create_key(file, password)?;
            output.fact(&facts(&key), || {
                format!(
                    "{}: secret key {}, keep it private and keep a copy\n{}: public key, `platter key trust` takes it\n{}",
                    file.display(),
                    key.id,
                    key.path.display(),
                    key.line()
                )
            });
        }
        Key::Trust { file, keys } => {
            let mut keys = read(keys)?;
            let key = keys.add(file)?;
            output.fact(&facts(&key), || {
                format!(
                    "trusted: {} ({})\nthis machine installs, receives and attaches only versions that a key in {} signed",
                    key.id,
                    key.path.display(),
                    keys.directory().display()
                )
            });
        }
        Key::Distrust { id, keys } => {
            let mut keys = read(keys)?;
            // A file with the key is accepted, too, as `trust` takes one.
            let of_file = TrustedKey::read(Path::new(id)).map(|key| key.id);
            let key = keys.remove(of_file.as_deref().unwrap_or(id))?;
            output.fact(&facts(&key), || {
                let rest = match keys.keys().len() {
                    0 => "\nno key is trusted any more: this machine uses all versions, signed or not",
                    _ => "",
                };
                format!("no longer trusted: {}{rest}", key.id)
            });
        }
        Key::List { keys } => list(&read(keys)?, output),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(keys: &TrustedKeys, output: &Output) {
    if output.is_json() {
        keys.keys().iter().for_each(|key| output.fact(&facts(key), String::new));
        return;
    }
    output.fact(&json!(null), || {
        if keys.keys().is_empty() {
            return format!(
                "no trusted key in {}: this machine uses all versions, signed or not",
                keys.directory().display()
            );
        }
        let mut rows = vec![["ID", "FILE"].map(String::from).to_vec()];
        rows.extend(keys.keys().iter().map(|key| vec![key.id.clone(), key.path.display().to_string()]));
        table(&rows)
    });
}

fn facts(key: &TrustedKey) -> serde_json::Value {
    json!({ "id": key.id, "file": key.path, "public_key": key.line() })
}

/// Reads the trusted keys of this machine.
pub(super) fn read(keys: &TrustedKeysArgument) -> Result<TrustedKeys> {
    let directory = keys.directory();
    let directory = directory.ok_or_else(|| {
        Error::refused(
            "there is no directory for trusted keys, because $HOME is not set: name one with --trusted-keys",
        )
    })?;
    TrustedKeys::read(&directory)
}

/// The password of a secret key: from the environment, or from the terminal.
pub(super) fn password(file: &Path) -> Result<String> {
    match std::env::var("PLATTER_KEY_PASSWORD") {
        Ok(password) => Ok(password),
        Err(_) => ask_password(&format!("Password of {}: ", file.display())),
    }
}
