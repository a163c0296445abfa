//! Quotas limit how much the images below a name may hold (design: quotas). Every change that adds to these images passes the
//! check here.
//!
//! The count depends on the counted recipes alone: each distinct block counts once, up to the last byte that a recipe uses of it,
//! and each distinct page once, uncompressed. It depends neither on other images nor on how blocks share frames, so a quota
//! reveals nothing about what others store.
//!
//! A change is first tried without a check: it may be refused for another reason, or add nothing. If a limit concerns it, nothing
//! happens, and the check walks recipes before the catalog is locked again. The commit compares: if a version or a quota was added
//! meanwhile, nothing happens, and the check begins again. Forgotten versions only make room.
//!
//! One check at a time counts: it holds the lock of the accounts. Whoever waits needs the same pages, or the memory.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use platter_image::recipe::PageSource;
use platter_image::{Error, Result, Score};
use platter_records::{ImageName, Quota, QuotaUse, Version};

use crate::catalog::Change;
use crate::store::Store;

/// How often a change is tried: without a check, with one, and again because versions were added meanwhile.
const QUOTA_TRIES: u32 = 20;
/// Most quotas of a store: each change of names reads all of them.
const QUOTAS_MAX: usize = 1000;

/// A limit for some images.
#[derive(Clone)]
pub struct Limit {
    what: String,
    limit_bytes: u64,
    covers: Arc<dyn Fn(&ImageName) -> bool + Send + Sync>,
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes", self.what, self.limit_bytes)
    }
}

impl Limit {
    /// A limit for all images that `covers` names. `what` identifies it, and says in messages whose limit it is.
    pub fn new(
        what: impl Into<String>,
        limit_bytes: u64,
        covers: impl Fn(&ImageName) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { what: what.into(), limit_bytes, covers: Arc::new(covers) }
    }
}

impl From<Quota> for Limit {
    fn from(quota: Quota) -> Self {
        Self::new(quota.to_string(), quota.limit_bytes, move |image| quota.covers(image))
    }
}

/// A change of names that may add to what limits count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Growth<'a> {
    /// A new version of an image.
    Version(&'a ImageName, Score),
    /// An image and all images below it get other names.
    Rename(&'a ImageName, &'a ImageName),
}

impl Growth<'_> {
    /// Returns the name of an image after the change.
    fn name_after(&self, image: &ImageName) -> Result<ImageName> {
        match self {
            Self::Rename(from, to) => {
                let rest = image.as_str().strip_prefix(from.as_str());
                let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
                rest.map_or_else(|| Ok(image.clone()), |rest| format!("{to}{rest}").parse())
            }
            Self::Version(..) => Ok(image.clone()),
        }
    }

    /// Whether the change can add to what a limit for these images counts.
    fn concerns(&self, covers: impl Fn(&ImageName) -> bool) -> bool {
        match self {
            Self::Version(image, _) => covers(image),
            Self::Rename(..) => true,
        }
    }

    /// Leaves the quotas to which the change can add.
    fn concerned(&self, mut quotas: Vec<Quota>) -> Vec<Quota> {
        quotas.retain(|quota| self.concerns(|image| quota.covers(image)));
        quotas
    }

    /// Returns the scores that a limit counts before and after the change.
    fn scores(&self, limit: &Limit, versions: &[Version]) -> Result<(BTreeSet<Score>, BTreeSet<Score>)> {
        let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
        for version in versions {
            if (limit.covers)(&version.name.image) {
                before.insert(version.record.score);
            }
            if (limit.covers)(&self.name_after(&version.name.image)?) {
                after.insert(version.record.score);
            }
        }
        if let Self::Version(image, score) = self
            && (limit.covers)(image)
        {
            after.insert(*score);
        }
        Ok((before, after))
    }
}

/// A check that allows a change, as long as nothing else is added.
#[derive(Debug)]
pub(crate) struct QuotaCheck<'a> {
    growth: Growth<'a>,
    /// Whether limits besides the quotas were left out.
    lacks_limits: bool,
    /// The quotas that concern the change.
    quotas: Vec<Quota>,
    /// Each limit to which the change may add, and the scores that it then counts.
    counted: Vec<(Limit, BTreeSet<Score>)>,
    is_outdated: Cell<bool>,
}

impl<'a> QuotaCheck<'a> {
    /// A check before anything is counted. It holds if no limit concerns the change.
    fn of_nothing(growth: Growth<'a>, more: &[Limit]) -> Self {
        let lacks_limits = more.iter().any(|limit| growth.concerns(&*limit.covers));
        Self { growth, lacks_limits, quotas: Vec::new(), counted: Vec::new(), is_outdated: Cell::new(false) }
    }

    /// Returns an error if the check does not hold in the transaction of the change: it then begins again.
    pub(crate) fn refusal(&self, change: &Change<'_>) -> Result<Option<Error>> {
        if self.holds(change)? {
            return Ok(None);
        }
        self.is_outdated.set(true);
        Ok(Some(Error::transient("versions or quotas were added meanwhile: try again")))
    }

