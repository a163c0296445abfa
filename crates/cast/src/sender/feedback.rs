//! The datagrams of receivers: requests and reports.

use std::time::Duration;

use super::binding::Rejected;
use super::machine::Sender;
use super::verdicts::Work;
use crate::session::symbols_of;
use crate::wire::format::{HEADER_BYTES, Header, MessageType, Reader};
use crate::wire::report::Report;
use crate::wire::request::{Request, RequestItem};

/// A receiver that lacks more than this share of a chunk, and more than this many symbols, may be far slower than the rest.
const LACKS_PERCENT_MAX: usize = 20;
const LACKS_SYMBOLS_MAX: usize = 64;
/// Repair does not wait while the sender waits for buffers for longer than this: it may be what empties them.
const WAIT_MAX: Duration = Duration::from_millis(200);

impl Sender {
    /// Handles a datagram from a receiver, or from anybody else.
    pub fn handle_datagram(&mut self, now: Duration, datagram: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if let Err(rejected) = self.accept(now, datagram, &mut scratch) {
            self.count(rejected);
        }
        self.scratch = scratch;
    }

    fn accept(&mut self, now: Duration, datagram: &[u8], scratch: &mut Vec<u8>) -> Result<(), Rejected> {
        let (header, _) = Header::parse(datagram).ok_or(Rejected::Forged)?;
        let is_feedback = matches!(header.message, MessageType::Request | MessageType::Report);
        if header.session != self.announce.session.short() || !is_feedback {
            return Err(Rejected::Forged);
        }
        let opened = self.roster.open(&header, datagram, scratch)?;
        let reader = Reader::new(opened.get(HEADER_BYTES..).unwrap_or_default());
        if header.message == MessageType::Request {
            let request = Request::parse(reader).ok_or(Rejected::Forged)?;
            self.roster.heard(now, request.receiver);
            self.handle_request(now, &request);
        } else {
            let mut report = Report::parse(reader).ok_or(Rejected::Forged)?;
            // A number that was never sent is a bug of the receiver. The rest of the report is valid.
            report.seen_packet = report.seen_packet.min(self.packet);
            let least_free = self.roster.least_free();
            self.roster.report(now, &report, &mut self.pacer);
            if self.roster.take_named_changed() || self.roster.least_free() < least_free {
                // So that others with few buffers learn that a worse one is known.
                self.herald.hurry(now);
            }
            if self.start.is_plan(report.seen_packet) {
                self.roster.hears(&report);
            }
        }
        Ok(())
    }

    fn handle_request(&mut self, now: Duration, request: &Request) {
        let seen = request.seen_packet.min(self.packet);
        let is_slow = self.roster.is_slow(request.receiver);
        // A receiver names each chunk once, so it needs no more.
        let mut chunks_max = self.schedule.total();
        for item in &request.items {
            let item = if is_slow { self.schedule.first_of(item) } else { Some(*item) };
            let Some(item) = item else { continue };
            match item {
                RequestItem::Chunks { first, count } => {
                    self.schedule.want(first, count, seen, &mut chunks_max);
                }
                RequestItem::Count { chunk, lacks } => {
                    let Some(length) = self.table.length(chunk) else { continue };
                    // Nobody can lack more than there is, nor a part of what was never sent.
                    let lacks = lacks.min(symbols_of(length) as u16);
                    if !self.schedule.has_begun(chunk)
                        || self.schedule.is_active(chunk)
                        || self.can_wait(now, request, chunk, length)
                    {
                        continue;
                    }
                    if self.repairs.count(now, chunk, lacks, seen) {
                        self.tell(chunk);
                    }
                }
                RequestItem::Symbols { chunk, first, count } => {
                    if let Some(length) = self.table.length(chunk)
                        && self.schedule.has_begun(chunk)
                        && !self.schedule.is_active(chunk)
                        && !self.can_wait(now, request, chunk, length)
                    {
                        let symbols = symbols_of(length);
                        if !self.repairs.sources(now, chunk, (first, count), symbols, seen) {
                            self.schedule.want(chunk, 1, seen, &mut chunks_max);
                        }
                    }
                }
            }
        }
    }

    /// Returns whether the repair of a chunk can wait until nothing else is to be sent, because only this receiver lacks so much of it: it
    /// may be far slower than the rest. It asks again.
    fn can_wait(&mut self, now: Duration, request: &Request, chunk: u32, length: u32) -> bool {
        let lacks_of = |item: &RequestItem| match *item {
            RequestItem::Count { chunk: of, lacks } if of == chunk => usize::from(lacks),
            RequestItem::Symbols { chunk: of, count, .. } if of == chunk => usize::from(count),
            _ => 0,
        };
        let lacks: usize = request.items.iter().map(lacks_of).sum();
        let lacks_much = lacks > LACKS_SYMBOLS_MAX && lacks * 100 > symbols_of(length) * LACKS_PERCENT_MAX;
        let waits_long =
            self.waiting_since.is_some_and(|since| now >= since.max(self.roster.slowed_at()) + WAIT_MAX);
        let has_work = self.schedule.remaining() > 0 && !waits_long;
        lacks_much
            && has_work
            && !self.schedule.goes_first(chunk)
            && self.roster.may_be_slow(now, request.receiver)
    }

    /// Returns what there is to send.
    pub(super) fn work(&mut self, now: Duration) -> Work {
        let is_idle = self.started_at.is_some()
            && self.schedule.remaining() == 0
            && self.repairs.is_empty()
            && self.fetches.is_empty();
        self.waiting_since = self.is_waiting.then(|| self.waiting_since.unwrap_or(now));
        match is_idle {
            _ if self.is_waiting => Work::Waits,
            true => Work::Nothing,
            false => Work::Some,
        }
    }
}
