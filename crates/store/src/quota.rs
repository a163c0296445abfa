//! Quotas: how much the images below a name may hold, and the check that every change passes which adds to them (design: quotas).
//!
//! What counts is a function of the counted recipes alone: each distinct block once, up to the last byte that a recipe uses of it,
//! and each distinct page once, uncompressed. Neither what other images have nor how blocks share frames changes it, so nobody learns from
//! a quota what others store.
//!
//! The check walks recipes before the catalog is locked. The commit compares: if a version or a quota was added meanwhile, nothing
//! happens, and the check begins again. Forgotten versions only make room.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use platter_image::page::{Child, Contents, State, decode};
use platter_image::recipe::{PageSource, Root};
use platter_image::{BlockId, Error, Result, Score};
use platter_records::{ImageName, Quota, QuotaUse, Version};

use crate::catalog::Change;
use crate::session::unless_damaged;
use crate::store::Store;

/// How often a check begins again because versions were added meanwhile.
const QUOTA_TRIES: u32 = 20;
/// Most blocks that are counted. Counting needs about 40 bytes of memory for each while it runs.
const BLOCKS_MAX: usize = 1 << 27;
/// Blocks and pages in accounts that a process keeps for the next check.
const KEPT_MAX: usize = 1 << 21;
/// Most accounts that it keeps.
const ACCOUNTS_MAX: usize = 16;

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

/// Whose blocks were counted. A key of 16 bytes of the id suffices: two that agree by chance count once.
type Key = [u8; 16];

fn key(id: &BlockId) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(&id.0[..16]);
    key
}

/// The distinct blocks and pages of some recipes, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Account {
    scores: BTreeSet<Score>,
    pages: HashSet<Key>,
    /// Of each block, the end of the last byte that a recipe uses.
    ends: HashMap<Key, u64>,
    bytes: u64,
}

impl Account {
    fn len(&self) -> usize {
        self.pages.len() + self.ends.len()
    }

    /// Returns what other recipes add.
    fn growth<'a>(
        &self,
        source: &dyn PageSource,
        scores: impl IntoIterator<Item = &'a Score>,
    ) -> Result<Self> {
        let mut growth = Self::default();
        for score in scores {
            if !self.scores.contains(score) && growth.scores.insert(*score) {
                growth.count(self, source, *score)?;
            }
        }
        Ok(growth)
    }

    /// Counts what a recipe has and neither `before` nor this account. What damaged pages name does not count: a live disk on a
    /// damaged version can be published.
    fn count(&mut self, before: &Self, source: &dyn PageSource, score: Score) -> Result<()> {
        let Some(bytes) = unless_damaged(source.page(&score.0))? else { return Ok(()) };
        self.bytes += bytes.len() as u64;
        let Some(root) = unless_damaged(Root::decode(score, &bytes))? else { return Ok(()) };
        let mut stack: Vec<Child> = root.top.into_iter().map(|(_, child)| child).collect();
        while let Some(child) = stack.pop() {
            if before.pages.contains(&key(&child.id)) || !self.pages.insert(key(&child.id)) {
                continue;
            }
            let Some(bytes) = unless_damaged(source.page(&child.id))? else { continue };
            self.bytes += bytes.len() as u64;
            match unless_damaged(decode(&child, &bytes))?.map(|(_, contents)| contents) {
                None => {}
                Some(Contents::Branch(children)) => stack.extend(children),
                Some(Contents::Leaf(entries)) => {
                    for entry in entries {
                        if let State::Data { block, offset } = entry.state {
                            self.use_block(before, &block, u64::from(offset) + entry.extent.length);
                        }
                    }
                }
            }
            if before.len() + self.len() > BLOCKS_MAX {
                let what = format!("images with more than {BLOCKS_MAX} blocks and pages cannot have a quota");
                return Err(Error::refused(what));
            }
        }
        Ok(())
    }

    fn use_block(&mut self, before: &Self, id: &BlockId, end: u64) {
        let key = key(id);
        let known = self.ends.get(&key).or_else(|| before.ends.get(&key)).copied().unwrap_or(0);
        if end > known {
            self.ends.insert(key, end);
            self.bytes += end - known;
        }
    }

    fn add(&mut self, growth: Self) {
        self.scores.extend(growth.scores);
        self.pages.extend(growth.pages);
        self.ends.extend(growth.ends);
        self.bytes += growth.bytes;
    }
}

/// Accounts that a process keeps, by the texts of their limits.
#[derive(Debug, Default)]
pub(crate) struct Accounts(BTreeMap<String, Account>);

impl Accounts {
    /// Takes the account of a limit, if all that it counts is still to be counted.
    fn take(&mut self, what: &str, scores: &BTreeSet<Score>) -> Account {
        let kept = self.0.remove(what);
        kept.filter(|account| account.scores.is_subset(scores)).unwrap_or_default()
    }

