//! Events for clients that watch: numbered, with the last ones kept, so that a client that reconnects soon misses
//! nothing.
//!
//! Events of the catalog come from its log of changes, so they include changes by other processes. An event's number counts
//! within one run of the origin; another run has another name.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;

use platter_image::Result;
use platter_records::{Action, ChangeRecord, EditLock, ImageName, NumberChoice, VersionName};
use platter_store::Store;
use serde::Serialize;
use tokio::sync::watch;

use crate::access::Principal;
use crate::casts::may_see;
use platter_transport::{random_bytes, random_hex, to_hex};

/// An event's contents.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum EventKind {
    /// A version appeared.
    Version { image: ImageName, number: u64, score: String },
    /// A version was forgotten.
    Forget { image: ImageName, number: u64 },
    /// A version was renamed.
    Rename { from: ImageName, to: ImageName, number: u64 },
    /// The edit lock of an image changed hands, or was released.
    EditLock { image: ImageName, edit_lock: Option<EditLock> },
    /// The hoard has a new revision; boot sets of these images were added or removed.
    Hoard {
        revision: u64,
        #[serde(skip)]
        images: Vec<ImageName>,
    },
    /// An upload began or ended.
    Upload {
        id: String,
        state: &'static str,
        #[serde(skip)]
        owner: String,
    },
    /// A cast began or changed its state.
    Cast {
        id: String,
        version: String,
        state: &'static str,
        /// `None` for a disk without a name.
        #[serde(skip)]
        image: Option<ImageName>,
    },
}

impl EventKind {
    /// Returns the name of the event.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Version { .. } => "version",
            Self::Forget { .. } => "forget",
            Self::Rename { .. } => "rename",
            Self::EditLock { .. } => "edit-lock",
            Self::Hoard { .. } => "hoard",
            Self::Upload { .. } => "upload",
            Self::Cast { .. } => "cast",
        }
    }

    /// Returns what the principal may know of the event. Of a rename between a hidden and a visible name, it sees a new
    /// or a forgotten version.
    pub(crate) fn as_seen_by(&self, who: &Principal) -> Option<Self> {
        match self {
            Self::Version { image, .. } | Self::Forget { image, .. } | Self::EditLock { image, .. } => {
                who.may_read(image).then(|| self.clone())
            }
            Self::Rename { from, to, number } => match (who.may_read(from), who.may_read(to)) {
                (true, true) => Some(self.clone()),
                (true, false) => Some(Self::Forget { image: from.clone(), number: *number }),
                // The client asks for the score by name.
                (false, true) => {
                    Some(Self::Version { image: to.clone(), number: *number, score: String::new() })
                }
                (false, false) => None,
            },
            Self::Hoard { images, .. } => {
                if who.reads_everything() {
                    return Some(self.clone());
                }
                // Its own revision has another number, which it asks for.
                let images: Vec<ImageName> = images.iter().filter(|it| who.may_read(it)).cloned().collect();
                (!images.is_empty()).then_some(Self::Hoard { revision: 0, images })
            }
            Self::Upload { owner, .. } => (who.reads_everything() || *owner == who.id).then(|| self.clone()),
            Self::Cast { image, .. } => may_see(who, image.as_ref()).then(|| self.clone()),
        }
    }
}

/// An event with its number.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) sequence: u64,
    pub(crate) what: EventKind,
}

/// The events of this run.
#[derive(Debug)]
pub(crate) struct Events {
    run: String,
    /// Makes the ids for principals that do not read everything.
    secret: [u8; 32],
    kept_max: usize,
    kept: Mutex<EventLog>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct EventLog {
    events: VecDeque<Arc<Event>>,
    /// Number of the newest event.
    newest: u64,
}

impl Events {
    /// Creates an empty list that keeps at most `kept_max` events.
    ///
    /// # Errors
    /// `Io` when the system has no random bytes.
    pub(crate) fn new(kept_max: usize) -> Result<Self> {
        let (run, secret) = (random_hex::<8>()?, random_bytes::<32>()?);
        Ok(Self { run, secret, kept_max, kept: Mutex::default(), newest: watch::Sender::new(0) })
    }

