//! Keeps a store up to date with an origin (`platter follow`).
//!
//! The follower asks for the changes after its position, copies the data that new versions and boot sets need, and enters the rows with
//! its new position in one commit. The position contains the hash of the last change, so an origin that was restored from a backup
//! is noticed. If the log was replaced since, the reply begins with a copy of all rows, and the difference is entered.

mod entering;
mod net;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use platter_api::{ReplicaReply, ReplicaRequest, StandingReply};
use platter_client::{Listener, OriginStore, ServerOptions, listen};
use platter_fetch::{OpenStore, StoreLocation, unix_ms};
use platter_image::{Error, ErrorKind, Result};
use platter_records::{Action, Follower, Following, OriginAccess, Standing, Successor};
use platter_store::{ReplicatedChange, RowChange, StandingChange, Store, StorePlace};

use super::feed::Feed;
use super::push::refuse_other_key;
use crate::Progress;
use crate::edit_lock::default_holder;
use entering::{Batch, Entering};
use net::{Lost, check_chain, difference, lost, net_of};

/// Longest time between two questions to the origin.
const POLL: Duration = Duration::from_secs(2);
/// Pause after an error.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// How long `once` waits for an origin that went down.
pub(super) const ONCE_RETRY_MAX: Duration = Duration::from_secs(5);
/// What was left out is tried again after this time.
const RETRY_EVERY: Duration = Duration::from_secs(10);
/// Maximum size of the changes that follow a copy of all rows, in bytes. An origin replaces a log that is longer than 8 MiB and twice its first
/// length: only one with a copy of 4 GiB would reach this.
const COPY_BYTES_MAX: usize = 4 << 30;

/// The request to follow an origin.
#[derive(Clone, Debug)]
pub struct FollowRequest {
    /// The store that follows.
    pub store: StorePlace,
    /// The origin.
    pub origin: ServerOptions,
    /// How to reach it again.
    pub access: OriginAccess,
    /// The address at which the store will be served; empty if unknown.
    pub address: String,
    /// End when the store is up to date.
    pub once: bool,
    /// Remove versions that the origin lost or never had.
    pub accept_loss: bool,
}

/// Follows until the process ends, or with `once` until the store is up to date. Returns the standing then.
///
/// # Errors
/// `Refused` when the store has versions of its own, another process follows with it, the origin is another store than before, was
/// restored from a backup, or was replaced. Other errors are noted, and the work goes on.
pub fn follow(request: &FollowRequest, progress: &dyn Progress) -> Result<Standing> {
    let _alone = Store::lock_following(&request.store)?;
    refuse_own_versions(&Store::open_reader(&request.store)?)?;
    let origin = OriginStore::open(&request.origin)?;
    let told = retried(request.once, progress, || origin.standing())?;
    let store = Store::open_reader(&request.store)?;
    // The store becomes a follower only if it can get anything.
    let source = retried(request.once, progress, || {
        let source = OpenStore::open_reader(&StoreLocation::from(request.origin.clone()))?;
        // It is asked once, so the origin may be down later.
        source.domain().map(|_| source)
    })?;
    refuse_other_key(source.domain()?, store.domain())?;
    let standing = store.change_standing(|present, is_new| mark(request, &told, present, is_new))?;
    let Standing::Follower(following) = standing else { return Err(Error::bug("a follower that is none")) };
    // It may have followed this store before.
    store.remove_follower(&told.store)?;
    let mut followed = Followed::new(request.store.clone(), origin.clone(), source, *following)?;
    if request.once {
        followed.feed.give_up_after(ONCE_RETRY_MAX);
    }
    followed.accept_loss = request.accept_loss;
    let news = Arc::new(News::default());
    if !request.once {
        listen(origin, &news)?;
    }
    let mut said = String::new();
    loop {
        match followed.step(progress) {
            Ok(Step::More) => said.clear(),
            Ok(Step::Idle) if request.once => return Ok(Standing::Follower(Box::new(followed.following))),
            Ok(Step::Idle) => {
                said.clear();
                news.wait(POLL);
            }
            Err(error) if request.once || is_final(&error) => return Err(error),
            Err(error) => {
                let text = error.with_causes();
                if text != said {
                    progress.note(&format!("{text}; trying again"));
                    said = text;
                }
                thread::sleep(ERROR_PAUSE);
            }
        }
    }
}

fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused | ErrorKind::Bug)
}

