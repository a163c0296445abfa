//! Makes a follower the origin, and tells the store that it replaces (`platter promote`).
//!
//! The order: the locks of this store, so that nothing is entered meanwhile; then the former origin, which accepts no more changes
//! from then on; then the changes that it still had; then the commit here. Before anything else, a random id of this promotion is
//! made durable here: a copy of this store that is promoted, too, has another one, which the former origin notices. A crash after the former origin was told leaves it
//! replaced by this store with this epoch: the next attempt finds that and completes it. A store counts as told only after it said
//! itself by whom it is replaced.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use platter_api::{FenceRequest, StandingReply};
use platter_client::{OriginStore, ServerOptions};
use platter_image::{Error, ErrorKind, Result};
use platter_records::{
    Action, Following, FormerAnswers, FormerOrigin, OriginAccess, Promotion, Standing, StoreId, Successor,
    Version, VersionName,
};
use platter_store::{StandingChange, Store, StorePlace};
use platter_transport::{Trust, random_hex};
use serde::Serialize;

use platter_fetch::{OpenStore, StoreLocation};

use super::follow::{Followed, ONCE_RETRY_MAX, Step, refuse_last};
use crate::Progress;

/// Maximum number of steps in which the last changes of the former origin are copied.
const LAST_STEPS_MAX: u32 = 10_000;

/// The former origin may have been told, and nothing was committed here.
const NOT_KNOWN: &str = "it is not known whether the origin was told, so this store still follows it: \
    repeat `platter promote`, or with --without-origin if that store is lost";
/// The former origin was told, and nothing was committed here.
const NOT_COPIED: &str = "the former origin accepts no more changes, and its last ones could not be copied, so this store still follows it: \
                          repeat `platter promote`, or with --without-origin if that store is lost";

/// The request to promote a follower.
#[derive(Clone, Debug)]
pub struct PromoteRequest {
    /// The store that follows.
    pub store: StorePlace,
    /// The origin, if not as it was followed.
    pub origin: Option<ServerOptions>,
    /// The address at which this store will be served; empty: as the follower said.
    pub address: String,
    /// Do not tell the former origin now: it is lost, or unreachable.
    pub without_origin: bool,
    /// Take the next epoch if another follower was promoted before: that store is lost.
    pub supersede: bool,
}

/// The result of a promotion.
#[derive(Clone, Debug, Serialize)]
pub struct PromoteReport {
    /// The new epoch.
    pub epoch: u64,
    /// The address of the former origin.
    pub former: String,
    /// Whether the former origin confirmed that it accepts no more changes.
    pub told: bool,
    /// Number of the last change of the former origin that is here.
    pub up_to: u64,
    /// Number of the last change that this store knows the former origin to have made.
    pub last: u64,
    /// What was known and had not arrived.
    pub missing: Vec<String>,
}

/// Promotes a follower. A store that was promoted before only tells the former origin.
///
/// # Errors
/// `Refused` when another process follows with this store, it is no follower, or the origin was replaced by another store; `Transient`
/// when the origin is unreachable, or another process writes this store. Nothing is changed here then.
pub fn promote(request: &PromoteRequest, progress: &dyn Progress) -> Result<PromoteReport> {
    let _alone = Store::lock_following(&request.store)?;
    let store = Arc::new(Store::open_writer(&request.store)?);
    let following = match store.standing()? {
        Standing::Follower(following) => *following,
        standing if request.supersede => return supersede(&store, &standing, request),
        standing => return tell_again(&store, &standing, request),
    };
    let (epoch, only_there) = (following.epoch + 1, Vec::new());
    let mut promoting = Promoting { request, store, progress, epoch, following, only_there };
    promoting.begin()?;
    match request.without_origin {
        true => promoting.ask_anyway()?,
        false => promoting.fence()?,
    }
    promoting.commit(!request.without_origin)
}

struct Promoting<'a> {
    request: &'a PromoteRequest,
    store: Arc<Store>,
    progress: &'a dyn Progress,
    epoch: u64,
    following: Following,
    /// Versions of the former origin that are not here.
    only_there: Vec<VersionName>,
}

