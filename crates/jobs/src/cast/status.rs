//! The status of a cast, as its sender reports it to an origin. Displayed to people and not trusted.

use std::time::Duration;

use platter_api::{CastReceiver, CastState, CastStatus};
use platter_net::{ReceiverState, ReceiverStatus};

use super::receiver_report;

/// Most receivers that are listed; the others are only counted.
const RECEIVERS_MAX: usize = 128;
/// Most bytes of a name, and of a reason.
const NAME_LENGTH_MAX: usize = 64;
const REASON_LENGTH_MAX: usize = 160;

/// Sets the state of the receivers.
pub(super) fn set_receivers(cast: &mut CastStatus, known: &[ReceiverStatus]) {
    let is_done = |status: &ReceiverStatus| matches!(status.state, ReceiverState::Done(_));
    cast.receivers_total = known.len() as u64;
    cast.receivers_done = known.iter().filter(|status| is_done(status)).count() as u64;
    let open = known.iter().filter(|status| !is_done(status));
    let told = open.chain(known.iter().filter(|status| is_done(status))).take(RECEIVERS_MAX);
    cast.receivers = told.map(receiver).collect();
}

/// Ends the cast: as done if every receiver has the disk and there was at least one.
pub(super) fn end(cast: &mut CastStatus, failure: Option<String>, since: Duration) {
    cast.seconds = since.as_secs_f64();
    let all_done = cast.receivers_total > 0 && cast.receivers_done == cast.receivers_total;
    cast.state = if failure.is_none() && all_done { CastState::Done } else { CastState::Failed };
    cast.reason = failure.map(|reason| plain(&reason, REASON_LENGTH_MAX));
}

fn receiver(status: &ReceiverStatus) -> CastReceiver {
    let report = receiver_report(status);
    CastReceiver {
        name: plain(&report.name, NAME_LENGTH_MAX),
        state: report.state,
        reason: report.reason.map(|reason| plain(&reason, REASON_LENGTH_MAX)),
        done_chunks: u64::from(status.done_chunks),
        wanted_chunks: u64::from(status.wanted_chunks),
        written_bytes: report.written_bytes,
        seconds: report.seconds,
        repaired_symbols: report.repaired_symbols,
        limited_by: report.limited_by,
    }
}

/// Returns the beginning of a foreign text, without control characters.
fn plain(text: &str, length_max: usize) -> String {
    let mut plain = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if plain.len() + c.len_utf8() > length_max {
            break;
        }
        plain.push(c);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(id: u32, state: ReceiverState) -> ReceiverStatus {
        ReceiverStatus {
            id,
            name: format!("r{id}"),
            state,
            done_chunks: 1,
            wanted_chunks: 2,
            free_chunks: 0,
            repaired: 0,
            bottleneck: None,
            joined_at: Duration::ZERO,
            heard_at: Duration::from_secs(1),
        }
    }

    #[test]
    fn many_receivers_are_counted_and_failed_ones_are_listed() {
        let failed = |id| status(id, ReceiverState::Failed("disk\u{1b}[2J full".into()));
        let mut known: Vec<_> = (0..1000).map(|id| status(id, ReceiverState::Active)).collect();
        let mut cast = CastStatus::default();
        set_receivers(&mut cast, &known);
        assert_eq!((cast.receivers_total, cast.receivers.len()), (1000, RECEIVERS_MAX));
        known.truncate(1);
        known.push(failed(1));
        known[0].name = "x".repeat(300);
        set_receivers(&mut cast, &known);
        assert_eq!(cast.receivers[0].name.len(), NAME_LENGTH_MAX);
        assert_eq!(cast.receivers[1].reason.as_deref(), Some("disk [2J full"));
        end(&mut cast, None, Duration::from_secs(1));
        assert_eq!(cast.state, CastState::Failed);
        // An origin limits the length of JSON.
        known = (0..1000).map(failed).collect();
        known.iter_mut().for_each(|status| status.name = "\u{1f41b}".repeat(100));
        set_receivers(&mut cast, &known);
        assert!(serde_json::to_vec(&cast).unwrap().len() < 100 << 10);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(plain("a\u{e9}\u{e9}", 4), "a\u{e9}");
        assert_eq!(plain("", 4), "");
    }
}
