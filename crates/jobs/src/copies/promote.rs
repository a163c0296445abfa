//! Makes a follower the origin, and tells the store that it replaces (`platter promote`).
//!
//! The order: the locks of this store, so that nothing is entered meanwhile; then the former origin, which accepts no more changes
//! from then on; then the changes that it still had; then the commit here. A crash after the former origin was told leaves it
//! replaced by this store with this epoch: the next attempt finds that and completes it. A store counts as told only after it said
//! itself by whom it is replaced.

use std::path::PathBuf;
use std::sync::Arc;

use platter_api::{FenceRequest, StandingReply};
use platter_client::{OriginStore, ServerOptions};
use platter_image::{Error, ErrorKind, Result};
use platter_records::{Action, Following, FormerOrigin, OriginAccess, Standing, StoreId, VersionName};
use platter_store::{StandingChange, Store, StorePlace};
use platter_transport::Trust;
use serde::Serialize;

use super::follow::{Followed, Step};
use crate::Progress;

/// Maximum number of steps in which the last changes of the former origin are copied.
const LAST_STEPS_MAX: u32 = 10_000;

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
        standing => return tell_again(&store, &standing, request),
    };
    let mut promoting = Promoting { request, store, progress, epoch: following.epoch + 1, following };
    let told = !request.without_origin;
    if told {
        promoting.fence()?;
    }
    promoting.commit(told)
}

struct Promoting<'a> {
    request: &'a PromoteRequest,
    store: Arc<Store>,
    progress: &'a dyn Progress,
    epoch: u64,
    following: Following,
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

    /// Makes sure that the former origin accepts no more changes, and copies its last ones.
    fn fence(&mut self) -> Result<()> {
        let options = self.options()?;
        let origin = OriginStore::open(&options)?;
        let id = self.store.id().to_string();
        let unreachable = |error: Error| match error.kind() {
            ErrorKind::Transient => error.within(
                "the origin cannot be told, so nothing was changed; if it is lost, use --without-origin",
            ),
            _ => error,
        };
        let told = origin.standing().map_err(unreachable)?;
        self.check(&told)?;
        if !told.standing.knows_successor(&id, self.epoch) {
            let request = FenceRequest { by: id.clone(), epoch: self.epoch, address: self.address() };
            let fenced = origin.fence(&request);
            // What it says of itself counts, whatever the answer was.
            let now = origin.standing().map_err(unreachable)?;
            if now.store != self.following.origin || !now.standing.knows_successor(&id, self.epoch) {
                fenced?;
                return Err(Error::refused(format!(
                    "the origin does not accept this store as its successor: it is {}",
                    now.standing.summary()
                )));
            }
        }
        let mut followed =
            Followed::new(self.request.store.clone(), origin, &options, self.following.clone())?
                .with_writer(self.store.clone());
        followed.is_promoting = true;
        for _ in 0..LAST_STEPS_MAX {
            match followed.step(self.progress) {
                Ok(Step::More) => {}
                Ok(Step::Idle) => break,
                Err(error) => {
                    let text = error.with_causes();
                    self.progress
                        .note(&format!("the last changes of the former origin could not be copied: {text}"));
                    break;
                }
            }
        }
        self.following = followed.following;
        Ok(())
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
            Standing::Replaced { by, epoch, .. } if *by == self.store.id().to_string() => {
                self.epoch = *epoch;
                Ok(())
            }
            Standing::Origin { epoch, .. } => {
                self.epoch = self.epoch.max(epoch + 1);
                Ok(())
            }
            other => Err(Error::refused(format!(
                "CONFLICT: the origin is {}, so this store must not replace it",
                other.summary()
            ))),
        }
    }

    fn commit(self, told: bool) -> Result<PromoteReport> {
        let (address, epoch) = (self.address(), self.epoch);
        let Following { origin, access, mut former, announced, left_out, position, last, .. } =
            self.following;
        let mut missing: Vec<String> = announced.iter().map(VersionName::to_string).collect();
        missing.extend(left_out.into_iter().map(|out| out.what));
        let former_address = access.address.clone();
        former.retain(|it| it.store != origin);
        former.push(FormerOrigin { store: origin, access, told });
        let standing = Standing::Origin { epoch, address, former, missing: missing.clone() };
        let change = StandingChange { standing, action: Action::Promote { epoch }, used: announced };
        self.store.change_standing(|present, _| match present {
            Standing::Follower(_) => Ok(Some(change)),
            other => Err(Error::refused(format!("this store is {} meanwhile", other.summary()))),
        })?;
        let up_to = position.map_or(0, |position| position.number);
        Ok(PromoteReport { epoch, former: former_address, told, up_to, last: last.max(up_to), missing })
    }
}

/// Tells the former origin of a store that was promoted before.
fn tell_again(store: &Store, standing: &Standing, request: &PromoteRequest) -> Result<PromoteReport> {
    let Standing::Origin { epoch: epoch @ 1.., former, missing, .. } = standing else {
        return Err(Error::refused(format!("this store is no follower: it is {}", standing.summary())));
    };
    let Some(last) = former.last().filter(|it| !it.told && !request.without_origin) else {
        return Err(Error::refused(format!("this store is {} already", standing.summary())));
    };
    let (told, notes) = tell_former(standing, store.id());
    if let Some(note) = notes.first() {
        return Err(Error::refused(note.clone()));
    }
    if !told.contains(&last.store) {
        return Err(Error::transient(format!(
            "{} is still unreachable; `serve` goes on trying",
            last.access.address
        )));
    }
    note_told(store, &told)?;
    let (former, missing) = (last.access.address.clone(), missing.clone());
    Ok(PromoteReport { epoch: *epoch, former, told: true, up_to: 0, last: 0, missing })
}

/// Records that these stores know of their replacement.
///
/// # Errors
/// As [`Store::change_standing`].
pub fn note_told(store: &Store, told: &[String]) -> Result<()> {
    let change = |present: &Standing| {
        let standing = present.with_told(told)?;
        Some(StandingChange { standing, action: Action::NoteStanding {}, used: Vec::new() })
    };
    store.change_standing(|present, _| Ok(change(present))).map(drop)
}

/// Tells the stores that this one, or its predecessors, have replaced and that do not know it yet. Returns the ids of those that
/// confirmed it, and what a person must know.
pub fn tell_former(standing: &Standing, id: StoreId) -> (Vec<String>, Vec<String>) {
    let (mut told, mut notes) = (Vec::new(), Vec::new());
    let Some((by, epoch, address, former)) = standing.successor(&id.to_string()) else {
        return (told, notes);
    };
    for known in former.iter().filter(|known| !known.told) {
        let request = FenceRequest { by: by.clone(), epoch, address: address.clone() };
        match tell(known, &request) {
            Ok(()) => told.push(known.store.clone()),
            Err(error) if error.kind() == ErrorKind::Refused => {
                notes.push(format!("{}: {}", known.access.address, error.with_causes()));
            }
            // It is down; it is told when it returns.
            Err(_) => {}
        }
    }
    (told, notes)
}

fn tell(known: &FormerOrigin, request: &FenceRequest) -> Result<()> {
    let origin = OriginStore::open(&options_of(&known.access)?)?;
    let fenced = origin.fence(request);
    let now = origin.standing()?;
    // A follower accepts no changes, and learns from its origin.
    let is_follower = matches!(now.standing, Standing::Follower(_));
    if now.store == known.store && (is_follower || now.standing.knows_successor(&request.by, request.epoch)) {
        return Ok(());
    }
    fenced?;
    Err(Error::refused(format!("it does not know its successor: it is {}", now.standing.summary())))
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