impl Promoting<'_> {
    fn options(&self) -> Result<ServerOptions> {
        self.request.origin.clone().map_or_else(|| options_of(&self.following.access), Ok)
    }

    fn address(&self) -> String {
        match self.request.address.is_empty() {
            true => self.following.address.clone(),
            false => self.request.address.clone(),
        }
    }

    /// Makes a random id of this promotion durable, unless an earlier attempt did.
    fn begin(&mut self) -> Result<()> {
        if !self.following.promotion.is_empty() {
            return Ok(());
        }
        self.following.promotion = random_hex::<16>()?;
        let standing = Standing::Follower(Box::new(self.following.clone()));
        let change = StandingChange { standing, action: Action::NoteStanding {}, used: Vec::new() };
        self.store.change_standing(|_, _| Ok(Some(change))).map(drop)
    }

    fn promotion(&self) -> Promotion {
        let (by, id) = (self.store.id().to_string(), self.following.promotion.clone());
        Promotion { by, epoch: self.epoch, address: self.address(), id }
    }

    /// Asks an origin that counts as lost whether another store has replaced it. It is not told.
    fn ask_anyway(&mut self) -> Result<()> {
        let options = self.options()?;
        let answer = OriginStore::open(&options).and_then(|origin| Ok((origin.standing()?, origin)));
        let Ok((told, origin)) = answer else { return self.check_successor() };
        self.check(&told)?;
        match self.only_at(&origin) {
            Ok(versions) => self.only_there = versions,
            Err(error) => {
                let why = error.with_causes();
                self.progress.note(&format!("warning: the origin does not list its versions: {why}"));
            }
        }
        self.progress.note(&format!(
            "warning: the origin at {} answers: without --without-origin, its last changes would be copied first",
            options.address
        ));
        Ok(())
    }

    /// Checks what the origin, which does not answer, said when it did: another store may have replaced it.
    fn check_successor(&mut self) -> Result<()> {
        match &self.following.successor {
            Some(other) if self.request.supersede => self.epoch = self.epoch.max(other.epoch + 1),
            Some(other) => {
                return Err(Error::refused(format!(
                    "the origin was replaced by {other}, as it said while it answered: follow that store, or use --supersede \
                     if it is lost"
                )));
            }
            None => {}
        }
        Ok(())
    }

    /// Makes sure that the former origin accepts no more changes, and copies its last ones.
    fn fence(&mut self) -> Result<()> {
        let options = self.options()?;
        let origin = OriginStore::open(&options)?;
        let unreachable = |error: Error| match error.kind() {
            ErrorKind::Transient => error.within(
                "the origin cannot be told, so nothing was changed; if it is lost, use --without-origin",
            ),
            _ => error,
        };
        let told = origin.standing().map_err(unreachable)?;
        self.check(&told)?;
        let promotion = self.promotion();
        if !told.standing.knows_successor(&promotion) {
            let fenced = origin.fence(&request_of(&promotion));
            // What it says of itself counts, whatever the answer was.
            let now = origin.standing().map_err(|error| error.within(NOT_KNOWN))?;
            if now.store != self.following.origin || !now.standing.knows_successor(&promotion) {
                fenced?;
                return Err(Error::refused(format!(
                    "the origin does not accept this store as its successor: it is {}",
                    now.standing.summary()
                )));
            }
        }
        let source = OpenStore::open_reader(&StoreLocation::from(options))
            .map_err(|error| error.within(NOT_COPIED))?;
        let mut followed =
            Followed::new(self.request.store.clone(), origin.clone(), source, self.following.clone())?
                .with_writer(self.store.clone());
        followed.is_promoting = true;
        followed.feed.give_up_after(ONCE_RETRY_MAX);
        for _ in 0..LAST_STEPS_MAX {
            match followed.step(self.progress) {
                Ok(Step::More) => {}
                Ok(Step::Idle) => break,
                Err(error) if error.kind() == ErrorKind::Refused => {
                    let text = error.with_causes();
                    self.progress
                        .note(&format!("the last changes of the former origin cannot be copied: {text}"));
                    break;
                }
                Err(error) => return Err(error.within(NOT_COPIED)),
            }
        }
        self.following = followed.following;
        self.only_there = self.only_at(&origin).map_err(|error| error.within(NOT_COPIED))?;
        Ok(())
    }

    /// Returns the versions that the former origin lists and this store never had. What did not arrive must not depend on the log that was
    /// followed: a rebuilt origin has another one.
    fn only_at(&self, origin: &OriginStore) -> Result<Vec<VersionName>> {
        let listed = origin.versions()?;
        // Versions that were forgotten or renamed here arrived as well, and a rebuilt origin may list them again.
        let known = self.store.versions()?.into_iter().chain(self.store.former()?);
        let identity = |version: Version| (version.name, version.record.score, version.record.time_unix_ms);
        let known: BTreeSet<_> = known.map(identity).collect();
        let only_there = listed.into_iter().map(identity).filter(|version| !known.contains(version));
        Ok(only_there.map(|(name, ..)| name).collect())
    }

    /// Checks that the origin may be replaced by this store.
    fn check(&mut self, told: &StandingReply) -> Result<()> {
        if told.store != self.following.origin {
            return Err(Error::refused(format!(
                "the store at {} is {}, and this store follows {}",
                self.following.access.address, told.store, self.following.origin
            )));
        }
        match &told.standing {
            // An earlier attempt ended after that.
            Standing::Replaced { by, epoch, promotion, .. }
                if *by == self.store.id().to_string() && *promotion == self.following.promotion =>
            {
                self.epoch = *epoch;
                Ok(())
            }
            Standing::Origin { epoch, .. } => {
                refuse_last(*epoch)?;
                self.epoch = self.epoch.max(epoch + 1);
                Ok(())
            }
            Standing::Replaced { epoch, .. } if self.request.supersede => {
                refuse_last(*epoch)?;
                self.epoch = self.epoch.max(epoch + 1);
                Ok(())
            }
            Standing::Replaced { by, address, epoch, .. } => {
                let other = Successor { store: by.clone(), address: address.clone(), epoch: *epoch };
                Err(Error::refused(format!(
                    "CONFLICT: the origin was replaced already, by {other}: follow that store, or use --supersede if it is lost"
                )))
            }
            Standing::Follower(of) => Err(Error::refused(format!(
                "CONFLICT: the origin follows {}, so this store must not replace it",
                of.access.address.escape_debug()
            ))),
        }
    }

    fn commit(self, told: bool) -> Result<PromoteReport> {
        let (address, epoch) = (self.address(), self.epoch);
        let Following { origin, access, mut former, announced, left_out, position, last, promotion, .. } =
            self.following;
        let names: BTreeSet<VersionName> = announced.into_iter().chain(self.only_there).collect();
        let mut missing: Vec<String> = names.iter().map(VersionName::to_string).collect();
        let rest = left_out.into_iter().map(|out| out.what).filter(|what| !missing.contains(what));
        missing.extend(rest.collect::<Vec<_>>());
        let former_address = access.address.clone();
        // This store may have been replaced by its origin before.
        let own = self.store.id().to_string();
        former.retain(|it| it.store != origin && it.store != own);
        former.push(FormerOrigin { store: origin, access, told });
        let missing_names = missing.clone();
        let standing = Standing::Origin {
            epoch,
            address,
            former,
            missing: missing_names,
            promotion,
            conflicts: Vec::new(),
        };
        let change =
            StandingChange { standing, action: Action::Promote { epoch }, used: names.into_iter().collect() };
        self.store.change_standing(|present, _| match present {
            Standing::Follower(_) => Ok(Some(change)),
            other => Err(Error::refused(format!("this store is {} meanwhile", other.summary()))),
        })?;
        let up_to = position.map_or(0, |position| position.number);
        Ok(PromoteReport { epoch, former: former_address, told, up_to, last: last.max(up_to), missing })
    }
}

