//! Casts that senders report: a limited number, kept in memory for some time after the last report. A report is
//! displayed as received and changes nothing else.

use parking_lot::{Mutex, MutexGuard};
use std::time::Instant;

use platter_api::{CastReceiver, CastState, CastStatus, HOARD_CAST_TITLE, ListedCast};
use platter_image::{Error, Result, Score};
use platter_records::{ImageName, VersionQuery};

use crate::access::Principal;
use crate::config::{CAST_KEPT, CAST_RECEIVERS_MAX, CAST_TEXT_LENGTH_MAX, CASTS_MAX};

/// Digits of a cast's id.
const ID_LENGTH: usize = 32;

/// The casts reported to this process, in order of their first report.
#[derive(Debug, Default)]
pub(crate) struct Casts {
    kept: Mutex<Vec<KnownCast>>,
}

#[derive(Debug)]
struct KnownCast {
    id: String,
    owner: String,
    image: Option<ImageName>,
    status: CastStatus,
    heard: Instant,
}

impl Casts {
    /// Stores a sender's report. Returns whether it is worth an event: the cast is new, or its state changed.
    ///
    /// # Errors
    /// `Missing` when another principal reports this cast; `Refused` when the cast is of another image; `Transient`
    /// when there are too many casts.
    pub(crate) fn tell(
        &self,
        id: &str,
        who: &Principal,
        image: Option<ImageName>,
        status: CastStatus,
        now: Instant,
    ) -> Result<bool> {
        let mut kept = self.kept(now);
        if let Some(known) = kept.iter_mut().find(|known| known.id == id) {
            if known.owner != who.id {
                return Err(Error::missing(format!("there is no cast {id}")));
            }
            if known.image != image {
                return Err(Error::refused(format!("cast {id} is a cast of {}", known.status.version)));
            }
            let is_news = known.status.state != status.state;
            (known.status, known.heard) = (status, now);
            return Ok(is_news);
        }
        if kept.len() >= CASTS_MAX {
            let ended = kept.iter().position(|known| known.status.state.has_ended());
            let ended = ended
                .ok_or_else(|| Error::transient(format!("{CASTS_MAX} casts are under way: try later")))?;
            kept.remove(ended);
        }
        kept.push(KnownCast { id: id.to_owned(), owner: who.id.clone(), image, status, heard: now });
        Ok(true)
    }

    /// Returns the casts that the principal may see, newest first.
    pub(crate) fn seen_by(&self, who: &Principal, now: Instant) -> Vec<ListedCast> {
        let kept = self.kept(now);
        let seen = kept.iter().rev().filter(|cast| may_see(who, cast.image.as_ref()));
        seen.map(|cast| ListedCast {
            id: cast.id.clone(),
            silent_seconds: now.saturating_duration_since(cast.heard).as_secs_f64(),
            status: cast.status.clone(),
        })
        .collect()
    }

    /// Locks the list and removes casts whose last report is too old.
    fn kept(&self, now: Instant) -> MutexGuard<'_, Vec<KnownCast>> {
        let mut kept = self.kept.lock();
        kept.retain(|cast| now.saturating_duration_since(cast.heard) < CAST_KEPT);
        kept
    }
}

/// Whether a principal may see a cast. A cast of a disk without a name is visible only to principals that read
/// everything.
pub(crate) fn may_see(who: &Principal, image: Option<&ImageName>) -> bool {
    image.map_or_else(|| who.reads_everything(), |image| who.may_read(image))
}

/// Checks the id of a cast or a node.
///
/// # Errors
/// `Refused`.
pub(crate) fn check_id(id: &str) -> Result<()> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    match id.len() == ID_LENGTH && id.bytes().all(is_digit) {
        true => Ok(()),
        false => Err(Error::refused(format!("id {id:?}: it must have {ID_LENGTH} hexadecimal digits"))),
    }
}

/// Checks a report and returns its image; `None` for a disk without a name, and for the hoard.
///
/// # Errors
/// `Refused` when the report is invalid or too long.
pub(crate) fn check_report(id: &str, status: &CastStatus) -> Result<Option<ImageName>> {
    check_id(id)?;
    if Score::from_hex(&status.score).is_none() {
        return Err(Error::refused(format!("score {:?}: it must have 64 hexadecimal digits", status.score)));
    }
    let mut times = status.receivers.iter().map(|receiver| receiver.seconds).chain([status.seconds]);
    if times.any(|seconds| seconds.is_nan() || seconds < 0.0) {
        return Err(Error::refused("a time is negative"));
    }
    if status.receivers.len() > CAST_RECEIVERS_MAX {
        return Err(Error::refused(format!("more than {CAST_RECEIVERS_MAX} receivers")));
    }
    let receivers =
        status.receivers.iter().flat_map(|CastReceiver { name, state, reason, limited_by, .. }| {
            [Some(name), Some(state), reason.as_ref(), limited_by.as_ref()]
        });
    let texts = [Some(&status.sender), Some(&status.group), status.reason.as_ref()];
    if texts.into_iter().chain(receivers).flatten().any(|text| text.len() > CAST_TEXT_LENGTH_MAX) {
        return Err(Error::refused(format!("a text is longer than {CAST_TEXT_LENGTH_MAX} bytes")));
    }
    let revision = status.version.strip_prefix(HOARD_CAST_TITLE);
    if revision.is_some_and(|digits| digits.parse::<u64>().is_ok()) {
        return Ok(None);
    }
    match status.version.parse()? {
        VersionQuery::Named(image, _) => Ok(Some(image)),
        VersionQuery::Score(_) => Ok(None),
    }
}