    /// Adds an event.
    pub(crate) fn add(&self, what: EventKind) {
        let mut kept = self.kept();
        kept.newest += 1;
        let sequence = kept.newest;
        kept.events.push_back(Arc::new(Event { sequence, what }));
        if kept.events.len() > self.kept_max {
            kept.events.pop_front();
        }
        drop(kept);
        self.newest.send_replace(sequence);
    }

    /// Returns the number of the newest event.
    pub(crate) fn newest(&self) -> u64 {
        self.kept().newest
    }

    /// Returns a receiver that changes with every new event.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns at most `count_max` events after the one with this number; `None` when some of them are no longer kept.
    pub(crate) fn after(&self, sequence: u64, count_max: usize) -> Option<Vec<Arc<Event>>> {
        let kept = self.kept();
        let missed = kept.newest.checked_sub(sequence)?;
        let at = kept.events.len().checked_sub(usize::try_from(missed).ok()?)?;
        Some(kept.events.iter().skip(at).take(count_max).cloned().collect())
    }

    /// Returns the number of the newest event up to `sequence` of which the principal may know; 0 when none of them is kept.
    pub(crate) fn newest_seen_by(&self, who: &Principal, sequence: u64) -> u64 {
        if who.reads_everything() {
            return sequence;
        }
        let kept = self.kept();
        let events = kept.events.iter().rev().filter(|event| event.sequence <= sequence);
        let mut seen = events.filter(|event| event.what.as_seen_by(who).is_some());
        seen.next().map_or(0, |event| event.sequence)
    }

    /// Returns the id by which a reconnecting client names an event. Numbers count the events of everybody, so a principal
    /// that does not read everything gets a hash.
    pub(crate) fn id(&self, who: &Principal, sequence: u64) -> String {
        if who.reads_everything() {
            return format!("{}-{sequence}", self.run);
        }
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&sequence.to_le_bytes()).update(who.id.as_bytes());
        format!("{}-{}", self.run, to_hex(&hasher.finalize().as_bytes()[..16]))
    }

    /// Returns the number in such an id; `None` when the id is invalid or of another run, or, for a principal that does not read
    /// everything, when the event is no longer kept.
    pub(crate) fn sequence(&self, who: &Principal, id: &str) -> Option<u64> {
        let (run, text) = id.rsplit_once('-')?;
        if run != self.run {
            return None;
        }
        if who.reads_everything() {
            return text.parse().ok();
        }
        let kept: Vec<u64> = self.kept().events.iter().map(|event| event.sequence).collect();
        [0].into_iter().chain(kept).find(|sequence| self.id(who, *sequence) == id)
    }

    fn kept(&self) -> MutexGuard<'_, EventLog> {
        self.kept.lock()
    }
}

/// Returns the events of these changes of the catalog. `revision` is the hoard's revision if they changed it.
///
/// # Errors
/// When the catalog cannot be read.
pub(crate) fn events_of(
    store: &Store,
    changes: &[ChangeRecord],
    revision: Option<u64>,
) -> Result<Vec<EventKind>> {
    let mut events = Vec::new();
    // Of several changes of one lock, the last one counts.
    let mut locks: Vec<&ImageName> = Vec::new();
    for change in flat(changes) {
        match &change.action {
            Action::Follow { versions, .. } => {
                for VersionName { image, number } in versions {
                    let found = store.version(image, NumberChoice::Number(*number));
                    let score = found.map_or_else(|_| String::new(), |found| found.record.score.to_string());
                    events.push(EventKind::Version { image: image.clone(), number: *number, score });
                }
            }
            Action::Publish { version: VersionName { image, number }, score, .. }
            | Action::Import { version: VersionName { image, number }, score } => {
                events.push(EventKind::Version {
                    image: image.clone(),
                    number: *number,
                    score: score.clone(),
                });
            }
            Action::Salvage { versions } | Action::Resurrect { versions } => {
                for VersionName { image, number } in versions {
                    // A version that is gone again has no score here; its end is an event, too.
                    let found = store.version(image, NumberChoice::Number(*number));
                    let score = found.map_or_else(|_| String::new(), |found| found.record.score.to_string());
                    events.push(EventKind::Version { image: image.clone(), number: *number, score });
                }
            }
            Action::Forget { versions } => events.extend(
                versions
                    .iter()
                    .map(|name| EventKind::Forget { image: name.image.clone(), number: name.number }),
            ),
            Action::Rename { versions } => events.extend(versions.iter().map(|renamed| EventKind::Rename {
                from: renamed.from.image.clone(),
                to: renamed.to.image.clone(),
                number: renamed.to.number,
            })),
            Action::TakeLock { image, .. }
            | Action::SetOverlay { image, .. }
            | Action::ReleaseLock { image, .. } => {
                locks.retain(|known| *known != image);
                locks.push(image);
            }
            _ => {}
        }
    }
    for image in locks {
        events.push(EventKind::EditLock { image: image.clone(), edit_lock: store.edit_lock(image)? });
    }
    if let Some(revision) = revision {
        let mut images: Vec<ImageName> =
            changes.iter().flat_map(|change| change.action.images()).cloned().collect();
        images.sort_unstable();
        images.dedup();
        events.push(EventKind::Hoard { revision, images });
    }
    Ok(events)
}