    fn keep(&mut self, what: &str, account: Account) {
        let kept: usize = self.0.values().map(Account::len).sum();
        if self.0.len() < ACCOUNTS_MAX && kept + account.len() <= KEPT_MAX {
            self.0.insert(what.to_owned(), account);
        }
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

    /// Whether the change can add to what a limit counts.
    fn concerns(&self, limit: &Limit) -> bool {
        match self {
            Self::Version(image, _) => (limit.covers)(image),
            Self::Rename(..) => true,
        }
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
    quotas: Vec<Quota>,
    /// Each limit to which the change may add, and the scores that it then counts.
    counted: Vec<(Limit, BTreeSet<Score>)>,
    is_outdated: Cell<bool>,
}

impl QuotaCheck<'_> {
    /// Returns an error if the check does not hold in the transaction of the change: it then begins again.
    pub(crate) fn refusal(&self, change: &Change<'_>) -> Result<Option<Error>> {
        if self.holds(change)? {
            return Ok(None);
        }
        self.is_outdated.set(true);
        Ok(Some(Error::transient("versions or quotas were added meanwhile: try again")))
    }

    fn holds(&self, change: &Change<'_>) -> Result<bool> {
        if change.quotas()? != self.quotas {
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
    /// Checks a change against the quotas and `more` limits, and runs it. `attempt` asks the check again in its transaction. A change
    /// that adds nothing is always allowed.
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
        for _ in 0..QUOTA_TRIES {
            let check = self.check_quotas(source, growth, more)?;
            let done = attempt(&check);
            if done.is_ok() || !check.is_outdated.get() {
                return done;
            }
        }
        Err(Error::transient("versions are added too fast to count them for a quota: try again"))
    }

    fn check_quotas<'a>(
        &self,
        source: &dyn PageSource,
        growth: Growth<'a>,
        more: &[Limit],
    ) -> Result<QuotaCheck<'a>> {
        let quotas = self.catalog()?.quotas()?;
        let limits = quotas.iter().cloned().map(Limit::from).chain(more.iter().cloned());
        let limits: Vec<Limit> = limits.filter(|limit| growth.concerns(limit)).collect();
        let versions = if limits.is_empty() { Vec::new() } else { self.catalog()?.all_versions()? };
        let mut counted = Vec::new();
        for limit in limits {
            let (before, after) = growth.scores(&limit, &versions)?;
            if after.is_subset(&before) {
                counted.push((limit, after));
                continue;
            }
            let account = self.account(&limit, &before)?;
            let more = account.growth(source, after.difference(&before))?.bytes;
            let used = account.bytes;
            self.0.accounts.lock().keep(&limit.what, account);
            if more > 0 && used.saturating_add(more) > limit.limit_bytes {
                return Err(refusal(&limit, used, more));
            }
            counted.push((limit, after));
        }
        Ok(QuotaCheck { growth, quotas, counted, is_outdated: Cell::new(false) })
    }

    /// Refuses a new version of an image before any data is read, if a quota has no room left.
    ///
    /// # Errors
    /// As the check at the commit.
    pub fn check_room(&self, image: &ImageName) -> Result<()> {
        let quotas = self.catalog()?.quotas()?;
        for limit in quotas.into_iter().filter(|quota| quota.covers(image)).map(Limit::from) {
            let used = self.used_by(&limit)?;
            if used >= limit.limit_bytes {
                return Err(refusal(&limit, used, 0));
            }
        }
        Ok(())
    }

    /// Returns the bytes that a limit counts.
    fn used_by(&self, limit: &Limit) -> Result<u64> {
        let versions = self.catalog()?.all_versions()?;
        let counted = versions.iter().filter(|version| (limit.covers)(&version.name.image));
        let scores = counted.map(|version| version.record.score).collect();
        let account = self.account(limit, &scores)?;
        let used = account.bytes;
        self.0.accounts.lock().keep(&limit.what, account);
        Ok(used)
    }

    /// Counts recipes, or takes the account of them that this process has.
    fn account(&self, limit: &Limit, scores: &BTreeSet<Score>) -> Result<Account> {
        let mut account = self.0.accounts.lock().take(&limit.what, scores);
        let growth = account.growth(self, scores);
        account.add(growth.map_err(|error| error.within(format!("counting the {}", limit.what)))?);
        Ok(account)
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
    /// `Missing` when there is no quota to remove; `Transient` when another process holds the writer's lock for more than a few
    /// seconds; `Io`.
    pub fn set_quota(&self, prefix: &ImageName, limit_bytes: Option<u64>) -> Result<Option<Quota>> {
        self.change_catalog(|change| {
            let before = change.quotas()?.into_iter().find(|quota| quota.prefix == *prefix);
            match (&before, limit_bytes) {
                (None, None) => Ok(Err(Error::missing(format!("{prefix} has no quota")))),
                (Some(quota), Some(limit)) if quota.limit_bytes == limit => Ok(Ok(before)),
                _ => change.set_quota(prefix, limit_bytes).map(Ok),
            }
        })
    }
}

fn refusal(limit: &Limit, used: u64, more: u64) -> Error {
    let (what, limit) = (&limit.what, limit.limit_bytes);
    let wanted = if more > 0 { format!(", and this adds {more}") } else { String::new() };
    Error::refused(format!(
        "the {what} is {limit} bytes, of which {used} are used{wanted}: forget versions, or have the limit raised"
    ))
}
