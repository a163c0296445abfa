//! Receiving from an origin: asks it to cast a version, until the receiver has joined, and again whenever it has lost the sender.
//!
//! The origin is asked in a thread of its own. Which disk is received is decided before: the score that the origin names for the
//! version, over its authenticated connection. If the cast does not reach this machine, the origin sends the disk to it alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_api::{CastFamily, CastOffer, CastOfferState};
use platter_client::{OriginStore, ServerOptions};
use platter_disk::install::Phase;
use platter_disk::refusal::CheckedTarget;
use platter_fetch::StoreLocation;
use platter_image::{Error, ErrorKind, IoContext, Result, Score};
use platter_net::{Family, JoinKey, JoinPlace, ReceiveOptions, ToldSender, Wanted};
use platter_records::{Resolved, VersionQuery};

use super::ReceiveRequest;
use crate::install::{InstallRequest, install, title};
use crate::{InstallReport, Progress, ReceiveReport, Way};

/// Pause between two questions, and between two while the origin is busy.
const PAUSE: Duration = Duration::from_millis(250);
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after the first answer that a cast is being prepared; doubled after each, up to [`PAUSE`].
const PREPARING_PAUSE: Duration = Duration::from_millis(20);
/// Longest time without a cast or an answer of the origin, before the disk is fetched without a cast.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long an address of the interface is waited for, before the disk is fetched without a cast; and the interface itself.
const ADDRESS_TIME: Duration = Duration::from_secs(5);
const INTERFACE_TIME: Duration = Duration::from_secs(30);

const NO_ADDRESS: &str = "it has neither an IPv4 nor an IPv6 address that casts could use";
const OTHER_FAMILY: &str =
    "the origin has no address of its family, IPv4 or IPv6, on the interface of its casts";

/// The request to receive a version that an origin casts.
#[derive(Clone, Debug)]
pub struct OriginCastRequest {
    /// The origin.
    pub origin: ServerOptions,
    /// The version.
    pub version: String,
}

