//! Ctrl-C and SIGTERM while a target is written: what state it is left in is said before the process ends.
//!
//! A thread waits for the signal, so that this also works while a device hangs or nobody answers. The target needs
//! nothing to be done: see `platter_disk::install`. The process then ends by the signal, as its parent expects.

use std::sync::Arc;
use std::thread;

use platter_jobs::{Error, Result, TargetState};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output::Output;

/// From now on an interruption says what state a target is in.
///
/// # Errors
/// `Io` when the system takes no handler.
pub(crate) fn tell_of(state: Arc<TargetState>, output: Output) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| Error::io("listening for signals", error))?;
    thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        output.interrupted(signal, &state.abandon());
        // It only fails for signals that cannot be handled.
        let _ = emulate_default_handler(signal);
    });
    Ok(())
}
