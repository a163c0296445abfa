//! The running casts of a process, each in a thread of its own, which share one rate.
//!
//! Nothing is announced: whoever may read what is cast is told where its cast is, and the cast names only the score.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_api::{
    AskForHoardCastRequest, CastFamily, CastOffer, CastOfferState, CastStatus, HoardCastOffer, HoardCastState,
};
use platter_cast::{demand, shares};
use platter_image::{Domain, Error, ErrorKind, IoContext, Result, Score};
use platter_net::{
    CastPorts, Family, JoinKey, JoinPlace, ReceiverState, ReceiverStatus, SendControl, SendEvent,
    SendOptions, SenderProgress, unscoped,
};
use platter_records::{HoardSnapshot, Resolved};
use platter_store::Store;
use platter_transport::to_hex;
use platter_vfs::{OsVfs, Vfs};

use super::gathering::{Gathering, Verdict};
use super::secret::Secret;
use super::subject::{Subject, SubjectId};
use crate::cast::{Tell, Told};

/// How long a cast waits for a receiver that was told of it. Receivers ask again until they have joined.
const EXPECTED: Duration = Duration::from_secs(10);
/// How long a cast without a receiver is kept at most, however often it is asked for: receivers join within seconds, and other casts may
/// wait for its place.
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// How long whoever asks again for a cast that failed is told so, instead of another attempt.
const FAILURE_KEPT: Duration = Duration::from_secs(10);
/// Most failures that are kept.
const FAILURES_MAX: usize = 64;
/// Lowest total rate, in bits per second.
const RATE_MIN: u64 = 1_000_000;
/// Shortest time in which it is measured what a cast uses.
const SHARE_INTERVAL: Duration = Duration::from_millis(200);

/// A node that lacks at most so many bytes of the hoard fetches them: a cast would take longer to begin.
const HOARD_BYTES_MIN: u64 = 4 << 20;

/// Options of casts on demand.
#[derive(Clone, Debug)]
pub struct CastDeskOptions {
    /// Name or address of the interface to send on.
    pub interface: String,
    /// The maximum rate of all casts together, in bits per second on the wire.
    pub rate_bits_per_second: u64,
    /// Most casts at once.
    pub casts_max: usize,
    /// How long a new cast waits for receivers to start together.
    pub gather: Duration,
    /// How long a cast waits for late receivers after the last one has finished.
    pub linger: Duration,
    /// Cast a revision of the hoard when this many nodes that lack it ask at the same time; 0: never.
    pub hoard_nodes_min: usize,
}

/// The casts on demand of a process.
#[derive(Debug)]
pub struct CastDesk {
    options: CastDeskOptions,
    secret: Secret,
    /// All casts share the port.
    ports: Arc<CastPorts>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Vec<Running>,
    failures: Vec<Failure>,
    gathering: Gathering,
}

/// A cast that runs or is being prepared.
#[derive(Debug)]
struct Running {
    id: String,
    subject: SubjectId,
    family: Family,
    control: Arc<SendControl>,
    /// Where receivers join, once they can.
    place: Option<CastPlace>,
    /// When it had a receiver last; before the first one, when it was ready.
    used_at: Instant,
    /// The bits that it had sent at that time.
    sent: (u64, Instant),
    /// The rate that it can use, and its share.
    demand: u64,
    share: u64,
}

impl Running {
    /// How long it is kept for a receiver that asks for it now.
    fn kept_until(&self, now: Instant) -> Instant {
        match self.place {
            None => now + EXPECTED,
            Some(_) => (now + EXPECTED).min(self.used_at + UNUSED_MAX),
        }
    }

    fn is_unused(&self, now: Instant) -> bool {
        self.place.is_some() && now >= self.used_at + UNUSED_MAX
    }
}

/// Where a cast can be received.
#[derive(Clone, Copy, Debug)]
struct CastPlace {
    score: Score,
    join: JoinPlace,
    group: SocketAddr,
}

/// What is known about a cast that somebody asks for.
enum CastStage {
    /// There is none.
    Unstarted,
    /// It is being prepared.
    Preparing,
    Ready(CastPlace),
}

#[derive(Debug)]
struct Failure {
    subject: SubjectId,
    family: Family,
    kind: ErrorKind,
    messages: Vec<String>,
    at: Instant,
}