/// Repeats a request while the origin is down, unless `once` is set.
fn retried<T>(once: bool, progress: &dyn Progress, ask: impl Fn() -> Result<T>) -> Result<T> {
    let mut was_said = false;
    loop {
        match ask() {
            Err(error) if error.kind() == ErrorKind::Transient && !once => {
                if !std::mem::replace(&mut was_said, true) {
                    progress.note(&format!("{}; trying again", error.with_causes()));
                }
                thread::sleep(ERROR_PAUSE);
            }
            answer => return answer,
        }
    }
}

fn own_versions() -> Error {
    Error::refused(
        "this store has versions of its own, so it cannot become a follower: use a new store (`platter init`)",
    )
}

/// Refuses what is known before the origin answers.
fn refuse_own_versions(store: &Store) -> Result<()> {
    match store.standing()? {
        Standing::Origin { epoch: 0, .. } if !store.images()?.is_empty() => Err(own_versions()),
        _ => Ok(()),
    }
}

/// Makes the store a follower of that origin. A store with versions of its own is refused in the same transaction.
fn mark(
    request: &FollowRequest,
    told: &StandingReply,
    present: &Standing,
    is_new: bool,
) -> Result<Option<StandingChange>> {
    let address = &request.origin.address;
    let (epoch, former) = match (&told.standing, present) {
        (Standing::Origin { epoch, former, .. }, _) => (epoch, former),
        // It was replaced while nobody followed with this store: its last changes are copied first.
        (Standing::Replaced { .. }, Standing::Follower(known)) if known.origin == told.store => {
            (&known.epoch, &known.former)
        }
        (other, _) => {
            return Err(Error::refused(format!(
                "the store at {address} is no origin ({}): follow the origin",
                other.summary()
            )));
        }
    };
    refuse_last(*epoch)?;
    let new = Following {
        epoch: *epoch,
        origin: told.store.clone(),
        access: request.access.clone(),
        address: request.address.clone(),
        former: former.clone(),
        ..Following::default()
    };
    let (following, action) = match present {
        Standing::Follower(known) if known.origin == told.store => {
            let (access, address) = (new.access, new.address);
            let following = Following { access, address, ..(**known).clone() };
            if following == **known {
                return Ok(None);
            }
            (following, Action::NoteStanding {})
        }
        Standing::Follower(known) if !former.iter().any(|it| it.store == known.origin) => {
            return Err(Error::refused(format!(
                "this store follows the store {} at {}, not {} at {address}",
                known.origin, known.access.address, told.store
            )));
        }
        Standing::Origin { epoch: 0, .. } if !is_new => {
            return Err(own_versions());
        }
        Standing::Origin { epoch: 1.., .. } => {
            return Err(Error::refused(format!(
                "this store was promoted with epoch {}, so it follows nobody. If another store has its place: copy there \
                 what only this one has (`platter push NAME {address}`), and follow with a new store (`platter init`)",
                present.epoch()
            )));
        }
        Standing::Replaced { by, .. } if *by != told.store => return Err(refused_for(present)),
        // New, or after its origin or itself was replaced by this one.
        _ => (new, Action::BecomeFollower { of: told.store.clone() }),
    };
    Ok(Some(StandingChange { standing: Standing::Follower(Box::new(following)), action, used: Vec::new() }))
}

/// Refuses an epoch after which followers could not be promoted for ever.
pub(super) fn refuse_last(epoch: u64) -> Result<()> {
    match epoch {
        0..=Standing::FOLLOWED_EPOCH_MAX => Ok(()),
        epoch => Err(Error::corrupt(format!("the origin names the impossible epoch {epoch}"))),
    }
}

fn refused_for(standing: &Standing) -> Error {
    standing.refusal().unwrap_or_else(|| Error::bug("a standing that refuses nothing"))
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something was entered; there may be more.
    More,
    /// The store is up to date.
    Idle,
}

/// A follower and its origin.
pub(super) struct Followed {
    place: StorePlace,
    /// Open while there is something to enter; it holds the store's lock.
    writer: Option<Arc<Store>>,
    origin: OriginStore,
    pub(super) feed: Feed,
    pub(super) following: Following,
    id: String,
    accept_loss: bool,
    retried: Instant,
    /// Whether an origin that was replaced by this store is expected.
    pub(super) is_promoting: bool,
}

impl Followed {
    pub(super) fn new(
        place: StorePlace,
        origin: OriginStore,
        source: OpenStore,
        following: Following,
    ) -> Result<Self> {
        let here = Store::open_reader(&place)?;
        let id = here.id().to_string();
        refuse_other_key(source.domain()?, here.domain())?;
        Ok(Self {
            place,
            writer: None,
            origin,
            feed: Feed::new(source)?,
            following,
            id,
            accept_loss: false,
            retried: Instant::now() - RETRY_EVERY,
            is_promoting: false,
        })
    }