/// Takes the next epoch for a store that was promoted before, because another one was, too, and that one is lost. The
/// epoch is made durable here first; a crash after that leaves a store that tells the former origin of it like any other.
fn supersede(store: &Store, standing: &Standing, request: &PromoteRequest) -> Result<PromoteReport> {
    let Standing::Origin { epoch: own @ 1.., address, former, missing, promotion, .. } = standing else {
        return tell_again(store, standing, request);
    };
    let Some(last) = former.last() else { return tell_again(store, standing, request) };
    let options = request.origin.clone().map_or_else(|| options_of(&last.access), Ok)?;
    let this = Promotion {
        by: store.id().to_string(),
        epoch: *own,
        address: address.clone(),
        id: promotion.clone(),
    };
    let rival_epoch = match OriginStore::open(&options).and_then(|origin| origin.standing()) {
        Ok(told) if told.store != last.store => {
            return Err(Error::refused(format!(
                "the store at {} is {}, and this store replaced {}",
                options.address, told.store, last.store
            )));
        }
        Ok(told) => match &told.standing {
            Standing::Replaced { epoch, .. } if !told.standing.knows_successor(&this) || *epoch > *own => {
                *epoch
            }
            _ => return tell_again(store, standing, request),
        },
        // With --without-origin, what is known of the conflict decides.
        Err(error) if !request.without_origin => {
            return Err(error.within(
                "the former origin does not say by whom it was replaced, so nothing was changed; if it is lost, add \
                 --without-origin",
            ));
        }
        Err(_) if standing.conflicts().is_empty() => return tell_again(store, standing, request),
        Err(_) => *own,
    };
    refuse_last(rival_epoch)?;
    let epoch = rival_epoch.max(*own) + 1;
    let address = match request.address.is_empty() {
        true => address.clone(),
        false => request.address.clone(),
    };
    let next = Standing::Origin {
        epoch,
        address,
        former: former.iter().map(|it| FormerOrigin { told: false, ..it.clone() }).collect(),
        missing: missing.clone(),
        promotion: random_hex::<16>()?,
        conflicts: Vec::new(),
    };
    let change =
        StandingChange { standing: next.clone(), action: Action::Promote { epoch }, used: Vec::new() };
    store.change_standing(|present, _| match present == standing {
        true => Ok(Some(change)),
        false => Err(Error::refused(format!("this store is {} meanwhile: try again", present.summary()))),
    })?;
    let answers = tell_former(&next, store.id(), false);
    note_answers(store, &answers)?;
    let told = answers.told.contains(&last.store);
    let (former, missing) = (last.access.address.clone(), missing.clone());
    Ok(PromoteReport { epoch, former, told, up_to: 0, last: 0, missing })
}

