//! Accounts: how many bytes a set of recipes holds. Counts them, and owns the accounts that a process keeps for the next check.
//!
//! Must never keep an account that a damaged page made incomplete: the damage can be repaired.

use std::collections::{BTreeSet, HashMap, HashSet};

use platter_image::page::{Child, Contents, State, decode};
use platter_image::recipe::{PageSource, Root};
use platter_image::{BlockId, Error, Result, Score};

use crate::session::unless_damaged;

/// Most memory of a count's largest table. While a table grows, it needs half as much again.
const COUNT_MEMORY_MAX: usize = 3 << 30;
/// Most memory of the accounts that a process keeps for the next check.
const KEPT_MEMORY_MAX: usize = 512 << 20;
/// Most accounts that it keeps.
const KEPT_MAX: usize = 64;
/// Memory of a table's slot: an entry, and a byte of the table's own.
const SLOT: usize = size_of::<(Key, u32)>() + 1;
/// Most blocks and pages that are counted. The number of a table's slots is a power of two, of which 7/8 are used.
const BLOCKS_MAX: usize = (1 << (COUNT_MEMORY_MAX / SLOT).ilog2()) / 8 * 7;

/// A counted block or page: 16 bytes of its id suffice. Two that agree by chance count once.
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
    ends: HashMap<Key, u32>,
    bytes: u64,
    /// A damaged page was met.
    is_incomplete: bool,
}

impl Account {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn len(&self) -> usize {
        self.pages.len() + self.ends.len()
    }

    fn memory(&self) -> usize {
        (self.pages.capacity() + self.ends.capacity()) / 7 * 8 * SLOT
    }

