//! Follows the events of an origin on a thread, and notifies a listener of relevant ones, as long as the listener
//! exists.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use platter_image::{IoContext, Result};

use super::client::next_pause;
use super::origin_store::OriginStore;

/// Most bytes of a line of events; a longer line is split.
const LINE_LENGTH_MAX: u64 = 64 << 10;
/// Events that mean that others may have been missed.
const DOUBTS: [&[u8]; 2] = [b"listening", b"reset"];

/// A listener for events.
pub trait Listener: Send + Sync + 'static {
    /// The relevant events (`docs/api.md`).
    const EVENTS: &'static [&'static [u8]];

    /// Called when a relevant event arrived or may have been missed. Events that arrive during the call cause one
    /// further call.
    ///
    /// # Errors
    /// After any error, listening starts again after a pause.
    fn heard(&self) -> Result<()>;

    /// Called when no events arrived for some time; behind some proxies they never do.
    fn is_deaf(&self) {}
}

/// Listens, and reconnects after every end, until the listener was dropped elsewhere.
///
/// # Errors
/// `Io` when no thread can be started.
pub fn listen<L: Listener>(store: OriginStore, listener: &Arc<L>) -> Result<()> {
    let weak = Arc::downgrade(listener);
    let thread = thread::Builder::new().name("events".to_owned());
    let started = thread.spawn(move || follow(&store, &weak));
    started.map(drop).context(|| "starting the thread for events".to_owned())
}

fn follow<L: Listener>(store: &OriginStore, listener: &Weak<L>) {
    let mut pause = Duration::ZERO;
    while listener.strong_count() > 0 {
        if store.events().and_then(|events| hear(listener, events)).unwrap_or(false) {
            pause = Duration::ZERO;
        }
        pause = next_pause(pause);
        thread::sleep(pause);
        if let Some(listener) = listener.upgrade() {
            listener.is_deaf();
        }
    }
}

/// Follows events until they end. Returns whether there were relevant ones.
fn hear<L: Listener>(listener: &Weak<L>, events: impl Read) -> Result<bool> {
    let mut reader = BufReader::new(events);
    let (mut line, mut any, mut is_news) = (Vec::new(), false, false);
    while listener.strong_count() > 0 {
        line.clear();
        let mut limited = reader.by_ref().take(LINE_LENGTH_MAX);
        let length = limited.read_until(b'\n', &mut line);
        if length.context(|| "reading the events of an origin".to_owned())? == 0 {
            break;
        }
        is_news |= matters(&line, L::EVENTS);
        any |= is_news;
        if is_news && reader.buffer().is_empty() {
            is_news = false;
            listener.upgrade().map_or(Ok(()), |listener| listener.heard())?;
        }
    }
    Ok(any)
}

/// Whether a line of server-sent events names one of these events, or one that means missed events.
fn matters(line: &[u8], events: &[&[u8]]) -> bool {
    let name = line.strip_prefix(b"event:").map(<[u8]>::trim_ascii);
    name.is_some_and(|name| events.contains(&name) || DOUBTS.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn relevant_lines_are_recognized() {
        let events: &[&[u8]] = &[b"version", b"forget"];
        let news: [&[u8]; 4] =
            [b"event: version\n", b"event:reset\r\n", b"event: listening\n", b"event: forget"];
        assert!(news.into_iter().all(|line| matters(line, events)));
        let others: [&[u8]; 5] = [
            b"event: upload\n",
            b"event: edit-lock\n",
            b"data: {\"kind\":\"version\"}\n",
            b":\n",
            b"version",
        ];
        assert!(!others.into_iter().any(|line| matters(line, events)));
    }

    struct Counting(AtomicUsize);

    impl Listener for Counting {
        const EVENTS: &'static [&'static [u8]] = &[b"hoard"];

        fn heard(&self) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    /// Returns the remaining text line by line, as events arrive.
    struct Lines<'a>(&'a [u8]);

    impl Read for Lines<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let length = self.0.iter().position(|byte| *byte == b'\n').map_or(self.0.len(), |at| at + 1);
            let (line, rest) = self.0.split_at(length);
            out[..length].copy_from_slice(line);
            self.0 = rest;
            Ok(length)
        }
    }

    #[test]
    fn every_relevant_event_is_noticed_and_simultaneous_ones_together() {
        let text =
            b"event: listening\ndata: {}\n\nevent: upload\n\nevent: hoard\ndata: {}\n\n:\n\nevent: hoard\n";
        let counting = Arc::new(Counting(AtomicUsize::new(0)));
        assert!(hear(&Arc::downgrade(&counting), Lines(text)).unwrap());
        assert_eq!(counting.0.swap(0, Ordering::Relaxed), 3);
        assert!(hear(&Arc::downgrade(&counting), &text[..]).unwrap());
        assert_eq!(counting.0.swap(0, Ordering::Relaxed), 1);
        assert!(!hear(&Arc::downgrade(&counting), Lines(b":\n\nevent: upload\n")).unwrap());
        let gone = Arc::downgrade(&counting);
        drop(counting);
        assert!(!hear(&gone, Lines(text)).unwrap());
    }
}