impl CastDesk {
    /// Prepares casts of the store in `dir`, whose blocks have this domain; starts nothing.
    ///
    /// # Errors
    /// `Refused` for a rate that is too low, and without the key of an encrypted store; `Corrupt` or `Io` if the secret of its casts
    /// cannot be read or made.
    pub fn new(options: CastDeskOptions, dir: &Path, domain: Domain) -> Result<Arc<Self>> {
        if options.rate_bits_per_second < RATE_MIN {
            return Err(Error::refused(format!(
                "a rate of {} bit/s is too low: casts need at least {RATE_MIN}",
                options.rate_bits_per_second
            )));
        }
        platter_net::check_interface(&options.interface)?;
        let secret = Secret::of(dir, domain)?;
        Ok(Arc::new(Self { options, secret, ports: Arc::default(), state: Mutex::default() }))
    }

    /// Returns where the version is cast, in the first of the families that the interface has. Starts its cast if none runs; `tell` gets
    /// the cast's id and states. Receivers that may not read everything name their sharing group, and have a cast of their own, without
    /// any other block. Never waits for the network or for long reads.
    ///
    /// # Errors
    /// Why the cast failed, if one did a moment ago; `Io` when no thread can be started.
    pub fn ask(
        self: &Arc<Self>,
        store: &Store,
        resolved: &Resolved,
        (families, group): (&[CastFamily], Option<&str>),
        tell: impl Fn(&str, &CastStatus) + Send + 'static,
    ) -> Result<CastOffer> {
        let group = group.map(str::to_owned);
        let subject = Subject::Version { resolved: Box::new(resolved.clone()), group };
        let id = subject.id()?;
        let offer = |state, place| self.offer(id, resolved.score, state, place);
        let Some(family) = self.family_for(families) else {
            return Ok(offer(CastOfferState::OtherFamily, None));
        };
        let mut state = self.state.lock();
        match find(&mut state, (id, family))? {
            CastStage::Ready(place) => return Ok(offer(CastOfferState::Ready, Some(place))),
            CastStage::Preparing => return Ok(offer(CastOfferState::Preparing, None)),
            CastStage::Unstarted => {}
        }
        if state.running.len() >= self.options.casts_max {
            return Ok(offer(CastOfferState::Queued, None));
        }
        self.start(&mut state, store, (subject, id, family), tell)?;
        Ok(offer(CastOfferState::Preparing, None))
    }

    /// Returns where this revision of the hoard is cast, as [`CastDesk::ask`]; starts its cast when enough nodes ask at the same time.
    /// The revision in the request is of the same hoard as `hoard`, or 0.
    ///
    /// # Errors
    /// As [`CastDesk::ask`].
    pub fn ask_for_hoard(
        self: &Arc<Self>,
        store: &Store,
        hoard: &HoardSnapshot,
        request: &AskForHoardCastRequest,
        tell: impl Fn(&str, &CastStatus) + Send + 'static,
    ) -> Result<HoardCastOffer> {
        const FETCH: HoardCastOffer = HoardCastOffer { state: HoardCastState::Fetch, cast: None };
        const WAIT: HoardCastOffer = HoardCastOffer { state: HoardCastState::Wait, cast: None };
        if request.missing_bytes_max <= HOARD_BYTES_MIN {
            return Ok(FETCH);
        }
        let Some(family) = self.family_for(&request.families) else { return Ok(FETCH) };
        let id = Subject::Hoard { snapshot: hoard.clone(), since: 0 }.id()?;
        let mut state = self.state.lock();
        match find(&mut state, (id, family))? {
            CastStage::Ready(place) => {
                let cast = self.offer(id, place.score, CastOfferState::Ready, Some(place));
                return Ok(HoardCastOffer { state: HoardCastState::Ready, cast: Some(cast) });
            }
            CastStage::Preparing => return Ok(WAIT),
            CastStage::Unstarted if state.running.len() >= self.options.casts_max => return Ok(FETCH),
            CastStage::Unstarted => {}
        }
        let asking = ((id, family), request.node.as_str(), request.since);
        match state.gathering.ask(self.options.hoard_nodes_min, asking, Instant::now()) {
            Verdict::Fetch => Ok(FETCH),
            Verdict::Wait => Ok(WAIT),
            Verdict::Start { since } => {
                let subject = Subject::Hoard { snapshot: hoard.clone(), since };
                self.start(&mut state, store, (subject, id, family), tell)?;
                Ok(WAIT)
            }
        }
    }

    fn offer(
        &self,
        id: SubjectId,
        score: Score,
        state: CastOfferState,
        place: Option<CastPlace>,
    ) -> CastOffer {
        CastOffer {
            score: score.to_string(),
            state,
            join_key: to_hex(&self.secret.key_of(&id)),
            join: place.map(|place| unscoped(place.join.address).to_string()),
            session: place.and_then(|place| place.join.session),
            group: place.map(|place| place.group.to_string()),
        }
    }

