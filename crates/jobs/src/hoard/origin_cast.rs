//! Receives what a node lacks of the hoard from a cast of its origin, if the origin makes one: it does when enough nodes lack the same
//! revision at the same time.
//!
//! The origin names the cast's address, key and score over its authenticated connection, so the manifest is that of the origin. A
//! revision counts only once it is complete and durable. Whatever a cast does not bring, the node fetches ([`super::sync`]).

use std::net::SocketAddr;
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
use crate::receive::{families, key_of};

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

/// Receives the newest revision of the hoard by cast. Boot sets that `is_near` accepts do not count as missing. Returns `None` if
/// nothing is missing, or the origin makes no cast, or the cast lacks something that this node lacks; what was received is then durable.
///
/// # Errors
/// `Transient` when the cast does not arrive here; `Transient` when another process updates the hoard; errors of the origin and the
/// disk. What was received before an error stays for the next update.
pub fn hoard_receive_from_origin(
    request: &HoardOriginCastRequest,
    is_near: &dyn Fn(&BootSetRecord) -> bool,
    progress: &dyn Progress,
) -> Result<Option<HoardSyncReport>> {
    let network = ReceiveOptions {
        interface: request.interface.clone(),
        origin: request.origin.address.socket_addresses(),
        ..ReceiveOptions::default()
    };
    let families = families(&network);
    // On the origin's machine, the group would not arrive.
    if families.is_empty() || platter_net::interface_of(&network).is_none() {
        return Ok(None);
    }
    let store = OriginStore::open(&request.origin)?;
    let hoard = Hoard::open(&hoard_place(&request.cache))?;
    let here = hoard.snapshot();
    let changes = store.hoard_changes(&here.epoch, here.revision)?;
    let missing_bytes_max = missing_bytes_max(&hoard, &changes, is_near);
    if missing_bytes_max == 0 {
        return Ok(None);
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
        None => Ok(None),
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
) -> Result<Option<HoardSyncReport>> {
    let invalid = || Error::corrupt("the origin names an invalid place for its cast");
    let score = Score::from_hex(&offer.score).ok_or_else(invalid)?;
    let join: Option<SocketAddr> = offer.join.as_ref().and_then(|join| join.parse().ok());
    let told = Arc::new(ToldSender::default());
    told.set(join.ok_or_else(invalid)?);
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
    let (mut done, mut heard) = (0, Instant::now());
    let mut watch = |event: &ReceiveEvent| {
        if let ReceiveEvent::Progress { chunks, .. } = event
            && *chunks != done
        {
            (done, heard) = (*chunks, Instant::now());
        }
        if request.stop.load(Ordering::Relaxed) || heard.elapsed() >= STALL_MAX {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let writer = HoardWriter::open(&hoard_place(&request.cache))?;
    receive_into((writer, Completeness::Optional), &network, progress, &mut watch)
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