    /// Uses a store that is open for writing.
    pub(super) fn with_writer(mut self, writer: Arc<Store>) -> Self {
        self.writer = Some(writer);
        self
    }

    /// Asks for changes and enters them.
    pub(super) fn step(&mut self, progress: &dyn Progress) -> Result<Step> {
        let done = self.try_step(progress);
        let keeps = matches!(done, Ok(Step::More)) || self.is_promoting;
        if !keeps {
            self.writer = None;
        }
        done
    }

    fn try_step(&mut self, progress: &dyn Progress) -> Result<Step> {
        let reply = self.ask(self.following.position.clone())?;
        let next = reply.next.clone().ok_or_else(|| Error::corrupt("the origin did not name a position"))?;
        self.following.last = reply.last;
        if reply.changes.is_empty() {
            if next.number != reply.last {
                let (sent, last) = (next.number, reply.last);
                return Err(Error::corrupt(format!(
                    "the origin has change {last}, and sends none after {sent}"
                )));
            }
            return self.idle(&reply, progress);
        }
        let changes = parsed(&reply.changes)?;
        let batch = match reply.begins {
            true => self.batch_of_copy(changes, next, reply.last, progress)?,
            false => {
                check_chain(&changes, self.following.position.as_ref(), &next)?;
                let rows = net_of(&changes).into_values().collect();
                let changes = changes.into_iter().map(|change| change.record).collect();
                Batch { rows, changes, position: Some(next) }
            }
        };
        self.enter(batch, progress)?;
        Ok(Step::More)
    }

    /// Nothing is new: tries again what was left out, and looks whether the origin still is one.
    fn idle(&mut self, reply: &ReplicaReply, progress: &dyn Progress) -> Result<Step> {
        if !self.following.left_out.is_empty() && self.retried.elapsed() >= RETRY_EVERY {
            self.retried = Instant::now();
            let rows = self.following.left_out.iter().map(|out| RowChange::from_json(&out.row));
            let rows = rows.collect::<Result<Vec<_>>>()?;
            let before = self.following.left_out.clone();
            self.enter(Batch { rows, ..Batch::default() }, progress)?;
            if self.following.left_out != before {
                return Ok(Step::More);
            }
        }
        match &reply.standing {
            Standing::Replaced { by, .. } if *by == self.id && !self.is_promoting => Err(Error::refused(
                "the origin was told that this store replaces it, but that was not completed: `platter promote` does it",
            )),
            Standing::Replaced { by, address, epoch, .. } if *by != self.id => {
                let (store, address) = (by.clone(), address.clone());
                self.remember(Successor { store, address: address.clone(), epoch: *epoch })?;
                Err(Error::refused(format!(
                    "the origin was replaced by the store {by}{}: follow that one",
                    if address.is_empty() { String::new() } else { format!(" at {address}") }
                )))
            }
            _ => Ok(Step::Idle),
        }
    }

    /// Makes it durable that another store replaced the origin, for a promotion of this one.
    fn remember(&mut self, successor: Successor) -> Result<()> {
        if self.is_promoting || self.following.successor.as_ref() == Some(&successor) {
            return Ok(());
        }
        self.following.successor = Some(successor);
        let standing = Standing::Follower(Box::new(self.following.clone()));
        let change = StandingChange { standing, action: Action::NoteStanding {}, used: Vec::new() };
        let store = match &self.writer {
            Some(writer) => writer.clone(),
            None => Arc::new(Store::open_reader(&self.place)?),
        };
        store.change_standing(|_, _| Ok(Some(change))).map(drop)
    }