    /// Starts a cast in a thread of its own.
    ///
    /// # Errors
    /// `Io` when no thread can be started.
    fn start(
        self: &Arc<Self>,
        state: &mut State,
        store: &Store,
        (subject, subject_id, family): (Subject, SubjectId, Family),
        tell: impl Fn(&str, &CastStatus) + Send + 'static,
    ) -> Result<()> {
        let now = Instant::now();
        let control = Arc::new(SendControl::default());
        let id = to_hex(&OsVfs.random_id().context(|| "choosing a name for a cast".into())?);
        // A new cast always accepts this.
        let _ = control.keep(now + EXPECTED);
        state.running.push(Running {
            id: id.clone(),
            subject: subject_id,
            family,
            control: Arc::clone(&control),
            place: None,
            used_at: now,
            sent: (0, now),
            demand: demand(self.options.rate_bits_per_second, u64::MAX, 0),
            share: 0,
        });
        self.share_rate(state);
        let cast = Cast { id: id.clone(), subject, subject_id, family, control };
        let (desk, store) = (Arc::clone(self), store.clone());
        let run = move || desk.run(&cast, &store, tell);
        let started = thread::Builder::new().name("cast".into()).spawn(run);
        started.map(drop).context(|| "starting a thread".into()).inspect_err(|_| {
            state.running.retain(|cast| cast.id != id);
        })
    }

    /// The family in which a client that can receive in these gets a cast. Without any address of the interface, the first one, whose cast
    /// fails and says why.
    fn family_for(&self, families: &[CastFamily]) -> Option<Family> {
        let wanted = if families.is_empty() { &[CastFamily::Ipv4] } else { families };
        let mut wanted = wanted.iter().map(|family| match family {
            CastFamily::Ipv4 => Family::Ipv4,
            CastFamily::Ipv6 => Family::Ipv6,
        });
        let here = platter_net::families_to_cast(&self.options.interface);
        wanted.find(|family| here.is_empty() || here.contains(family))
    }

    /// Casts from start to end.
    fn run(&self, cast: &Cast, store: &Store, tell: impl Fn(&str, &CastStatus) + 'static) {
        let id = cast.id.clone();
        let place = TakenPlace { desk: self, cast };
        let tell = Tell::Own(Box::new(move |status| tell(&id, status)));
        let failure = self.cast(cast, store, tell).err();
        let now = Instant::now();
        let mut state = self.state.lock();
        let is_unused = state.running.iter().any(|running| running.id == cast.id && running.is_unused(now));
        // Casts that wait begin before this one is started again.
        let unused = || Error::transient(format!("its cast had no receiver for {} s", UNUSED_MAX.as_secs()));
        if let Some(error) = failure.or_else(|| is_unused.then(unused)) {
            state.remember_failure(cast, &error, now);
        }
        drop(state);
        drop(place);
    }

    fn cast(&self, cast: &Cast, store: &Store, tell: Tell) -> Result<()> {
        let (mut description, source) = cast.subject.describe(store)?;
        let score = description.score;
        // Datagrams can be read by machines that may not know the name.
        (description.name, description.offer) = (score.to_string(), Vec::new());
        let mut told = Told::begin(Some(tell), cast.subject.title(), score, description.total_bytes());
        // Planning may have taken long; receivers ask again, and keep it.
        let _ = cast.control.keep(Instant::now() + EXPECTED);
        let network = SendOptions {
            interface: Some(self.options.interface.clone()),
            family: Some(cast.family),
            rate_bits_per_second: self.options.rate_bits_per_second,
            wait_receivers: u32::MAX,
            wait: self.options.gather,
            linger: self.options.linger,
            give_up: Some(Duration::ZERO),
            is_unlisted: true,
            ports: Arc::clone(&self.ports),
            join_key: Some(JoinKey::new(self.secret.key_of(&cast.subject_id))),
            control: Arc::clone(&cast.control),
            ..SendOptions::default()
        };
        let mut has_receivers = false;
        let sent = platter_net::send(&network, &description, &*source, |event| {
            match &event {
                SendEvent::Ready { place, group } => {
                    self.note_place(&cast.id, CastPlace { score, join: *place, group: *group });
                }
                SendEvent::Status { receivers, progress } => {
                    has_receivers |= !receivers.is_empty();
                    self.note_progress(&cast.id, receivers, progress);
                }
            }
            told.hear(&event);
        });
        told.end(sent.as_ref().map(|summary| &summary.receivers[..]));
        match sent {
            // Whoever asked has gone away.
            Err(error) if !has_receivers && error.kind() == ErrorKind::Missing => Ok(()),
            sent => sent.map(drop),
        }
    }

