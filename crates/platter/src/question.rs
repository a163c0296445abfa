//! Confirmation at the terminal before an action that cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use platter_jobs::{Error, Result};

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
    let mut terminal = io::stderr().lock();
    write!(terminal, "{what}\nType {YES} to continue: ").and_then(|()| terminal.flush()).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim() == YES)
}
