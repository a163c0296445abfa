//! Questions at the terminal: confirmation before an action that cannot be undone, and passwords.

use std::io::{self, BufRead, IsTerminal, Write};

use platter_jobs::{Error, Result};
use zeroize::Zeroizing;

/// The answer that confirms; anything else means no.
const YES: &str = "yes";

/// Whether a person can be asked: standard error shows the question, standard input reads the answer.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Shows `what` is about to happen and waits for a typed `yes`.
///
/// # Errors
/// `Io` when the terminal fails.
pub(crate) fn is_answered_yes(what: &str) -> Result<bool> {
    let failed = |error| Error::io("asking on the terminal", error);
    // Standard error is not locked while waiting, because an interruption writes to it.
    let mut terminal = io::stderr();
    write!(terminal, "{what}\nType {YES} to continue: ").and_then(|()| terminal.flush()).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim() == YES)
}

/// Asks for a password, without showing it.
///
/// # Errors
/// `Refused` without a terminal.
pub(crate) fn ask_password(prompt: &str) -> Result<String> {
    rpassword::prompt_password(prompt).map_err(|error| {
        Error::refused("a password is needed, but there is no terminal to ask: set $PLATTER_KEY_PASSWORD")
            .with_source(error)
    })
}

/// Asks for a new password, twice. From `$PLATTER_KEY_PASSWORD` if that is set.
///
/// # Errors
/// `Refused` without a terminal, for an empty password, or when the two differ.
pub(crate) fn new_password() -> Result<String> {
    let password = match std::env::var("PLATTER_KEY_PASSWORD") {
        Ok(password) => password,
        Err(_) => {
            let password = ask_password("New password: ")?;
            if ask_password("The same again: ")? != password {
                return Err(Error::refused("the passwords differ; nothing was created"));
            }
            password
        }
    };
    if password.is_empty() {
        return Err(Error::refused("the password is empty: --no-password creates a key without one"));
    }
    Ok(password)
}

/// Asks for the passphrase of an encrypted store, without showing it.
///
/// # Errors
/// `Refused` without a terminal.
pub(crate) fn ask_passphrase(prompt: &str) -> Result<Zeroizing<Vec<u8>>> {
    let text = rpassword::prompt_password(prompt).map_err(|error| {
        Error::refused(
            "a passphrase is needed, but there is no terminal to ask: use --unlock-file or --unlock-command",
        )
        .with_source(error)
    })?;
    Ok(Zeroizing::new(text.into_bytes()))
}

/// Asks for a new passphrase, twice.
///
/// # Errors
/// `Refused` without a terminal, or when the two differ.
pub(crate) fn new_passphrase() -> Result<Zeroizing<Vec<u8>>> {
    let passphrase = ask_passphrase("New passphrase: ")?;
    if *ask_passphrase("The same again: ")? != *passphrase {
        return Err(Error::refused("the passphrases differ; nothing was changed"));
    }
    Ok(passphrase)
}