    fn note_place(&self, id: &str, place: CastPlace) {
        if let Some(cast) = self.state.lock().running.iter_mut().find(|cast| cast.id == id) {
            (cast.place, cast.used_at) = (Some(place), Instant::now());
        }
    }

    /// Measures what a cast uses, and divides the rate again.
    fn note_progress(&self, id: &str, receivers: &[ReceiverStatus], progress: &SenderProgress) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(cast) = state.running.iter_mut().find(|cast| cast.id == id) else { return };
        let takes_part = |receiver: &ReceiverStatus| {
            !matches!(
                receiver.state,
                ReceiverState::Done(_) | ReceiverState::Failed(_) | ReceiverState::Lost(_)
            )
        };
        if receivers.iter().any(takes_part) {
            cast.used_at = now;
        }
        let passed = now.saturating_duration_since(cast.sent.1);
        if passed < SHARE_INTERVAL {
            return;
        }
        let bits = (progress.wire_bytes + progress.fetched_bytes) * 8;
        let used = bits.saturating_sub(cast.sent.0) as f64 / passed.as_secs_f64();
        cast.sent = (bits, now);
        cast.demand = demand(self.options.rate_bits_per_second, cast.share, used as u64);
        self.share_rate(&mut state);
    }

    fn share_rate(&self, state: &mut State) {
        let demands: Vec<u64> = state.running.iter().map(|cast| cast.demand).collect();
        for (cast, share) in state.running.iter_mut().zip(shares(self.options.rate_bits_per_second, &demands))
        {
            cast.share = share;
            cast.control.limit_rate(share);
        }
    }
}

impl State {
    /// Keeps the reason of a failed cast for whoever asks again; the oldest one of too many is dropped.
    fn remember_failure(&mut self, cast: &Cast, error: &Error, at: Instant) {
        self.forget_failures(at);
        if self.failures.len() >= FAILURES_MAX {
            self.failures.remove(0);
        }
        let (kind, messages) = (error.kind(), error.messages());
        self.failures.push(Failure { subject: cast.subject_id, family: cast.family, kind, messages, at });
    }

    fn forget_failures(&mut self, now: Instant) {
        self.failures.retain(|failure| now.saturating_duration_since(failure.at) < FAILURE_KEPT);
    }
}

/// The place of a cast among those that run, until this is dropped, also by a panic.
struct TakenPlace<'a> {
    desk: &'a CastDesk,
    cast: &'a Cast,
}

impl Drop for TakenPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.desk.state.lock();
        state.running.retain(|running| running.id != self.cast.id);
        self.desk.share_rate(&mut state);
    }
}

/// A cast in its thread.
struct Cast {
    id: String,
    subject: Subject,
    subject_id: SubjectId,
    family: Family,
    control: Arc<SendControl>,
}

/// Finds the cast of a subject, and keeps it for whoever asks.
///
/// # Errors
/// Why it failed, if it did a moment ago.
fn find(state: &mut State, (subject, family): (SubjectId, Family)) -> Result<CastStage> {
    let now = Instant::now();
    let is_it = |cast: &&Running| cast.subject == subject && cast.family == family;
    let known = state.running.iter().find(|cast| is_it(cast) && cast.control.keep(cast.kept_until(now)));
    if let Some(known) = known {
        return Ok(known.place.map_or(CastStage::Preparing, CastStage::Ready));
    }
    state.forget_failures(now);
    match state.failures.iter().find(|it| it.subject == subject && it.family == family) {
        Some(failure) => Err(Error::from_messages(failure.kind, failure.messages.clone())),
        None => Ok(CastStage::Unstarted),
    }
}

#[cfg(test)]
mod tests {
    use platter_image::BlockId;
    use platter_store::StorePlace;

    use super::*;
    use crate::tests::capture_bytes;

    fn desk(interface: &str, dir: &Path) -> Arc<CastDesk> {
        let options = CastDeskOptions {
            interface: interface.into(),
            rate_bits_per_second: 10_000_000,
            casts_max: 1,
            gather: Duration::ZERO,
            linger: Duration::ZERO,
            hoard_nodes_min: 2,
        };
        CastDesk::new(options, dir, Domain::SHARED).unwrap()
    }