/// Receives a version by its name onto a target that may be overwritten.
type ReceiveVersion<'a> = dyn Fn(&ReceiveRequest, Arc<CheckedTarget>, &str) -> Result<ReceiveReport> + 'a;

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
        receive: &ReceiveVersion<'_>,
    ) -> Result<ReceiveReport> {
        // Nobody may be there to be asked when the origin answers.
        let agreed = Arc::new(request.target.agree(None, &[])?);
        let network = &request.network;
        let (store, resolved) = self.reach(&self.version, (network.give_up, &network.stop), progress)?;
        if matches!(self.version.parse(), Ok(VersionQuery::Named(..))) {
            request.signatures.admit(resolved.version.as_ref().map(|version| &version.record))?;
        }
        let (version, address) = (title(&resolved), self.origin.address.to_string());
        let mut request = request.clone();
        request.network.wanted = Wanted::Score(resolved.score);
        request.network.origin = self.origin.address.socket_addresses();
        let asking =
            Asking { told: Arc::default(), stop: Arc::clone(&request.network.stop), ..Asking::default() };
        request.network.told = Some(Arc::clone(&asking.told));
        let join_key = match awaited_families(&request.network, progress)?.is_empty() {
            true => Err(Error::transient(NO_ADDRESS)),
            false => join_key(&store, &version, &request.network, &asking.told, progress)?,
        };
        request.network.join_key = match join_key {
            Ok(key) => Some(key),
            Err(reason) => {
                return self.install((&request, agreed), resolved.score, (&version, &reason), progress);
            }
        };
        let result = thread::scope(|scope| {
            let ask = || asking.ask_until_end(&store, (&version, &request.network), &address, progress);
            let asker =
                thread::Builder::new().spawn_scoped(scope, ask).context(|| "starting a thread".into())?;
            let result = receive(&request, Arc::clone(&agreed), &version);
            asking.has_ended.store(true, Ordering::Relaxed);
            asker.thread().unpark();
            result
        });
        let result = asking.judge(&request, result);
        let failure = asking.failure.lock().take();
        let error = match (result, failure) {
            (Ok(report), _) => return Ok(ReceiveReport { version, ..report }),
            (Err(_), Some(failure)) => request.target.explain(failure),
            // The cast does not arrive here. Anything else is no matter of the network.
            (Err(error), None) if error.kind() == ErrorKind::Transient => {
                if request.target.state.phase() == Phase::Untouched {
                    return self.install((&request, agreed), resolved.score, (&version, &error), progress);
                }
                error
            }
            (Err(error), None) => return Err(error),
        };
        Err(error.within(format!(
            "receiving {version} from a cast of {address} (`platter install --server` needs no cast)"
        )))
    }

    /// Finds the version at the origin. An origin that does not answer is asked again: machines may start before it.
    fn reach(
        &self,
        version: &str,
        (give_up, stop): (Option<Duration>, &AtomicBool),
        progress: &dyn Progress,
    ) -> Result<(OriginStore, Resolved)> {
        let asked = Instant::now();
        let mut is_told = false;
        loop {
            let found = OriginStore::open(&self.origin)
                .and_then(|store| store.resolve(version).map(|resolved| (store, resolved)));
            match found {
                Err(error)
                    if error.kind() == ErrorKind::Transient
                        && give_up.is_none_or(|time| asked.elapsed() < time)
                        && !stop.load(Ordering::Relaxed) =>
                {
                    if !std::mem::replace(&mut is_told, true) {
                        progress.note(&format!("{}; waiting for it", error.with_causes()));
                    }
                    thread::sleep(BUSY_PAUSE);
                }
                found => return found,
            }
        }
    }

    /// Fetches the disk from the origin for this machine alone, because casts do not reach it.
    fn install(
        &self,
        (request, agreed): (&ReceiveRequest, Arc<CheckedTarget>),
        score: Score,
        (version, reason): (&str, &Error),
        progress: &dyn Progress,
    ) -> Result<ReceiveReport> {
        let note = format!(
            "the cast does not reach this machine: {}; so {} sends the disk to this machine alone. `platter cast --probe` shows what \
             the network does",
            reason.with_causes(),
            self.origin.address,
        );
        progress.note(&note);
        // It may be away for a moment, as when it restarts.
        let longest = patience(&request.network, SILENCE_MAX);
        self.reach(&score.to_string(), (Some(longest), &request.network.stop), progress)?;
        let installing = InstallRequest {
            store: StoreLocation::Remote(self.origin.clone().into()),
            version: score.to_string(),
            target: request.target.clone(),
            agreed: Some(agreed),
            signatures: request.signatures.clone(),
        };
        let mut report = install(&installing, progress)?;
        report.notes.push(note);
        Ok(of_install(report, version))
    }
}

/// The report of a disk that was fetched from the origin.
fn of_install(report: InstallReport, version: &str) -> ReceiveReport {
    ReceiveReport {
        version: version.to_owned(),
        score: report.score,
        target: report.target,
        written_bytes: report.written_bytes,
        fetched_bytes: report.fetched_bytes,
        delta: report.delta,
        read_back: report.read_back,
        compared: report.compared,
        partition: report.partition,
        grown: report.grown,
        new_ids: report.new_ids,
        backup_gpt_moved: report.backup_gpt_moved,
        seconds: report.seconds,
        way: Way::Origin,
        symbols: 0,
        repaired_symbols: 0,
        duplicate_symbols: 0,
        fetched_chunks: 0,
        ignored_senders: 0,
        rejected_datagrams: 0,
        repeated_datagrams: 0,
        acknowledged: true,
        score_given: true,
        notes: report.notes,
    }
}

/// How long to wait at most: this long, or as long as for a sender, if that is shorter.
fn patience(network: &ReceiveOptions, longest: Duration) -> Duration {
    network.give_up.map_or(longest, |give_up| give_up.min(longest))
}

