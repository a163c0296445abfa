//! Receives what a node lacks of the hoard from a cast of its origin, if the origin makes one: it does when enough nodes lack the same
//! revision at the same time.
//!
//! The origin names the cast's address, key and score over its authenticated connection, so the manifest is that of the origin. A
//! revision counts only once it is complete and durable. Whatever a cast does not bring, the node fetches ([`super::sync`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use platter_api::{AskForHoardCastRequest, CastOffer, HoardCastState};
use platter_client::{OriginStore, ServerOptions};
use platter_image::{Error, ErrorKind, Result, Score};
use platter_net::{ReceiveEvent, ReceiveOptions, ToldSender, Wanted};
use platter_records::{BootSetRecord, HoardChanges};
use platter_store::{Hoard, HoardWriter};

use super::casting::{Completeness, receive_into};
use super::sync::{HoardSyncReport, hoard_place};
use crate::Progress;
use crate::receive::{families, key_of, place_of};

/// Pause between two questions.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest time until a cast is ready: the origin reads what it will send.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a sender that was lost, or cannot be reached, is waited for.
const LOST_MAX: Duration = Duration::from_secs(5);
/// Longest time without a further chunk. Before the first one, receivers gather.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Most chunks in memory, 1.4 MB each: a node has other things to do.
const BUFFER_CHUNKS: usize = 24;

/// The request to receive what a hoard lacks from a cast of the origin.
#[derive(Clone, Debug)]
pub struct HoardOriginCastRequest {
    /// The origin.
    pub origin: ServerOptions,
    /// The node's directory; the hoard is in a folder of it.
    pub cache: PathBuf,
    /// The node's id: 32 hexadecimal digits.
    pub node: String,
    /// The node's name, for people.
    pub name: String,
    /// Name or address of the interface to receive on. `None`: the one towards the origin, if it is another machine.
    pub interface: Option<String>,
    /// Set to true to end receiving early.
    pub stop: Arc<AtomicBool>,
}

/// What became of a cast of the hoard.
#[derive(Debug)]
pub enum HoardCastOutcome {
    /// The newest revision was received, and is durable.
    Received(HoardSyncReport),
    /// Nothing is missing, or the origin makes no cast, or the cast lacks something that this node lacks; what was received is durable.
    Incomplete,
    /// The cast does not arrive here, because of the network.
    Unreached(Error),
}

/// Receives the newest revision of the hoard by cast. Boot sets that `is_near` accepts do not count as missing. What was received without
/// success stays for the next update.
///
/// # Errors
/// `Transient` when another process updates the hoard; errors of the origin and the disk.
pub fn hoard_receive_from_origin(
    request: &HoardOriginCastRequest,
    is_near: &dyn Fn(&BootSetRecord) -> bool,
    progress: &dyn Progress,
) -> Result<HoardCastOutcome> {
    let network = ReceiveOptions {
        interface: request.interface.clone(),
        origin: request.origin.address.socket_addresses(),
        ..ReceiveOptions::default()
    };
    let families = families(&network);
    // On the origin's machine, the group would not arrive.
    if families.is_empty() || platter_net::interface_of(&network).is_none() {
        return Ok(HoardCastOutcome::Incomplete);
    }
    let store = OriginStore::open(&request.origin)?;
    let hoard = Hoard::open(&hoard_place(&request.cache))?;
    let here = hoard.snapshot();
    let changes = store.hoard_changes(&here.epoch, here.revision)?;
    let missing_bytes_max = missing_bytes_max(&hoard, &changes, is_near);
    if missing_bytes_max == 0 {
        return Ok(HoardCastOutcome::Incomplete);
    }
    drop(hoard);
    let question = AskForHoardCastRequest {
        node: request.node.clone(),
        epoch: here.epoch,
        since: here.revision,
        missing_bytes_max,
        families,
    };
    match ask(&store, &question, &request.stop)? {
        Some(offer) => receive((request, network), &offer, progress),
        None => Ok(HoardCastOutcome::Incomplete),
    }
}

/// Asks until the origin has decided.
fn ask(
    store: &OriginStore,
    question: &AskForHoardCastRequest,
    stop: &AtomicBool,
) -> Result<Option<CastOffer>> {
    let began = Instant::now();
    while began.elapsed() < WAIT_MAX && !stop.load(Ordering::Relaxed) {
        match store.ask_for_hoard_cast(question) {
            // An older origin.
            Err(error) if error.kind() == ErrorKind::Missing => return Ok(None),
            Ok(offer) if offer.state == HoardCastState::Wait => thread::sleep(PAUSE),
            answer => return answer.map(|offer| offer.cast),
        }
    }
    Ok(None)
}