/// Tells the former origin of a store that was promoted before.
fn tell_again(store: &Store, standing: &Standing, request: &PromoteRequest) -> Result<PromoteReport> {
    let (epoch, former, missing) = match standing {
        Standing::Origin { epoch: epoch @ 1.., former, missing, .. } => (epoch, former, missing),
        Standing::Origin { .. } => {
            return Err(Error::refused("this store follows no origin, so there is nothing to promote"));
        }
        other => {
            return Err(Error::refused(format!("this store is no follower: it was {}", other.summary())));
        }
    };
    let Some(last) = former.last().filter(|it| !it.told && !request.without_origin) else {
        return Err(already(standing, request.supersede));
    };
    let answers = tell_former(standing, store.id(), false);
    note_answers(store, &answers)?;
    if !answers.conflicts.is_empty() {
        let known = standing.with_answers(&answers);
        let is_accepted = request.supersede && answers.told.contains(&last.store);
        return Err(already(known.as_ref().unwrap_or(standing), is_accepted));
    }
    if let Some(note) = answers.notes.first() {
        return Err(Error::refused(note.clone()));
    }
    if !answers.told.contains(&last.store) {
        return Err(Error::transient(format!(
            "{} is still unreachable; `serve` goes on trying",
            last.access.address
        )));
    }
    let (former, missing) = (last.access.address.clone(), missing.clone());
    Ok(PromoteReport { epoch: *epoch, former, told: true, up_to: 0, last: 0, missing })
}

/// Refuses a second promotion. Of a conflict, it says how it ends. `is_accepted`: the former origin has no later successor than this
/// store, so a next epoch would change nothing.
fn already(standing: &Standing, is_accepted: bool) -> Error {
    let epoch = standing.epoch();
    Error::refused(match standing.conflicts() {
        [] => format!("this store is the origin already, with epoch {epoch}"),
        conflicts if is_accepted => format!(
            "this store is the origin already, with epoch {epoch}, and no later one is known, so there is nothing to supersede. Still remembered: {}. Stores that report this forget it once they follow this one; stop the \
             other store",
            conflicts.join("; ")
        ),
        conflicts => format!(
            "this store is the origin already, with epoch {epoch}, and another store was promoted in its place ({}). If that \
             one is lost, `platter promote --supersede` takes the next epoch; otherwise stop one of them",
            conflicts.join("; ")
        ),
    })
}