    fn store_of_two(folder: &std::path::Path) -> (Store, [Resolved; 2]) {
        let place = StorePlace::on_system(folder.join("store"));
        Store::init(&place).unwrap();
        capture_bytes(&place, "lab/a", &[1; 8192]);
        capture_bytes(&place, "lab/b", &[2; 8192]);
        let store = Store::open_reader(&place).unwrap();
        let versions = ["lab/a", "lab/b"].map(|name| store.resolve(name).unwrap());
        (store, versions)
    }

    /// Asks until the answer is not that the cast is being prepared.
    fn asked(desk: &Arc<CastDesk>, store: &Store, version: &Resolved) -> Result<CastOffer> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match desk.ask(store, version, (&[], None), |_, _| {}) {
                Ok(offer) if offer.state == CastOfferState::Preparing => {
                    assert!(Instant::now() < deadline, "the cast is not ready");
                    thread::sleep(Duration::from_millis(20));
                }
                answer => return answer,
            }
        }
    }

    #[test]
    fn a_version_has_one_cast_and_the_next_version_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (store, [a, b]) = store_of_two(folder.path());
        let desk = desk("127.0.0.1", folder.path());
        let offer = asked(&desk, &store, &a).unwrap();
        assert_eq!((offer.state, &offer.score), (CastOfferState::Ready, &a.score.to_string()));
        let join: SocketAddr = offer.join.as_deref().unwrap().parse().unwrap();
        assert!(join.ip().is_loopback());
        assert_eq!(asked(&desk, &store, &a).unwrap(), offer);
        let queued = asked(&desk, &store, &b).unwrap();
        assert_ne!(queued.join_key, offer.join_key, "each version has a key of its own");
        let restarted = CastDesk::new(desk.options.clone(), folder.path(), Domain::SHARED).unwrap();
        assert_eq!(to_hex(&restarted.secret.key_of(&a.score.0.0)), offer.join_key, "it stays over a restart");
        assert_eq!((queued.state, queued.join), (CastOfferState::Queued, None));
        // The interface is named by its IPv4 address.
        let ask = |families: &[CastFamily]| desk.ask(&store, &a, (families, None), |_, _| {}).unwrap();
        assert_eq!(ask(&[CastFamily::Ipv6]).state, CastOfferState::OtherFamily);
        assert_eq!(ask(&[CastFamily::Ipv6, CastFamily::Ipv4]), offer);
    }

    #[test]
    fn a_cast_without_a_receiver_is_kept_for_a_minute_however_often_it_is_asked_for() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        let mut cast = Running {
            id: String::new(),
            subject: [1; 32],
            family: Family::Ipv4,
            control: Arc::default(),
            place: None,
            used_at: start,
            sent: (0, start),
            demand: 0,
            share: 0,
        };
        assert_eq!(cast.kept_until(at(500)), at(510), "it is still being prepared");
        let join = JoinPlace { address, session: None };
        cast.place = Some(CastPlace { score: Score(BlockId([1; 32])), join, group: address });
        assert_eq!([0, 49, 51, 99].map(|now| cast.kept_until(at(now))), [10, 59, 60, 60].map(at));
        assert!(!cast.is_unused(at(59)) && cast.is_unused(at(60)));
        // It has had a receiver until then.
        cast.used_at = at(40);
        assert_eq!(cast.kept_until(at(51)), at(61));
        assert!(!cast.is_unused(at(60)));
    }

    #[test]
    fn whoever_asks_again_is_told_why_a_cast_failed() {
        let folder = tempfile::tempdir().unwrap();
        let (store, [a, _]) = store_of_two(folder.path());
        let mut desk = desk("lo", folder.path());
        let old = |number| Failure {
            subject: [number; 32],
            family: Family::Ipv4,
            kind: ErrorKind::Refused,
            messages: vec!["old".into()],
            at: Instant::now(),
        };
        desk.state.lock().failures.extend((0..FAILURES_MAX as u8).map(old));
        // As if the interface had been removed after the start.
        Arc::get_mut(&mut desk).unwrap().options.interface = "none-such".into();
        let error = asked(&desk, &store, &a).unwrap_err();
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("none-such"), "{error}");
        let options = CastDeskOptions { rate_bits_per_second: 1000, ..desk.options.clone() };
        assert_eq!(
            CastDesk::new(options, folder.path(), Domain::SHARED).unwrap_err().kind(),
            ErrorKind::Refused
        );
    }
}