    fn holds(&self, change: &Change<'_>) -> Result<bool> {
        if self.lacks_limits || self.growth.concerned(change.quotas()?) != self.quotas {
            return Ok(false);
        }
        if self.counted.is_empty() {
            return Ok(true);
        }
        let versions = change.versions_by_time()?;
        for (limit, scores) in &self.counted {
            if !self.growth.scores(limit, &versions)?.1.is_subset(scores) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Store {
    /// Checks a change against the quotas and `more` limits, and runs it. `attempt` asks the check in its transaction, as the last thing
    /// before it changes something, and need not ask if it adds no name. A change that adds nothing is always allowed.
    ///
    /// # Errors
    /// `Refused` when a limit would be exceeded: it names the limit, and says what is used and what to do. The errors of `attempt`.
    pub(crate) fn within_quotas<T>(
        &self,
        source: &dyn PageSource,
        growth: Growth<'_>,
        more: &[Limit],
        mut attempt: impl FnMut(&QuotaCheck<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut check = QuotaCheck::of_nothing(growth, more);
        for _ in 0..QUOTA_TRIES {
            let done = attempt(&check);
            if done.is_ok() || !check.is_outdated.get() {
                return done;
            }
            check = self.check_quotas(source, growth, more)?;
        }
        Err(Error::transient("versions are added too fast to count them for a quota: try again"))
    }

    fn check_quotas<'a>(
        &self,
        source: &dyn PageSource,
        growth: Growth<'a>,
        more: &[Limit],
    ) -> Result<QuotaCheck<'a>> {
        let quotas = growth.concerned(self.catalog()?.quotas()?);
        let more = more.iter().filter(|limit| growth.concerns(&*limit.covers)).cloned();
        let limits: Vec<Limit> = quotas.iter().cloned().map(Limit::from).chain(more).collect();
        let versions = if limits.is_empty() { Vec::new() } else { self.catalog()?.all_versions()? };
        let mut counted = Vec::new();
        for limit in limits {
            let (before, after) = growth.scores(&limit, &versions)?;
            if !after.is_subset(&before) {
                let mut accounts = self.0.accounts.lock();
                let account = accounts.take(&limit.what, self, &before)?;
                let more = account.growth(source, after.difference(&before))?.bytes();
                let used = account.bytes();
                accounts.keep(&limit.what, account);
                if more > 0 && used.saturating_add(more) > limit.limit_bytes {
                    return Err(refusal(&limit, used, more));
                }
            }
            counted.push((limit, after));
        }
        Ok(QuotaCheck { growth, lacks_limits: false, quotas, counted, is_outdated: Cell::new(false) })
    }

    /// Returns the bytes that a limit counts.
    fn used_by(&self, limit: &Limit) -> Result<u64> {
        let versions = self.catalog()?.all_versions()?;
        let counted = versions.iter().filter(|version| (limit.covers)(&version.name.image));
        let scores = counted.map(|version| version.record.score).collect();
        let mut accounts = self.0.accounts.lock();
        let account = accounts.take(&limit.what, self, &scores)?;
        let used = account.bytes();
        accounts.keep(&limit.what, account);
        Ok(used)
    }

    /// Returns the quotas of prefixes that `is_shown` accepts and what is used of them, ordered by prefix. Walks the recipes that
    /// they count.
    ///
    /// # Errors
    /// When a recipe or the catalog cannot be read.
    pub fn quotas(&self, is_shown: &dyn Fn(&ImageName) -> bool) -> Result<Vec<QuotaUse>> {
        let quotas = self.catalog()?.quotas()?;
        let uses = quotas.into_iter().filter(|quota| is_shown(&quota.prefix)).map(|quota| {
            let used_bytes = self.used_by(&Limit::from(quota.clone()))?;
            Ok(QuotaUse { quota, used_bytes })
        });
        uses.collect()
    }

    /// Sets the quota of an image and all images below it, or removes it. It may be lower than what is used: then nothing can be
    /// added. One commit, durable on return. Returns the quota before.
    ///
    /// # Errors
    /// `Missing` when there is no quota to remove; `Refused` when there are too many; `Transient` when another process holds the
    /// writer's lock for more than a few seconds; `Io`.
    pub fn set_quota(&self, prefix: &ImageName, limit_bytes: Option<u64>) -> Result<Option<Quota>> {
        let before = self.change_catalog(|change| {
            let quotas = change.quotas()?;
            let before = quotas.iter().find(|quota| quota.prefix == *prefix);
            match (before, limit_bytes) {
                (None, None) => Ok(Err(Error::missing(format!("{prefix} has no quota")))),
                (None, Some(_)) if quotas.len() >= QUOTAS_MAX => Ok(Err(Error::refused(format!(
                    "there are {QUOTAS_MAX} quotas, and a store has no more: remove one, or limit a shorter prefix"
                )))),
                (Some(quota), Some(limit)) if quota.limit_bytes == limit => Ok(Ok(before.cloned())),
                _ => change.set_quota(prefix, limit_bytes).map(Ok),
            }
        })?;
        if let (Some(quota), None) = (&before, limit_bytes) {
            self.0.accounts.lock().remove(&quota.to_string());
        }
        Ok(before)
    }
}

fn refusal(limit: &Limit, used: u64, more: u64) -> Error {
    Error::refused(format!(
        "the {} is {} bytes, of which {used} are used, and this adds {more}: forget versions, or have the limit raised",
        limit.what, limit.limit_bytes
    ))
    // Programs that copy into a mounted tree get the error number for it.
    .with_source(std::io::Error::from(std::io::ErrorKind::QuotaExceeded))
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;

    use super::*;
    use crate::place::StorePlace;

    #[test]
    fn a_store_has_so_many_quotas_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        let store = Store::open_writer(&place).unwrap();
        let image = |number: usize| -> ImageName { format!("lab/{number}").parse().unwrap() };
        let filled = store.change_catalog(|change| {
            (0..QUOTAS_MAX).try_for_each(|number| change.set_quota(&image(number), Some(1)).map(drop)).map(Ok)
        });
        filled.unwrap();
        let refusal = store.set_quota(&image(QUOTAS_MAX), Some(1)).unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::Refused);
        store.set_quota(&image(0), Some(2)).unwrap();
        store.set_quota(&image(0), None).unwrap();
        store.set_quota(&image(QUOTAS_MAX), Some(1)).unwrap();
    }
}