    fn ask(&mut self, position: Option<platter_records::ReplicaPosition>) -> Result<ReplicaReply> {
        let follower = Follower {
            id: self.id.clone(),
            name: default_holder(),
            address: self.following.address.clone(),
            number: self.following.position.as_ref().map_or(0, |position| position.number),
            seen_unix_ms: unix_ms(),
        };
        let reply = self.origin.changes_for_follower(&ReplicaRequest { follower, position })?;
        let following = &mut self.following;
        if reply.store != following.origin {
            return Err(Error::refused(format!(
                "the store at {} is {} now, and this store follows {}",
                following.access.address, reply.store, following.origin
            )));
        }
        match &reply.standing {
            Standing::Follower(_) => {
                return Err(Error::refused(format!("the origin is a {}", reply.standing.summary())));
            }
            Standing::Origin { epoch, .. } if *epoch < following.epoch => {
                return Err(Error::refused(format!(
                    "the origin has epoch {epoch}, and had {} before: it was restored from a backup; nothing was changed \
                     here",
                    following.epoch
                )));
            }
            Standing::Origin { epoch, former, .. } => {
                refuse_last(*epoch)?;
                (following.epoch, following.former) = (*epoch, former.clone());
            }
            Standing::Replaced { .. } => {}
        }
        match &reply.diverged {
            Some(why) => Err(Error::refused(format!(
                "the origin was restored from a backup or lost changes ({why}); nothing was changed here: `platter promote` makes \
                 this store the origin, or follow with a new store"
            ))),
            None => Ok(reply),
        }
    }

    /// Makes a batch of the difference to a copy of all rows.
    fn batch_of_copy(
        &mut self,
        mut changes: Vec<ReplicatedChange>,
        mut next: platter_records::ReplicaPosition,
        mut last: u64,
        progress: &dyn Progress,
    ) -> Result<Batch> {
        check_chain(&changes, None, &next)?;
        let mut bytes = 0;
        while next.number < last {
            let reply = self.ask(Some(next.clone()))?;
            bytes += reply.changes.iter().map(String::len).sum::<usize>();
            if bytes > COPY_BYTES_MAX {
                return Err(Error::corrupt(
                    "the origin's changes since the copy of all rows have more than 4 GiB",
                ));
            }
            let more = parsed(&reply.changes)?;
            let after = reply.next.filter(|_| !reply.begins && !more.is_empty());
            let after = after.ok_or_else(|| Error::transient("the origin's log was replaced meanwhile"))?;
            check_chain(&more, Some(&next), &after)?;
            changes.extend(more);
            (next, last) = (after, reply.last);
        }
        let own = self.writer()?.replicated_rows()?;
        let (rows, lost) = (difference(&own, &changes), lost(&own, &changes)?);
        if !lost.is_empty() && !self.accept_loss {
            let names: Vec<String> = lost.iter().map(Lost::to_string).collect();
            return Err(Error::refused(format!(
                "the origin lacks versions that only this store has ({}): {}; nothing was changed here. Copy them first \
                 (`platter push`), or remove them with --accept-loss",
                lost.len(),
                names.join(", ")
            )));
        }
        for Lost { name, .. } in &lost {
            progress
                .note(&format!("removed {name}, which the origin does not have; its data stays until `gc`"));
        }
        Ok(Batch { rows, changes: Vec::new(), position: Some(next) })
    }

    fn writer(&mut self) -> Result<Arc<Store>> {
        if let Some(writer) = &self.writer {
            return Ok(writer.clone());
        }
        let writer = Arc::new(Store::open_writer(&self.place)?);
        self.writer = Some(writer.clone());
        Ok(writer)
    }

    fn enter(&mut self, batch: Batch, progress: &dyn Progress) -> Result<()> {
        let store = self.writer()?;
        let before = self.following.clone();
        let mut entering = Entering {
            store: &store,
            feed: &mut self.feed,
            origin: &self.origin,
            following: &mut self.following,
            progress,
        };
        match entering.enter(batch) {
            Ok(versions) => {
                versions.iter().for_each(|name| progress.note(&format!("copied {name}")));
                Ok(())
            }
            Err(error) => {
                // The catalog says what was entered.
                self.following = match store.standing() {
                    Ok(Standing::Follower(following)) => *following,
                    _ => before,
                };
                Err(error)
            }
        }
    }
}

fn parsed(texts: &[String]) -> Result<Vec<ReplicatedChange>> {
    texts.iter().map(|text| ReplicatedChange::parse(text)).collect()
}

/// Wakes the follower when the origin reports a change.
#[derive(Default)]
struct News {
    came: Mutex<bool>,
    woken: Condvar,
}

impl News {
    fn wait(&self, time_max: Duration) {
        let mut came = self.came.lock();
        if !*came {
            let _ = self.woken.wait_for(&mut came, time_max);
        }
        *came = false;
    }
}

impl Listener for News {
    const EVENTS: &'static [&'static [u8]] = &[b"version", b"forget", b"rename", b"edit-lock", b"hoard"];

    fn heard(&self) -> Result<()> {
        *self.came.lock() = true;
        self.woken.notify_all();
        Ok(())
    }
}