/// The changes, and those of its origin that a follower applied. Versions of these appear when their data has arrived.
fn flat(changes: &[ChangeRecord]) -> impl Iterator<Item = &ChangeRecord> {
    changes.iter().flat_map(|change| {
        let inner: &[ChangeRecord] = match &change.action {
            Action::Follow { changes, .. } => changes,
            _ => &[],
        };
        let is_other = |inner: &&ChangeRecord| {
            !matches!(
                inner.action,
                Action::Publish { .. }
                    | Action::Import { .. }
                    | Action::Salvage { .. }
                    | Action::Resurrect { .. }
            )
        };
        inner.iter().filter(is_other).chain([change])
    })
}

#[cfg(test)]
mod tests {
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::recipe::{CutPolicy, Root};
    use platter_image::{Domain, FrameStore, Kind};
    use platter_records::{History, VersionRecord};
    use platter_store::StorePlace;

    use super::*;
    use crate::access::Patterns;
    use platter_api::Role;

    fn name(text: &str) -> ImageName {
        text.parse().unwrap()
    }

    fn forget(number: u64) -> EventKind {
        EventKind::Forget { image: name("lab/a"), number }
    }

    fn who(id: &str) -> Principal {
        let patterns = Patterns(vec!["lab/*".parse().unwrap()]);
        Principal { id: id.into(), name: String::new(), role: Role::Admin, patterns, quota_bytes: None }
    }

    #[test]
    fn a_reconnecting_client_gets_the_missed_events_or_learns_that_they_are_gone() {
        let events = Events::new(3).unwrap();
        assert_eq!(events.after(0, 9).unwrap().len(), 0);
        (1..=5).for_each(|number| events.add(forget(number)));
        let after = |sequence| {
            events.after(sequence, 9).map(|events| events.iter().map(|it| it.sequence).collect::<Vec<_>>())
        };
        assert_eq!((after(5), after(4), after(2)), (Some(vec![]), Some(vec![5]), Some(vec![3, 4, 5])));
        assert_eq!((after(1), after(6)), (None, None));
        assert_eq!(events.after(2, 2).unwrap().len(), 2);
        let (all, lab) = (Principal::of_unix_socket(), who("me"));
        for who in [&all, &lab] {
            assert_eq!(events.sequence(who, &events.id(who, 4)), Some(4));
            assert_eq!(Events::new(3).unwrap().sequence(who, &events.id(who, 4)), None);
            for bad in ["", "-", "4", "x-4", "0123456789abcdef-"] {
                assert_eq!(events.sequence(who, bad), None, "{bad}");
            }
        }
        assert_eq!(events.sequence(&who("you"), &events.id(&lab, 4)), None);
    }