/// The families of addresses that this machine has, once it has one.
///
/// # Errors
/// `Refused` when its interface does not exist.
fn awaited_families(network: &ReceiveOptions, progress: &dyn Progress) -> Result<Vec<CastFamily>> {
    let (began, mut note) = (Instant::now(), Once::default());
    loop {
        let families = families(network);
        let missing = network.interface.as_deref().filter(|name| !platter_net::exists(name));
        let longest = if missing.is_some() { INTERFACE_TIME } else { ADDRESS_TIME };
        let is_over = began.elapsed() >= patience(network, longest) || network.stop.load(Ordering::Relaxed);
        match missing {
            _ if !families.is_empty() => return Ok(families),
            Some(name) if is_over => {
                return Err(Error::refused(format!("interface {name} does not exist or cannot be used")));
            }
            None if is_over => return Ok(families),
            Some(name) => note.tell(progress, &format!("interface {name} does not exist; waiting for it")),
            None => note.tell(progress, &format!("this machine waits for an address: {NO_ADDRESS}")),
        }
        thread::sleep(PAUSE);
    }
}

/// The families of addresses that this machine has now, at the interface on which it listens.
pub(crate) fn families(network: &ReceiveOptions) -> Vec<CastFamily> {
    let families = platter_net::families(platter_net::interface_of(network).as_deref()).into_iter();
    families
        .map(|family| match family {
            Family::Ipv4 => CastFamily::Ipv4,
            Family::Ipv6 => CastFamily::Ipv6,
        })
        .collect()
}

/// Asks the origin for a cast in the families that this machine has now.
///
/// # Errors
/// `Transient` without any: an empty list means IPv4.
fn ask(store: &OriginStore, version: &str, network: &ReceiveOptions) -> Result<CastOffer> {
    match families(network) {
        none if none.is_empty() => Err(Error::transient(NO_ADDRESS)),
        families => store.ask_for_cast(version, families),
    }
}

/// A note that is told once.
#[derive(Default)]
struct Once(bool);

impl Once {
    fn tell(&mut self, progress: &dyn Progress, note: &str) {
        if !std::mem::replace(&mut self.0, true) {
            progress.note(note);
        }
    }
}

/// Whether the origin may send the disk although it does not cast it, now or for long.
fn is_of_the_cast(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Transient | ErrorKind::Io)
}

/// The key of the casts of a version, which is always the same; or why none reaches this machine. `told` learns where to join, if the
/// origin casts the version already.
fn join_key(
    store: &OriginStore,
    version: &str,
    network: &ReceiveOptions,
    told: &ToldSender,
    progress: &dyn Progress,
) -> Result<std::result::Result<JoinKey, Error>> {
    let (asked, mut note) = (Instant::now(), Once::default());
    let offer = loop {
        match ask(store, version, network) {
            // This machine or the origin may get another address.
            Ok(offer) if offer.state == CastOfferState::OtherFamily => {
                if network.stop.load(Ordering::Relaxed) {
                    return Err(Error::transient(OTHER_FAMILY));
                }
                if asked.elapsed() >= patience(network, ADDRESS_TIME) {
                    return Ok(Err(Error::transient(OTHER_FAMILY)));
                }
                note.tell(progress, &format!("this machine waits for a cast: {OTHER_FAMILY}"));
                thread::sleep(PAUSE);
            }
            Err(error) if is_of_the_cast(&error) => {
                if network.stop.load(Ordering::Relaxed) {
                    return Err(error);
                }
                if asked.elapsed() >= patience(network, SILENCE_MAX) {
                    return Ok(Err(error));
                }
                thread::sleep(BUSY_PAUSE);
            }
            answer => break answer?,
        }
    };
    let key = key_of(&offer)?;
    if let Some(Ok(place)) = place_of(&offer) {
        told.set(place);
    }
    Ok(Ok(key))
}

/// The key of a cast.
///
/// # Errors
/// `Corrupt` when it is none.
pub(crate) fn key_of(offer: &CastOffer) -> Result<JoinKey> {
    let key = Score::from_hex(&offer.join_key);
    let key = key.ok_or_else(|| Error::corrupt("the origin names an invalid key for its cast"))?;
    Ok(JoinKey::new(key.0.0))
}

