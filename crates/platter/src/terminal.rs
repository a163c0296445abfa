//! Progress bars and notes on standard error.

use parking_lot::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use platter_jobs::Progress;

use crate::output::Output;
use crate::visible;

/// Shows the stages of a job as progress bars; prints only notes if standard error is not a terminal.
pub(crate) struct Terminal {
    quiet: bool,
    bar: Mutex<ProgressBar>,
}

impl Terminal {
    pub(crate) fn new(output: Output) -> Self {
        Self { quiet: output.is_quiet(), bar: Mutex::new(ProgressBar::hidden()) }
    }

    /// Shows a line beside the bar of a stage without a total. It may hold text from outside, such as names of receivers.
    pub(crate) fn show(&self, line: &str) {
        self.bar().set_prefix(visible::words(line).into_owned());
    }

    fn bar(&self) -> parking_lot::MutexGuard<'_, ProgressBar> {
        self.bar.lock()
    }
}

impl Progress for Terminal {
    fn begin(&self, stage: &str, total: u64) {
        let mut bar = self.bar();
        bar.finish_and_clear();
        if self.quiet {
            return;
        }
        let template = if total > 0 {
            "{msg:24} {bar:40} {decimal_bytes:>10} of {decimal_total_bytes:<10} {decimal_bytes_per_sec:>12}  {eta}"
        } else {
            "{spinner} {msg:22} {decimal_bytes:>10}  {elapsed}  {prefix}"
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        *bar = if total > 0 { ProgressBar::new(total) } else { ProgressBar::new_spinner() };
        // Without a terminal the bar is hidden and costs nothing.
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        bar.set_style(style);
        bar.set_message(stage.to_owned());
        // Its thread is the bar's own, and panics if it cannot be started. Where there is no room for it, the bar moves with the work only.
        let can_start =
            || std::thread::Builder::new().spawn(|| {}).is_ok_and(|started| started.join().is_ok());
        if !bar.is_hidden() && can_start() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
    }

    fn advance(&self, bytes: u64) {
        self.bar().inc(bytes);
    }

    #[expect(clippy::print_stderr, reason = "notes go to standard error")]
    fn note(&self, note: &str) {
        if !self.quiet {
            self.bar().suspend(|| eprintln!("note: {}", visible::lines(note)));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bar().finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_beside_the_bar_has_no_control_characters() {
        let terminal = Terminal { quiet: false, bar: Mutex::new(ProgressBar::hidden()) };
        terminal.show("pc\x1b]0;owned\x07 12 %");
        assert_eq!(terminal.bar().prefix(), "pc\\u{1b}]0;owned\\u{7} 12 %");
    }
}