fn receive(
    (request, network): (&HoardOriginCastRequest, ReceiveOptions),
    offer: &CastOffer,
    progress: &dyn Progress,
) -> Result<HoardCastOutcome> {
    let invalid = || Error::corrupt("the origin names an invalid place for its cast");
    let score = Score::from_hex(&offer.score).ok_or_else(invalid)?;
    let told = Arc::new(ToldSender::default());
    told.set(place_of(offer).ok_or_else(invalid)??);
    let stop: Arc<AtomicBool> = Arc::default();
    let network = ReceiveOptions {
        wanted: Wanted::Score(score),
        join_key: Some(key_of(offer)?),
        told: Some(told),
        hello: request.name.clone(),
        buffer_chunks: BUFFER_CHUNKS,
        give_up: Some(LOST_MAX),
        stop: Arc::clone(&stop),
        ..network
    };
    let (began, mut arrival, mut is_stalled) = (Instant::now(), Arrival::default(), false);
    let mut watch = |event: &ReceiveEvent| {
        if let ReceiveEvent::Progress { chunks, wanted, .. } = event {
            is_stalled |= arrival.is_stalled(began.elapsed(), *chunks, *wanted);
        }
        if is_stalled || request.stop.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let writer = HoardWriter::open(&hoard_place(&request.cache))?;
    let received = receive_into((writer, Completeness::Optional), &network, progress, &mut watch);
    outcome(received, is_stalled)
}

/// What became of a cast, from what the receiver says.
fn outcome(received: Result<Option<HoardSyncReport>>, is_stalled: bool) -> Result<HoardCastOutcome> {
    match received {
        Ok(report) => Ok(report.map_or(HoardCastOutcome::Incomplete, HoardCastOutcome::Received)),
        Err(_) if is_stalled => {
            let text = format!("nothing of it has arrived for {} s", STALL_MAX.as_secs());
            Ok(HoardCastOutcome::Unreached(Error::transient(text)))
        }
        Err(error) if error.kind() == ErrorKind::Transient => Ok(HoardCastOutcome::Unreached(error)),
        Err(error) => Err(error),
    }
}

/// Whether something still arrives.
#[derive(Default)]
struct Arrival {
    chunks: u32,
    at: Duration,
}

impl Arrival {
    /// Returns whether no further chunk has come for long, of those that are wanted. When all are there, the revision is made durable.
    fn is_stalled(&mut self, now: Duration, chunks: u32, wanted: u32) -> bool {
        if chunks != self.chunks || (wanted > 0 && chunks == wanted) {
            (self.chunks, self.at) = (chunks, now);
        }
        now >= self.at + STALL_MAX
    }
}

/// The most bytes that a hoard lacks, before compression: of boot sets that it does not have.
fn missing_bytes_max(hoard: &Hoard, changes: &HoardChanges, is_near: &dyn Fn(&BootSetRecord) -> bool) -> u64 {
    let before = hoard.snapshot().members;
    let lacks = changes.added.iter().filter(|it| !hoard.holds(&it.boot_set) && !is_near(&it.record));
    lacks
        .map(|member| {
            // A set that nodes have refined has everything that it had before.
            let earlier = before.iter().find(|it| it.version == member.version && member.record.boots > 1);
            member.record.bytes.saturating_sub(earlier.map_or(0, |it| it.record.bytes))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_of_which_nothing_arrives_is_stalled_until_everything_is_there() {
        let at = Duration::from_secs;
        let mut arrival = Arrival::default();
        assert!(!arrival.is_stalled(at(59), 0, 0), "receivers gather");
        assert!(Arrival::default().is_stalled(at(60), 0, 0));
        assert!(!arrival.is_stalled(at(59), 1, 9));
        assert!(!arrival.is_stalled(at(118), 1, 9));
        assert!(!arrival.is_stalled(at(118), 9, 9));
        assert!(!arrival.is_stalled(at(999), 9, 9), "it is made durable");
        assert!(arrival.is_stalled(at(1059), 9, 10));
    }

    #[test]
    fn only_a_cast_that_does_not_arrive_is_unreached() {
        let of = |error: Error, is_stalled| match outcome(Err(error), is_stalled) {
            Ok(HoardCastOutcome::Unreached(error)) => (true, error.to_string()),
            other => (false, other.unwrap_err().to_string()),
        };
        assert_eq!(of(Error::transient("no multicast"), false), (true, "no multicast".into()));
        assert_eq!(of(Error::refused("stopped"), false), (false, "stopped".into()));
        assert!(!of(Error::missing("the origin was restarted"), false).0);
        assert_eq!(of(Error::refused("stopped"), true), (true, "nothing of it has arrived for 60 s".into()));
        assert!(matches!(outcome(Ok(None), true), Ok(HoardCastOutcome::Incomplete)));
    }
}