/// Where a cast is joined. `None`: nobody can join it yet.
///
/// # Errors
/// `Corrupt` when it is no address.
pub(crate) fn place_of(offer: &CastOffer) -> Option<Result<JoinPlace>> {
    let address = offer.join.as_ref()?.parse();
    let invalid = |_| Error::corrupt("the origin names an invalid address for its cast");
    Some(address.map(|address| JoinPlace { address, session: offer.session }).map_err(invalid))
}

/// What the thread that asks and the receiver share.
#[derive(Default)]
struct Asking {
    told: Arc<ToldSender>,
    /// Ends the receiver.
    stop: Arc<AtomicBool>,
    has_ended: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Why the casts of the origin do not reach this machine any more.
    unreached: Mutex<Option<Error>>,
}

impl Asking {
    fn ask_until_end(
        &self,
        store: &OriginStore,
        (version, network): (&str, &ReceiveOptions),
        address: &str,
        progress: &dyn Progress,
    ) {
        let (mut heard, mut was_joined) = (Instant::now(), false);
        let (mut queued, mut waits, mut preparing) = (Once::default(), Once::default(), PREPARING_PAUSE);
        // Since when the origin casts in the other family.
        let mut other: Option<Instant> = None;
        while !self.has_ended.load(Ordering::Relaxed) {
            if self.told.is_joined() {
                (heard, was_joined, other) = (Instant::now(), true, None);
                thread::park_timeout(PAUSE);
                continue;
            }
            let answer = ask(store, version, network);
            let is_other = matches!(&answer, Ok(offer) if offer.state == CastOfferState::OtherFamily);
            if is_other {
                waits.tell(progress, &format!("this machine waits for a cast: {OTHER_FAMILY}"));
                // What was received is worth a longer wait.
                let longest = if was_joined { SILENCE_MAX } else { ADDRESS_TIME };
                if other.get_or_insert_with(Instant::now).elapsed() >= longest {
                    return self.leave(Error::transient(OTHER_FAMILY));
                }
            } else {
                other = None;
            }
            let mut pause = PAUSE;
            match answer {
                Ok(offer) => {
                    heard = Instant::now();
                    if offer.state == CastOfferState::Preparing {
                        (pause, preparing) = (preparing, (preparing * 2).min(PAUSE));
                    }
                    if offer.state == CastOfferState::Queued {
                        pause = BUSY_PAUSE;
                        queued.tell(
                            progress,
                            &format!("{address} casts as many other versions as it may; waiting"),
                        );
                    }
                    match place_of(&offer) {
                        Some(Ok(place)) => {
                            self.told.set(place);
                            // The receiver connects now, and several times a second until then.
                            pause = BUSY_PAUSE;
                        }
                        Some(Err(error)) => {
                            return self.fail(error.within(address.to_owned()));
                        }
                        None => {}
                    }
                }
                Err(error) if is_of_the_cast(&error) => {
                    if heard.elapsed() >= SILENCE_MAX {
                        return self.leave(Error::transient(error.with_causes()));
                    }
                    pause = BUSY_PAUSE;
                }
                Err(error) => return self.fail(error),
            }
            thread::park_timeout(pause);
        }
    }

    /// Replaces the error of a receiver that was ended because no cast reaches it.
    fn judge(&self, request: &ReceiveRequest, result: Result<ReceiveReport>) -> Result<ReceiveReport> {
        let Some(reason) = self.unreached.lock().take() else { return result };
        self.stop.store(false, Ordering::Relaxed);
        // Any other error than that of the stop is one of this machine.
        result.map_err(|error| match error.kind() {
            ErrorKind::Refused => request.target.explain(reason),
            _ => error,
        })
    }

    /// Ends the receiver, because no cast of the origin reaches this machine.
    fn leave(&self, reason: Error) {
        *self.unreached.lock() = Some(reason);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn fail(&self, error: Error) {
        *self.failure.lock() = Some(error);
        self.stop.store(true, Ordering::Relaxed);
    }
}
