//! Ctrl-C and SIGTERM while a target or a store is written: prints the state it is left in before the process ends.
//!
//! A thread waits for the signal, so this also works while a device or a question blocks the main thread. No cleanup is
//! needed: see `platter_disk::install` and `platter_store`. The process then ends by the signal, as its parent expects.

use std::thread;

use platter_jobs::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output::Output;

/// From now on, an interruption prints the text that `state` returns.
///
/// # Errors
/// `Io` when the signal handler cannot be installed.
pub(crate) fn tell_of(state: impl FnOnce() -> String + Send + 'static, output: Output) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| Error::io("listening for signals", error))?;
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        output.interrupted(signal, &state());
        // This fails only for signals that cannot be handled.
        let _ = emulate_default_handler(signal);
    };
    thread::Builder::new().spawn(wait).map_err(|error| Error::io("starting a thread", error))?;
    Ok(())
}
