//! Receiving from an origin: asks it to cast a version, until the receiver has joined, and again whenever it has lost the sender.
//!
//! The origin is asked in a thread of its own. Which disk is received is decided before: the score that the origin names for the
//! version, over its authenticated connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_api::CastOfferState;
use platter_client::{OriginStore, ServerOptions};
use platter_image::{Error, ErrorKind, IoContext, Result, Score};
use platter_net::{JoinKey, ToldSender, Wanted};
use platter_records::VersionQuery;

use super::ReceiveRequest;
use crate::install::title;
use crate::{Progress, ReceiveReport};

/// Pause between two questions, and between two while the origin is busy.
const PAUSE: Duration = Duration::from_millis(250);
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Longest time without an answer of the origin.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The request to receive a version that an origin casts.
#[derive(Clone, Debug)]
pub struct OriginCastRequest {
    /// The origin.
    pub origin: ServerOptions,
    /// The version.
    pub version: String,
}

impl OriginCastRequest {
    /// Receives the version that the origin names, with `receive`, and asks the origin meanwhile.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when no trusted key has signed it, or the origin does not cast; errors of the
    /// origin, and of `receive`.
    pub(super) fn receive(
        &self,
        request: &ReceiveRequest,
        progress: &dyn Progress,
        receive: &dyn Fn(&ReceiveRequest, &str) -> Result<ReceiveReport>,
    ) -> Result<ReceiveReport> {
        let store = OriginStore::open(&self.origin)?;
        let resolved = store.resolve(&self.version)?;
        if matches!(self.version.parse(), Ok(VersionQuery::Named(..))) {
            request.signatures.admit(resolved.version.as_ref().map(|version| &version.record))?;
        }
        let (version, address) = (title(&resolved), self.origin.address.to_string());
        let join_key = join_key(&store, &version)?;
        let asking =
            Asking { told: Arc::default(), stop: Arc::clone(&request.network.stop), ..Asking::default() };
        let mut request = request.clone();
        request.network.wanted = Wanted::Score(resolved.score);
        request.network.told = Some(Arc::clone(&asking.told));
        request.network.join_key = Some(join_key);
        if request.network.interface.is_none() && !platter_net::has_route(platter_net::DISCOVERY) {
            // Without a default route: the interface over which the origin is reached.
            let towards =
                self.origin.address.socket_addresses().into_iter().find_map(platter_net::address_towards);
            request.network.interface = towards.map(|address| address.to_string());
        }
        let result = thread::scope(|scope| {
            let ask = || asking.ask_until_end(&store, &version, &address, progress);
            thread::Builder::new().spawn_scoped(scope, ask).context(|| "starting a thread".into())?;
            let result = receive(&request, &version);
            asking.has_ended.store(true, Ordering::Relaxed);
            result
        });
        let failure = asking.failure.lock().take();
        let error = match (result, failure) {
            (Ok(report), _) => return Ok(ReceiveReport { version, ..report }),
            (Err(_), Some(failure)) => request.target.explain(failure),
            // Multicast that does not arrive is transient; a target that is refused is no matter of the cast.
            (Err(error), None) if error.kind() != ErrorKind::Transient => return Err(error),
            (Err(error), None) => error,
        };
        Err(error.within(format!(
            "receiving {version} from a cast of {address} (`platter install --server` needs no cast)"
        )))
    }
}

/// The key of the casts of a version, which is always the same.
fn join_key(store: &OriginStore, version: &str) -> Result<JoinKey> {
    let asked = Instant::now();
    let offer = loop {
        match store.ask_for_cast(version) {
            Err(error) if error.kind() == ErrorKind::Transient && asked.elapsed() < SILENCE_MAX => {
                thread::sleep(BUSY_PAUSE);
            }
            answer => break answer?,
        }
    };
    let key = Score::from_hex(&offer.join_key);
    let key = key.ok_or_else(|| Error::corrupt("the origin names an invalid key for its cast"))?;
    Ok(JoinKey::new(key.0.0))
}

/// What the thread that asks and the receiver share.
#[derive(Default)]
struct Asking {
    told: Arc<ToldSender>,
    /// Ends the receiver.
    stop: Arc<AtomicBool>,
    has_ended: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl Asking {
    fn ask_until_end(&self, store: &OriginStore, version: &str, address: &str, progress: &dyn Progress) {
        let (mut heard, mut was_queued) = (Instant::now(), false);
        while !self.has_ended.load(Ordering::Relaxed) {
            if self.told.is_joined() {
                heard = Instant::now();
                thread::sleep(PAUSE);
                continue;
            }
            let mut pause = PAUSE;
            match store.ask_for_cast(version) {
                Ok(offer) => {
                    heard = Instant::now();
                    if offer.state == CastOfferState::Queued {
                        pause = BUSY_PAUSE;
                        if !std::mem::replace(&mut was_queued, true) {
                            progress
                                .note(&format!("{address} casts as many other versions as it may; waiting"));
                        }
                    }
                    match offer.join.map(|join| join.parse()) {
                        Some(Ok(join)) => {
                            self.told.set(join);
                            // The receiver connects now, and several times a second until then.
                            pause = BUSY_PAUSE;
                        }
                        Some(Err(_)) => {
                            return self.fail(Error::corrupt(format!(
                                "{address} names an invalid address for its cast"
                            )));
                        }
                        None => {}
                    }
                }
                Err(error) if error.kind() == ErrorKind::Transient && heard.elapsed() < SILENCE_MAX => {
                    pause = BUSY_PAUSE;
                }
                Err(error) => return self.fail(error),
            }
            thread::sleep(pause);
        }
    }

    fn fail(&self, error: Error) {
        *self.failure.lock() = Some(error);
        self.stop.store(true, Ordering::Relaxed);
    }
}
