//! Replays a trace: the order of requests, and the measured results.
//!
//! A request is sent once all requests have been answered that had been answered before it in the recording, and then
//! after the recorded pause or a part of it. So the number of concurrent requests is that of the recording, at any
//! speed of the server.

use std::time::{Duration, Instant};

use platter_image::{Error, Extent, Result};
use platter_vdisk::{RequestKind, Trace, TracedRequest};
use twox_hash::XxHash3_64;

use super::client::{Client, Command};

/// Most concurrent requests, even if the recording had more.
const IN_FLIGHT_MAX: usize = 64;
/// The longest request that every server accepts.
const LENGTH_MAX: u64 = 32 << 20;

/// How to replay.
#[derive(Clone, Default)]
pub(crate) struct Options {
    /// Fraction of the recorded pauses between requests to keep.
    pub(crate) think: f64,
    /// Also write, zero and flush.
    pub(crate) writes: bool,
    /// The score that the trace must have, in hexadecimal.
    pub(crate) score: Option<String>,
    /// Ranges to read after the whole trace was answered.
    pub(crate) also: Vec<Extent>,
}

/// Results. Times are in microseconds, from before a request is sent until its whole reply has arrived.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) failed: u64,
    pub(crate) latencies_us: Vec<f64>,
    pub(crate) wall: Duration,
    /// Digest of all data that was read.
    pub(crate) digest: u64,
}

impl Report {
    /// The latency that this fraction of the requests did not exceed. The latencies must be sorted.
    pub(crate) fn quantile_us(&self, part: f64) -> f64 {
        let at = (self.latencies_us.len() as f64 * part).ceil() as usize;
        self.latencies_us.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

/// A request to send.
pub(crate) struct Step {
    command: Command,
    range: Extent,
    /// Number of requests, in the order of their replies, that must be answered before.
    pub(crate) after: usize,
    /// The pause after that.
    pub(crate) think: Duration,
}

/// Returns the requests in the order in which they were sent, and their places in the order in which they were
/// answered.
///
/// # Errors
/// `Refused` when a request is longer than servers accept.
pub(crate) fn steps(trace: &Trace, options: &Options) -> Result<(Vec<Step>, Vec<usize>)> {
    let wanted = |request: &&TracedRequest| options.writes || request.kind == RequestKind::Read;
    let requests: Vec<&TracedRequest> = trace.requests.iter().filter(wanted).collect();
    let mut answered: Vec<usize> = (0..requests.len()).collect();
    answered.sort_by_key(|at| requests[*at].end_ns());
    let begin = requests.first().map_or(0, |request| request.start_ns);
    let step = |request: &&TracedRequest| -> Result<Step> {
        if request.range.length > LENGTH_MAX {
            return Err(Error::refused(format!("a request for {} bytes", request.range.length)));
        }
        let after = answered.partition_point(|at| requests[*at].end_ns() < request.start_ns);
        let since = after.checked_sub(1).map_or(begin, |last| requests[answered[last]].end_ns());
        let think = Duration::from_nanos(request.start_ns - since).mul_f64(options.think);
        let command = match request.kind {
            RequestKind::Read => Command::Read,
            RequestKind::Write => Command::Write,
            RequestKind::WriteZeroes => Command::WriteZeroes,
            RequestKind::Flush => Command::Flush,
        };
        Ok(Step { command, range: request.range, after, think })
    };
    let mut steps = requests.iter().map(step).collect::<Result<Vec<_>>>()?;
    let mut places = vec![0; answered.len()];
    answered.iter().enumerate().for_each(|(place, at)| places[*at] = place);
    places.extend(steps.len()..steps.len() + options.also.len());
    let also = |range: &Extent| Step {
        command: Command::Read,
        range: *range,
        after: answered.len(),
        think: Duration::ZERO,
    };
    steps.extend(options.also.iter().map(also));
    Ok((steps, places))
}

struct Run<'a> {
    client: &'a mut Client,
    /// For each place in the recorded order of replies: whether the request was answered.
    answered: Vec<bool>,
    places: Vec<usize>,
    /// For each number of requests, counted from the first: the time at which all of these had been answered.
    reached: Vec<Instant>,
    digests: Vec<u64>,
    report: Report,
}

/// Replays a trace.
///
/// # Errors
/// `Refused` when the trace is of another disk, or the disk takes no writes; `Corrupt`, `Io`.
pub(crate) fn replay(trace: &Trace, client: &mut Client, options: &Options) -> Result<Report> {
    if trace.header.disk_length != client.length {
        return Err(Error::refused(format!(
            "the trace is of a disk with {} bytes, but this disk has {}",
            trace.header.disk_length, client.length
        )));
    }
    let score = trace.header.base_score.to_string();
    if options.score.as_ref().is_some_and(|wanted| *wanted != score) {
        return Err(Error::refused(format!("the trace is of another disk: its score is {score}")));
    }
    if options.writes && !client.is_writable {
        return Err(Error::refused("this disk is read-only"));
    }
    let (steps, places) = steps(trace, options)?;
    let begin = Instant::now();
    let report = Report {
        requests: steps.len() as u64,
        bytes: 0,
        failed: 0,
        latencies_us: Vec::with_capacity(steps.len()),
        wall: Duration::ZERO,
        digest: 0,
    };
    let (answered, digests) = (vec![false; steps.len()], vec![0; steps.len()]);
    let mut run = Run { client, answered, places, reached: vec![begin], digests, report };
    for (number, step) in steps.iter().enumerate() {
        run.wait_for_turn(step)?;
        run.client.request(number as u64, step.command, step.range)?;
    }
    while run.client.in_flight() > 0 {
        run.take_reply()?;
    }
    let mut report = run.report;
    report.wall = begin.elapsed();
    report.latencies_us.sort_by(f64::total_cmp);
    report.digest =
        run.digests.iter().fold(0, |seed, digest| XxHash3_64::oneshot_with_seed(seed, &digest.to_le_bytes()));
    Ok(report)
}

impl Run<'_> {
    fn wait_for_turn(&mut self, step: &Step) -> Result<()> {
        loop {
            let due = self.reached.get(step.after).map(|since| *since + step.think);
            let Some(due) = due.filter(|_| self.client.in_flight() < IN_FLIGHT_MAX) else {
                self.take_reply()?;
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.client.has_reply_within(left)? {
                self.take_reply()?;
            }
        }
    }

    fn take_reply(&mut self) -> Result<()> {
        let reply = self.client.reply()?;
        let number = reply.cookie as usize;
        self.report.bytes += reply.bytes.len() as u64;
        self.report.failed += u64::from(reply.error != 0);
        self.report.latencies_us.push(reply.latency.as_nanos() as f64 / 1e3);
        self.digests[number] = XxHash3_64::oneshot(&reply.bytes);
        self.answered[self.places[number]] = true;
        let now = Instant::now();
        while self.answered.get(self.reached.len() - 1) == Some(&true) {
            self.reached.push(now);
        }
        self.client.reuse(reply.bytes);
        Ok(())
    }
}
