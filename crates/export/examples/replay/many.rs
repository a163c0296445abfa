//! Replays many traces at once, as when many machines boot.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{Error, IoContext, Result};
use platter_vdisk::Trace;
use twox_hash::XxHash3_64;

use super::client::Client;
use super::replaying::{Options, Report, replay};
use super::{figures, read_trace};

/// Bytes of a thread's stack: there are many threads.
const STACK_BYTES: usize = 256 << 10;

/// One replay.
struct Boot<'a> {
    trace: &'a str,
    uri: &'a str,
    score: Option<&'a str>,
}

/// Runs all replays that a file lists. They start together, once all are connected.
///
/// # Errors
/// `Refused` when the list is invalid, or two replays of one trace read different data; the errors of a replay.
pub(crate) fn replay_all(list: &str, options: &Options) -> Result<String> {
    let text = fs::read_to_string(list).context(|| format!("reading {list}"))?;
    let boots = text.lines().map(boot).collect::<Result<Vec<_>>>()?;
    let mut traces: HashMap<&str, Trace> = HashMap::new();
    for boot in &boots {
        if !traces.contains_key(boot.trace) {
            traces.insert(boot.trace, read_trace(boot.trace)?);
        }
    }
    let clients = boots.iter().map(|boot| Client::connect(boot.uri)).collect::<Result<Vec<_>>>()?;
    let begin = Instant::now();
    let reports: Vec<Result<Report>> = thread::scope(|scope| {
        let mut started = Vec::with_capacity(boots.len());
        for (boot, mut client) in boots.iter().zip(clients) {
            let options = Options { score: boot.score.map(str::to_owned), ..options.clone() };
            let trace = &traces[boot.trace];
            let run = move || {
                replay(trace, &mut client, &options).map_err(|error| error.within(boot.uri.to_owned()))
            };
            started.push(thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, run));
        }
        let end = |started: std::io::Result<thread::ScopedJoinHandle<'_, Result<Report>>>| {
            let started = started.map_err(|error| Error::io("starting a thread", error))?;
            started.join().unwrap_or_else(|_| Err(Error::bug("a replay panicked")))
        };
        started.into_iter().map(end).collect()
    });
    let wall = begin.elapsed();
    let mut digests: HashMap<&str, u64> = HashMap::new();
    let mut all = Report { requests: 0, bytes: 0, failed: 0, latencies_us: Vec::new(), wall, digest: 0 };
    let mut walls = Vec::new();
    for (boot, report) in boots.iter().zip(reports) {
        let report = report?;
        if *digests.entry(boot.trace).or_insert(report.digest) != report.digest {
            return Err(Error::refused(format!(
                "{} reads other data than another replay of {}",
                boot.uri, boot.trace
            )));
        }
        walls.push(report.wall);
        all.requests += report.requests;
        all.bytes += report.bytes;
        all.failed += report.failed;
        all.latencies_us.extend(report.latencies_us);
    }
    let mut of_traces: Vec<_> = digests.into_iter().collect();
    of_traces.sort_unstable();
    for (_, digest) in of_traces {
        all.digest = XxHash3_64::oneshot_with_seed(all.digest, &digest.to_le_bytes());
    }
    all.latencies_us.sort_by(f64::total_cmp);
    walls.sort_unstable();
    let middle = walls.get(walls.len() / 2).copied().unwrap_or(Duration::ZERO);
    Ok(format!(
        "{{\"boots\":{},\"traces\":{},{},\"median_boot_seconds\":{:.6},\"digest\":\"{:016x}\"}}",
        boots.len(),
        traces.len(),
        figures(&all),
        middle.as_secs_f64(),
        all.digest
    ))
}

fn boot(line: &str) -> Result<Boot<'_>> {
    let mut words = line.split_whitespace();
    let wrong = || Error::refused(format!("{line:?} is not TRACE URI [SCORE]"));
    let (trace, uri) = words.next().zip(words.next()).ok_or_else(wrong)?;
    Ok(Boot { trace, uri, score: words.next() })
}