    /// Returns what other recipes add.
    ///
    /// # Errors
    /// `Refused` when there are too many blocks; the errors of `source`.
    pub(crate) fn growth<'a>(
        &self,
        source: &dyn PageSource,
        scores: impl IntoIterator<Item = &'a Score>,
    ) -> Result<Self> {
        let mut growth = Self::default();
        growth.count_all(self, source, scores)?;
        Ok(growth)
    }

    /// Counts what recipes have and neither `before` nor this account.
    fn count_all<'a>(
        &mut self,
        before: &Self,
        source: &dyn PageSource,
        scores: impl IntoIterator<Item = &'a Score>,
    ) -> Result<()> {
        for score in scores {
            if !before.scores.contains(score) && self.scores.insert(*score) {
                self.count(before, source, *score)?;
            }
        }
        Ok(())
    }

    /// Counts a recipe. Children of damaged pages do not count: a live disk on a damaged version can be published.
    fn count(&mut self, before: &Self, source: &dyn PageSource, score: Score) -> Result<()> {
        let Some(bytes) = self.unless_damaged(source.page(&score.0))? else { return Ok(()) };
        self.bytes += bytes.len() as u64;
        let Some(root) = self.unless_damaged(Root::decode(score, &bytes))? else { return Ok(()) };
        let mut stack: Vec<Child> = root.top.into_iter().map(|(_, child)| child).collect();
        while let Some(child) = stack.pop() {
            if before.pages.contains(&key(&child.id)) || !self.pages.insert(key(&child.id)) {
                continue;
            }
            let Some(bytes) = self.unless_damaged(source.page(&child.id))? else { continue };
            self.bytes += bytes.len() as u64;
            match self.unless_damaged(decode(&child, &bytes))?.map(|(_, contents)| contents) {
                None => {}
                Some(Contents::Branch(children)) => stack.extend(children),
                Some(Contents::Leaf(entries)) => {
                    for entry in entries {
                        if let State::Data { block, offset } = entry.state {
                            let end = u64::from(offset).saturating_add(entry.extent.length);
                            self.use_block(before, &block, u32::try_from(end).unwrap_or(u32::MAX));
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

    fn use_block(&mut self, before: &Self, id: &BlockId, end: u32) {
        let key = key(id);
        let known = self.ends.get(&key).or_else(|| before.ends.get(&key)).copied().unwrap_or(0);
        if end > known {
            self.ends.insert(key, end);
            self.bytes += u64::from(end - known);
        }
    }

    fn unless_damaged<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        let read = unless_damaged(read)?;
        self.is_incomplete |= read.is_none();
        Ok(read)
    }
}

/// The accounts that a process keeps, by the texts of their limits. The one that was used last is the last.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Vec<(String, Account)>);

impl Accounts {
    /// Takes the account of a limit, and counts what is still to be counted; everything, if some of what it counts no longer is.
    ///
    /// # Errors
    /// As [`Account::growth`].
    pub(crate) fn take(
        &mut self,
        what: &str,
        source: &dyn PageSource,
        scores: &BTreeSet<Score>,
    ) -> Result<Account> {
        let kept = self.remove(what).filter(|account| account.scores.is_subset(scores));
        let mut account = kept.unwrap_or_default();
        let counted = account.count_all(&Account::default(), source, scores);
        counted.map_err(|error| error.within(format!("counting the {what}")))?;
        Ok(account)
    }

    /// Keeps an account, unless it is incomplete or too large, instead of those that were not used for the longest time.
    pub(crate) fn keep(&mut self, what: &str, account: Account) {
        if account.is_incomplete || account.memory() > KEPT_MEMORY_MAX {
            return;
        }
        self.0.push((what.to_owned(), account));
        while self.0.len() > KEPT_MAX || self.memory() > KEPT_MEMORY_MAX {
            self.0.remove(0);
        }
    }

    fn memory(&self) -> usize {
        self.0.iter().map(|(_, account)| account.memory()).sum()
    }

    pub(crate) fn remove(&mut self, what: &str) -> Option<Account> {
        let at = self.0.iter().position(|(other, _)| other == what)?;
        Some(self.0.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use platter_image::page::Entry;
    use platter_image::recipe::{CutPolicy, RecipeBuilder};
    use platter_image::{Domain, Extent};

    use super::*;

    fn account(blocks: u32) -> Account {
        let mut account = Account::default();
        for number in 0..blocks {
            let mut id = BlockId([0; 32]);
            id.0[..4].copy_from_slice(&number.to_le_bytes());
            account.use_block(&Account::default(), &id, 1);
        }
        account
    }

    fn kept(accounts: &Accounts) -> Vec<&str> {
        accounts.0.iter().map(|(what, _)| what.as_str()).collect()
    }

    #[test]
    fn the_most_blocks_fill_a_table_within_the_memory() {
        // At a thousandth of the size.
        let table: HashMap<Key, u32> = HashMap::with_capacity(BLOCKS_MAX >> 10);
        assert_eq!(table.capacity(), BLOCKS_MAX >> 10);
        let account = Account { ends: table, ..Account::default() };
        assert!(account.memory() <= COUNT_MEMORY_MAX >> 10, "{}", account.memory());
        assert!(account.memory() > COUNT_MEMORY_MAX >> 11, "{}", account.memory());
    }

    #[test]
    fn the_accounts_that_were_used_last_are_kept() {
        let mut accounts = Accounts::default();
        for number in 0..=KEPT_MAX {
            accounts.keep(&number.to_string(), account(1));
            let first = accounts.remove("0").unwrap();
            accounts.keep("0", first);
        }
        assert_eq!(accounts.0.len(), KEPT_MAX);
        assert_eq!(kept(&accounts)[..2], ["2", "3"], "0 was used again, 1 was not");
        assert_eq!(kept(&accounts)[KEPT_MAX - 1], "0");
    }

    #[test]
    fn large_accounts_replace_others_and_incomplete_ones_are_not_kept() {
        let reserved = |memory: usize| {
            let mut account = account(1);
            account.ends.reserve(memory / SLOT / 8 * 7);
            account
        };
        let mut accounts = Accounts::default();
        accounts.keep("small", account(1));
        accounts.keep("half", reserved(KEPT_MEMORY_MAX / 4));
        accounts.keep("most", reserved(KEPT_MEMORY_MAX / 2));
        accounts.keep("again", reserved(KEPT_MEMORY_MAX / 4));
        assert!(accounts.memory() <= KEPT_MEMORY_MAX);
        assert_eq!(kept(&accounts), ["most", "again"]);
        accounts.keep("too large", reserved(KEPT_MEMORY_MAX));
        accounts.keep("incomplete", Account { is_incomplete: true, ..account(1) });
        assert_eq!(kept(&accounts), ["most", "again"]);
    }

    struct Pages {
        pages: Vec<(BlockId, Vec<u8>)>,
        is_damaged: Cell<bool>,
    }

    impl PageSource for Pages {
        fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
            let page = self.pages.iter().find(|(page, _)| page == id);
            let bytes = page.filter(|_| !self.is_damaged.get()).map(|(_, bytes)| bytes.clone());
            bytes.ok_or_else(|| Error::corrupt("damaged"))
        }
    }

    #[test]
    fn what_was_damaged_counts_after_its_repair() {
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let none: Vec<(BlockId, Vec<u8>)> = Vec::new();
        let mut recipe = RecipeBuilder::new(4096, 512, policy, Domain::SHARED, none);
        let state = State::Data { block: BlockId([1; 32]), offset: 0 };
        recipe.push(Entry { extent: Extent::new(0, 4096), state }).unwrap();
        let (score, pages) = recipe.finish().unwrap();
        let whole = 4096 + pages.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        let source = Pages { pages, is_damaged: Cell::new(true) };
        let (mut accounts, scores) = (Accounts::default(), BTreeSet::from([score]));
        let mut count = || {
            let account = accounts.take("lab", &source, &scores).unwrap();
            let bytes = account.bytes();
            accounts.keep("lab", account);
            (bytes, accounts.0.len())
        };
        assert_eq!(count(), (0, 0));
        source.is_damaged.set(false);
        assert_eq!(count(), (whole, 1));
        assert_eq!(count(), (whole, 1));
    }
}