/// The name of a state in events.
pub(crate) fn state_word(state: CastState) -> &'static str {
    match state {
        CastState::Waiting => "waiting",
        CastState::Casting => "casting",
        CastState::Done => "done",
        CastState::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use platter_image::ErrorKind;

    use super::*;
    use crate::access::Patterns;
    use platter_api::Role;

    fn who(id: &str, pattern: &str) -> Principal {
        let patterns = Patterns(vec![pattern.parse().unwrap()]);
        Principal { id: id.into(), name: String::new(), role: Role::Admin, patterns, quota_bytes: None }
    }

    fn report(state: CastState) -> CastStatus {
        let score = "ab".repeat(32);
        CastStatus { version: "lab/a@1".into(), score, state, ..CastStatus::default() }
    }

    fn id(number: usize) -> String {
        format!("{number:032x}")
    }

    #[test]
    fn a_cast_is_listed_for_some_time_after_its_last_report() {
        let (casts, me, start) = (Casts::default(), who("me", "*"), Instant::now());
        let image = check_report(&id(1), &report(CastState::Waiting)).unwrap();
        let tell = |state, at| casts.tell(&id(1), &me, image.clone(), report(state), start + at).unwrap();
        assert!(tell(CastState::Waiting, Duration::ZERO));
        assert!(!tell(CastState::Waiting, Duration::from_secs(1)));
        assert!(tell(CastState::Casting, Duration::from_secs(400)));
        let seen = |at| casts.seen_by(&me, start + at).len();
        assert_eq!(seen(Duration::from_secs(999)), 1);
        assert_eq!(seen(Duration::from_secs(1000)), 0);
    }

    #[test]
    fn a_cast_is_reported_by_its_sender_and_visible_to_readers_of_its_image() {
        let (casts, now) = (Casts::default(), Instant::now());
        let (me, you) = (who("me", "lab/*"), who("you", "other/*"));
        let image = |text: &str| Some(text.parse::<ImageName>().unwrap());
        let tell = |who, image| casts.tell(&id(1), who, image, report(CastState::Waiting), now);
        tell(&me, image("lab/a")).unwrap();
        assert_eq!(tell(&you, image("lab/a")).unwrap_err().kind(), ErrorKind::Missing);
        assert_eq!(tell(&me, image("lab/b")).unwrap_err().kind(), ErrorKind::Refused);
        casts.tell(&id(2), &who("root", "*"), None, report(CastState::Waiting), now).unwrap();
        let seen = |who| casts.seen_by(who, now).len();
        assert_eq!((seen(&me), seen(&you), seen(&who("all", "*"))), (1, 0, 2));
    }

    #[test]
    fn an_ended_cast_makes_room() {
        let (casts, me, now) = (Casts::default(), who("me", "*"), Instant::now());
        let tell = |number, state| casts.tell(&id(number), &me, None, report(state), now);
        (0..CASTS_MAX).for_each(|number| assert!(tell(number, CastState::Casting).unwrap()));
        assert_eq!(tell(CASTS_MAX, CastState::Casting).unwrap_err().kind(), ErrorKind::Transient);
        tell(7, CastState::Failed).unwrap();
        tell(CASTS_MAX, CastState::Casting).unwrap();
        assert_eq!(casts.seen_by(&me, now).len(), CASTS_MAX);
    }

    #[test]
    fn invalid_reports_are_refused() {
        let good = report(CastState::Casting);
        assert_eq!(check_report(&id(1), &good).unwrap(), Some("lab/a".parse().unwrap()));
        let by_score = CastStatus { version: good.score.clone(), ..good.clone() };
        assert_eq!(check_report(&id(1), &by_score).unwrap(), None);
        let of_hoard = CastStatus { version: "hoard:@7".into(), ..good.clone() };
        assert_eq!(check_report(&id(1), &of_hoard).unwrap(), None);
        let long = "x".repeat(CAST_TEXT_LENGTH_MAX + 1);
        let receiver = CastReceiver { name: long.clone(), ..CastReceiver::default() };
        let bad = [
            CastStatus { version: "../x".into(), ..good.clone() },
            CastStatus { version: "hoard:@x".into(), ..good.clone() },
            CastStatus { score: "xy".into(), ..good.clone() },
            CastStatus { sender: long.clone(), ..good.clone() },
            CastStatus { seconds: -1.0, ..good.clone() },
            CastStatus { seconds: f64::NAN, ..good.clone() },
            CastStatus { reason: Some(long), ..good.clone() },
            CastStatus { receivers: vec![receiver], ..good.clone() },
            CastStatus { receivers: vec![CastReceiver::default(); CAST_RECEIVERS_MAX + 1], ..good.clone() },
        ];
        for status in bad {
            assert_eq!(check_report(&id(1), &status).unwrap_err().kind(), ErrorKind::Refused);
        }
        for id in ["", "1", &"A".repeat(32), &"g".repeat(32), &"a".repeat(33)] {
            assert!(check_report(id, &good).is_err(), "{id}");
        }
    }
}