    /// The ids of a token for some images are the same whatever happens to others between its own events.
    #[test]
    fn ids_do_not_count_the_events_of_others() {
        let (events, lab) = (Events::new(9).unwrap(), who("me"));
        let hidden = || EventKind::Forget { image: name("x/a"), number: 1 };
        let newest = || events.newest_seen_by(&lab, events.newest());
        events.add(hidden());
        assert_eq!(newest(), 0);
        events.add(forget(1));
        assert_eq!(newest(), 2);
        (0..3).for_each(|_| events.add(hidden()));
        assert_eq!((newest(), events.newest_seen_by(&Principal::of_unix_socket(), 5)), (2, 5));
        assert_eq!(events.sequence(&lab, &events.id(&lab, 0)), Some(0), "an id from before its first event");
        assert!(!events.id(&lab, 2).ends_with("-2"));
    }

    #[test]
    fn changes_of_the_catalog_become_events() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        // A disk of one free sector.
        let cut_policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let root = Root { disk_length: 512, sector_size: 512, cut_policy, domain: Domain::SHARED, top: None };
        let publish = |image: &str| {
            let session = store.session().unwrap();
            let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 10);
            frame.push(root.score().unwrap().0, &root.encode());
            session.append(&frame.encode(&mut Compressor::new(3).unwrap()).unwrap()).unwrap();
            session.publish(VersionRecord::draft(name(image), root.score().unwrap(), 5)).unwrap();
        };
        publish("lab/a");
        let reader = Store::open_reader(&place).unwrap();
        let before = reader.last_change().unwrap();
        publish("lab/b");
        store.forget(&name("lab/a"), None).unwrap();
        let lock = store.take_edit_lock(&name("lab/b"), "me", 5).unwrap();
        store.release_edit_lock(&lock).unwrap();
        store.rename(&name("lab/b"), &name("lab/c")).unwrap();
        let History { changes, last, .. } = reader.changes_after(before, usize::MAX).unwrap();
        assert_eq!(
            events_of(&reader, &changes, Some(3)).unwrap(),
            [
                EventKind::Version {
                    image: name("lab/b"),
                    number: 1,
                    score: root.score().unwrap().to_string()
                },
                forget(1),
                EventKind::Rename { from: name("lab/b"), to: name("lab/c"), number: 1 },
                EventKind::EditLock { image: name("lab/b"), edit_lock: None },
                EventKind::Hoard { revision: 3, images: vec![name("lab/a"), name("lab/b"), name("lab/c")] },
            ]
        );
        assert_eq!(reader.changes_after(last, usize::MAX).unwrap().changes, []);
    }

    #[test]
    fn hidden_images_are_hidden_in_events() {
        let who = who("me");
        let rename = |from: &str, to: &str| EventKind::Rename { from: name(from), to: name(to), number: 1 };
        assert_eq!(rename("lab/a", "lab/b").as_seen_by(&who), Some(rename("lab/a", "lab/b")));
        assert_eq!(rename("lab/a", "x/b").as_seen_by(&who), Some(forget(1)));
        assert_eq!(rename("x/a", "lab/b").as_seen_by(&who).unwrap().name(), "version");
        assert_eq!(rename("x/a", "x/b").as_seen_by(&who), None);
        assert_eq!(EventKind::EditLock { image: name("x/a"), edit_lock: None }.as_seen_by(&who), None);
        let hoard = |image: &str| EventKind::Hoard { revision: 3, images: vec![name(image)] };
        assert_eq!(
            (hoard("lab/a").as_seen_by(&who), hoard("x/a").as_seen_by(&who)),
            (Some(EventKind::Hoard { revision: 0, images: vec![name("lab/a")] }), None),
            "without a number that counts the changes of others"
        );
        let upload = |owner: &str| EventKind::Upload { id: "u".into(), state: "begun", owner: owner.into() };
        let cast = |image: Option<&str>| EventKind::Cast {
            id: "c".into(),
            version: "v".into(),
            state: "done",
            image: image.map(name),
        };
        assert!(cast(Some("lab/a")).as_seen_by(&who).is_some());
        assert!(cast(Some("x/a")).as_seen_by(&who).is_none() && cast(None).as_seen_by(&who).is_none());
        assert!(upload("me").as_seen_by(&who).is_some() && upload("you").as_seen_by(&who).is_none());
    }
}