/// Records what the stores answered that were replaced.
fn note_answers(store: &Store, answers: &FormerAnswers) -> Result<()> {
    let change = |present: &Standing| {
        let standing = present.with_answers(answers)?;
        Some(StandingChange { standing, action: Action::NoteStanding {}, used: Vec::new() })
    };
    store.change_standing(|present, _| Ok(change(present))).map(drop)
}

/// Tells the stores that this one, or its predecessors, have replaced and that do not know it yet; with `all`, also those that
/// confirmed it before: an older copy of one may have taken its place.
pub fn tell_former(standing: &Standing, id: StoreId, all: bool) -> FormerAnswers {
    let mut answers = FormerAnswers::default();
    let Some((promotion, former)) = standing.successor(&id.to_string()) else { return answers };
    let is_origin = matches!(standing, Standing::Origin { .. });
    // A store that was replaced remembers a conflict until it follows its successor.
    answers.is_complete = all && is_origin;
    for known in former.iter().filter(|known| all || !known.told) {
        match tell(known, &promotion) {
            Ok(now) => {
                let conflict =
                    |text: &String| format!("{} says: {text}", known.access.address.escape_debug());
                let is_later = is_origin && now.epoch() > promotion.epoch;
                match now.conflicts() {
                    [] if is_later => answers.conflicts.push(conflict(&format!(
                        "CONFLICT: it was {}, and this store has epoch {}",
                        now.summary(),
                        promotion.epoch
                    ))),
                    conflicts => answers.conflicts.extend(conflicts.iter().map(conflict)),
                }
                // A follower accepts no changes, and learns from its origin.
                if matches!(now, Standing::Follower(_)) || now.knows_successor(&promotion) {
                    answers.told.push(known.store.clone());
                } else if now.conflicts().is_empty() {
                    let what = format!("it does not know its successor: it is {}", now.summary());
                    answers.notes.push(format!("{}: {what}", known.access.address.escape_debug()));
                }
            }
            Err(error) => {
                answers.is_complete = false;
                // One that is down is told when it returns.
                if error.kind() == ErrorKind::Refused {
                    let address = known.access.address.escape_debug();
                    answers.notes.push(format!("{address}: {}", error.with_causes()));
                }
            }
        }
    }
    answers
}

/// Tells a store of a promotion unless it knows that. Returns what it is then.
fn tell(known: &FormerOrigin, promotion: &Promotion) -> Result<Standing> {
    let origin = OriginStore::open(&options_of(&known.access)?)?;
    let asked = |standing: StandingReply| match standing.store == known.store {
        true => Ok(standing.standing),
        false => Err(Error::refused(format!("another store is there now: {}", standing.store))),
    };
    let before = asked(origin.standing()?)?;
    if matches!(before, Standing::Follower(_)) || before.knows_successor(promotion) {
        return Ok(before);
    }
    let fenced = origin.fence(&request_of(promotion));
    let now = asked(origin.standing()?)?;
    match now.knows_successor(promotion) || !now.conflicts().is_empty() {
        true => Ok(now),
        false => fenced.map(|_| now),
    }
}

fn request_of(promotion: &Promotion) -> FenceRequest {
    let Promotion { by, epoch, address, id } = promotion.clone();
    FenceRequest { by, epoch, address, promotion: id }
}

/// Returns how to connect to an origin that was followed.
///
/// # Errors
/// `Refused` for an invalid address or fingerprint; `Io` when the file with the token cannot be read.
pub fn options_of(access: &OriginAccess) -> Result<ServerOptions> {
    let token = match access.token_file.as_str() {
        "" => None,
        file => Some(
            std::fs::read_to_string(file)
                .map_err(|error| Error::io(format!("reading the access token in {file}"), error))?
                .trim()
                .to_owned(),
        ),
    };
    let trust = match (access.authorities.as_str(), access.fingerprint.as_str()) {
        ("", "") => Trust::System,
        ("", fingerprint) => Trust::fingerprint(fingerprint)?,
        (file, _) => Trust::Authorities(PathBuf::from(file)),
    };
    Ok(ServerOptions { address: access.address.parse()?, token, trust })
}
