//! Ctrl-C and SIGTERM while a target or a store is written: what state it is left in is said before the process ends.
//!
//! A thread waits for the signal, so that this also works while a device hangs or nobody answers. Neither needs anything
//! to be done: see `platter_disk::install` and `platter_store`. The process then ends by the signal, as its parent expects.

use std::thread;

use platter_jobs::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output::Output;

/// From now on an interruption says what `state` tells.
///
/// # Errors
/// `Io` when the system takes no handler.
pub(crate) fn tell_of(state: impl FnOnce() -> String + Send + 'static, output: Output) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| Error::io("listening for signals", error))?;
    thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        output.interrupted(signal, &state());
        // It only fails for signals that cannot be handled.
        let _ = emulate_default_handler(signal);
    });
    Ok(())
}
