//! Scrubs the served store: every pack is read back once in a period, at low priority (`platter_store::Scrub`).
//!
//! The thread has the lowest priority for processor and disk, and pauses after each piece for several times as long as the piece
//! took, so that readers hardly notice it. The packs follow each other at a distance that spreads all of them over the period.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{Error, Result};
use platter_store::{NextPack, Scrub, Scrubbed};
use rustix::process::setpriority_process;
use tokio::sync::watch;

use crate::origin::Origin;
use crate::serve_event::{OnEvent, ServeEvent};

/// Part of the period in which all packs are read, in percent: the rest is for delays.
const PERIOD_PERCENT: u32 = 90;
/// Pause after a piece, as a multiple of the time that reading it took.
const PAUSE_FACTOR: u32 = 3;
/// Longest time without looking whether the origin ends.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time without looking for new packs.
const PLAN: Duration = Duration::from_secs(60);
/// The lowest priority of a thread.
const NICE: i32 = 19;

/// Starts the thread that scrubs until the origin ends.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn start(
    origin: &Arc<Origin>,
    period: Duration,
    on_event: OnEvent,
) -> Result<thread::JoinHandle<()>> {
    let origin = Arc::clone(origin);
    let run = move || {
        lower_priority();
        let mut pace = Pace { ending: origin.ending.clone(), period, last: None };
        let mut scrub = Scrub::new(origin.store.clone());
        while !pace.is_ending() {
            if let Err(error) = round(&origin, &mut scrub, &mut pace, &on_event) {
                on_event(&ServeEvent::Note(format!("scrub: {}", error.with_causes())));
                pace.wait(PLAN);
            }
        }
    };
    let thread = thread::Builder::new().name("scrub".into()).spawn(run);
    thread.map_err(|error| Error::io("starting the thread that scrubs", error))
}

/// Reads the next pack if it is time, and otherwise waits.
fn round(origin: &Origin, scrub: &mut Scrub, pace: &mut Pace, on_event: &OnEvent) -> Result<()> {
    let next = scrub.next()?;
    let wait = next.map_or(PLAN, |next| pace.time_to(&next));
    let (Some(next), Duration::ZERO) = (next, wait) else {
        pace.wait(wait);
        return Ok(());
    };
    let started = Instant::now();
    let share = pace.share(&next);
    let mut piece = Instant::now();
    let done = scrub.read(next.pack, &mut || {
        let pause = piece.elapsed() * PAUSE_FACTOR;
        // If the disk is slow compared to the period, the pauses become shorter.
        pace.wait(pause.min((share / 2).saturating_sub(started.elapsed())));
        piece = Instant::now();
        !pace.is_ending()
    })?;
    pace.last = Some((started, next.bytes));
    tell(origin, &done, on_event);
    Ok(())
}

fn tell(origin: &Origin, done: &Scrubbed, on_event: &OnEvent) {
    let metrics = &origin.metrics;
    metrics.scrubbed_bytes.add(done.bytes);
    metrics.scrubbed_packs.add(u64::from(done.is_complete));
    metrics.scrub_bad_frames.add(done.newly_bad);
    if let Some(trouble) = &done.trouble {
        on_event(&ServeEvent::Note(format!("scrub: pack {}: {trouble}", done.pack)));
    }
    if done.newly_bad > 0 {
        on_event(&ServeEvent::Note(format!(
            "scrub: {} frames of pack {} are damaged: `platter check` names the versions, `platter heal` repairs them",
            done.newly_bad, done.pack
        )));
    }
}

/// Decides when the next pack is read.
struct Pace {
    ending: watch::Receiver<bool>,
    period: Duration,
    /// When the last pack was begun, and its bytes.
    last: Option<(Instant, u64)>,
}

impl Pace {
    fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Returns the part of the period for a pack: as large as its part of all bytes.
    fn share(&self, next: &NextPack) -> Duration {
        share(self.period, next.bytes, next.all_bytes)
    }

    /// Returns how long to wait before the next pack.
    fn time_to(&self, next: &NextPack) -> Duration {
        self.last.map_or(Duration::ZERO, |(begun, bytes)| {
            share(self.period, bytes, next.all_bytes).saturating_sub(begun.elapsed())
        })
    }

    /// Waits, but not longer than new packs may stay unnoticed, and not after the origin's end.
    fn wait(&self, time: Duration) {
        let end = Instant::now() + time.min(PLAN);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_ending() {
                return;
            }
            thread::sleep(left.min(LOOK));
        }
    }
}

fn share(period: Duration, bytes: u64, all_bytes: u64) -> Duration {
    let part = bytes as f64 / all_bytes.max(1) as f64;
    period.mul_f64(part.min(1.0)) * PERIOD_PERCENT / 100
}

/// Gives this thread, and those that it starts, the lowest priority. Where that is not possible, it scrubs with the normal one.
fn lower_priority() {
    let _ = setpriority_process(None, NICE);
    idle_disk_priority();
}

/// Only idle disks serve this thread from now on, if the kernel's I/O scheduler knows priorities.
#[expect(unsafe_code, reason = "no library at hand has this system call")]
fn idle_disk_priority() {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3 << 13;
    // SAFETY: the call takes three numbers and no pointers. 0 means the calling thread.
    let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_are_spread_over_the_period() {
        let period = Duration::from_secs(1000);
        let sizes = [1, 70, 9, 20];
        let all = sizes.iter().sum();
        let total: Duration = sizes.iter().map(|bytes| share(period, *bytes, all)).sum();
        assert_eq!(total.as_secs(), 900);
        assert_eq!(share(period, 5, 0), period * 9 / 10, "an empty store divides by nothing");
    }
}
